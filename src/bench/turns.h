/* turns.h - `punica bench turns`: conversations on one device, with the prefix cache, with its host tier, and without
 *
 * Each conversation has an adapter, begins with that adapter's system prompt, and goes on for some turns: what the user
 * says, then what the model answers. Its next turn comes when all other conversations have had theirs, so the cache has
 * to hold them all. Shows time to first token, throughput, and how much of the prompts was cached, beside what an
 * unbounded cache would have had. */
#ifndef PUNICA_BENCH_TURNS_H
#define PUNICA_BENCH_TURNS_H

#include "model/model.h"

typedef enum {
    TURNS_OFF,
    TURNS_DEVICE,
    TURNS_HOST,
    N_TURNS_MODES
} turns_mode; /* no cache; on the device; on device and host */

typedef struct {
    const char *shape, *model_dir, *device; /* random weights of this shape, or a model directory */
    dtype type;                             /* of random weights */
    weights_form form;
    kv_form kv;
    int tp, threads, rank;
    int conversations, turns, at_once; /* at_once: requests that run together */
    int adapters;                      /* dealt out to conversations in turn; 0: the base model */
    /* Tokens of a system prompt, of what the user says in a turn, and of each answer. */
    int system_len, user_len, gen_len;
    int kv_pages;      /* 0: as the engine likes */
    size_t host_bytes; /* of the host tier */
    bool run[N_TURNS_MODES];
    int rounds; /* how often each mode is run; modes take turns */
    uint64_t seed;
} turns_options;

turns_options turns_options_default(void);

/* Sets run[] by "all" or names separated by commas: off, device, host. -1 with e set for any other, or none. */
int turns_modes_find(const char *list, bool run[N_TURNS_MODES], err *e);

int turns_run(const turns_options *o, err *e);

#endif
