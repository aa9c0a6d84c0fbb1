/* golden.h - the sequences of one family under golden/models, on any backend
 *
 * TEST_DATA is where the tests' data were at build time; PUNICA_TEST_DATA, if set, is where they are now. */
#ifndef PUNICA_TESTS_SUPPORT_GOLDEN_H
#define PUNICA_TESTS_SUPPORT_GOLDEN_H

#include "backend/group.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "model/forward.h"
#include "model/lora.h"

/* token: prompt, then the greedy tokens of the reference. row: of its first token in golden_run()'s logits. */
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

/* Returns an adapter of the set, in host memory; the caller owns it. */
lora *golden_adapter(const golden_set *g, const char *name);

/* Opens the set in a folder, on a backend, with pages of this form; the test fails if it cannot. Close with
 * golden_close(). */
golden_set golden_open(backend *be, const char *dir, kv_form form);

void golden_close(golden_set *g);

/* Runs all sequences, of the base and of every adapter, as one batch of prefills. Returns the logits of every
 * position, [n_rows, vocab], in the order of the cases; the caller frees. */
float *golden_run(golden_set *g);

/* Returns case i as a request: its prompt, for as many tokens as the reference has, end tokens or not. */
engine_request golden_request(const golden_set *g, int i);

/* Calls check for the directory of every family. */
void golden_each_family(void (*check)(const char *dir, const char *family));

#endif
