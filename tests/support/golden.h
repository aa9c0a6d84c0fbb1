/* golden.h - the sequences of one family under golden/models, on any backend
 *
 * TEST_DATA is where the tests' data lay when they were built; PUNICA_TEST_DATA, if set, is where they
 * lie now. */
#ifndef PUNICA_TESTS_SUPPORT_GOLDEN_H
#define PUNICA_TESTS_SUPPORT_GOLDEN_H

#include "backend/group.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "model/forward.h"
#include "model/lora.h"

/* token: prompt, then the greedy tokens of the reference. row: of its first token in golden_run's logits,
 * which are in the order of the cases. */
typedef struct {
    int *token, n_tokens, n_prompt, row;
    const char *adapter;
    lora *lora;
    kv_seq kv;
    const json_t *doc;
} golden_case;

typedef struct {
    char *dir;
    backend *be;
    model *m;
    json_t *doc;
    int n, n_rows;          /* cases, and tokens of them all */
    golden_case *at;        /* [n] */
    kv_form form;           /* what pages hold */
    kv_cache kv[MAX_RANKS]; /* of each device */
    kv_pool *pool;
} golden_set;

/* An adapter of the set, in host memory; owned by the caller. */
lora *golden_adapter(const golden_set *g, const char *name);

/* The set in a folder, on a backend, with pages of this form. Close with golden_close(). */
golden_set golden_open(backend *be, const char *dir, kv_form form);

void golden_close(golden_set *g);

/* All sequences, of the base and of every adapter, as one batch of prefills. The logits of every
 * position, [n_rows, vocab], to be freed; a case's begin at its row. */
float *golden_run(golden_set *g);

/* Case i as a request: its prompt, and as many tokens, whatever they are, as the reference has. */
engine_request golden_request(const golden_set *g, int i);

/* Call check on the directory of every family. */
void golden_each_family(void (*check)(const char *dir, const char *family));

#endif
