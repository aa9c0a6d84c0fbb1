/* engine.h - continuous batching on one device
 *
 * Requests can be added at any time and wait, first come first served. Each engine_step() is one model invocation over
 * all running requests: one row for each that decodes, and as many rows of prompts, whole or in chunks, as keep the
 * time between tokens on target (row_budget.h). It reports what happened as events.
 *
 * When the KvCache runs out of pages, the newest request is handed back (EVENT_EVICTED) and forgotten: the caller adds
 * it again, here or elsewhere, with the tokens it has so far. It goes on with the same tokens, since randomness depends
 * only on seed and position.
 *
 * A prompt may be scored: EVENT_SCORE reports the logprob of each of its tokens but the first, given those before it,
 * in order and before any output. At most SCORED_ROWS rows of a step are scored; their logits stay on the device.
 *
 * One thread calls all functions. Adapters load beside it. */
#ifndef PUNICA_ENGINE_ENGINE_H
#define PUNICA_ENGINE_ENGINE_H

#include <stdint.h>

#include "engine/adapter_slots.h"
#include "engine/sampling.h"
#include "engine/token_rules.h"
#include "model/model.h"

enum { GPU_PROMPT_ROWS = 8192 }; /* of an invocation on a GPU that has memory for them */

#define KV_HOST_AUTO SIZE_MAX
#define KV_HOST_AUTO_GIB 4 /* its limit: pinning takes a third of a second a GiB (H200), each time a worker starts */

/* Defaults of max_batch, and of n_adapter_slots, which is at least max_batch. On the CPU a larger batch makes every
 * request slower and all together no faster. */
#define GPU_BATCH 256
#define CPU_BATCH 32
#define USUAL_SLOTS 64

typedef struct {
    int max_batch;    /* requests running together; 0: by the room of the KvCache, up to GPU_BATCH or CPU_BATCH */
    int prefill_rows; /* rows of prompts per invocation at most; 0: as many as scratch memory and the device allow */
    /* Target for the seconds between tokens of a running request; limits the prompts computed beside it. */
    double itl_target;
    /* KvCache; n_pages 0: room for max_batch requests of the longest length, or as many pages as fit. */
    int n_pages, page_len;
    double memory_share; /* share of a device's memory that weights and KvCache may take; the rest is for adapters and
                          * steps. Not used on a CPU, where the KvCache may take half of the free memory */
    int max_len; /* tokens of the longest request, which the KvCache must be able to hold; 0: the model's limit, as far
                  * as the KvCache can hold it */
    kv_form kv;  /* what pages hold */
    bool no_prefix_cache; /* requests that begin alike do not share pages, and nothing is kept of those that ended */
    int n_adapter_slots;  /* 0: USUAL_SLOTS, or max_batch if that is more */
    size_t host_bytes;    /* pinned host memory for pages that the device has no room for; 0: none; KV_HOST_AUTO: where
                           * the device has memory of its own, an eighth of the host's available memory, up to
                           * KV_HOST_AUTO_GIB */
    size_t image_bytes;   /* pinned host memory for adapters, where the device has memory of its own */
    adapter_source adapters;
    jobs *loaders;    /* what loads adapters, and nothing else; borrowed. NULL: threads of the engine's own */
    bool never_waits; /* engine_step() never blocks for adapters or pages to arrive */
    /* Seconds of any clock, to time steps; NULL: steps are not timed and itl_target has no effect. */
    double (*now)(void *ctx);
    void *now_ctx;
    /* Called when n draws of a step have come from the device, before their events are made; may be NULL. */
    void (*drawn)(void *ctx, int n);
    void *drawn_ctx;
} engine_options;

/* Returns the defaults: all sizes by memory and device, 100 ms between tokens (faster than people read), pages of 16
 * tokens, nine tenths of the memory, no pages on the host, 2 GiB of images. */
engine_options engine_options_default(void);

typedef struct {
    uint64_t id;      /* the caller's; unique among those in the engine */
    uint64_t arrival; /* lower is older; among equals the lower id. The caller keeps it over evictions */
    /* Its name; NULL: the base model. A name must stand for the same weights as long as the engine lives. */
    const char *adapter;
    const char *cache_salt; /* only requests of the same salt share pages; NULL: as "" */
    const int *token;       /* [n_tokens] prompt, then output of earlier attempts */
    int n_tokens, n_prompt;
    /* Prompt tokens that earlier attempts have scored (the first never is); 0 unless the prompt is scored. */
    int n_scored;
    sampling_params sampling;
    token_rules rules; /* its grammar is held until the request ends */
} engine_request;

typedef enum { FINISH_STOP, FINISH_LENGTH } finish_reason;
typedef enum { EVENT_SCORE, EVENT_TOKEN, EVENT_FINISHED, EVENT_EVICTED, EVENT_FAILED } event_kind;

typedef struct {
    event_kind kind;
    uint64_t id;
    sample_result
        drawn; /* EVENT_TOKEN: the token, with logprobs if asked for; EVENT_SCORE: the prompt's next token, likewise */
    int n_cached;      /* EVENT_TOKEN: tokens of the request that were in the cache when it began to run */
    finish_reason why; /* EVENT_FINISHED */
    err error;         /* EVENT_FAILED */
} event;

typedef struct {
    uint64_t steps, rows, tokens, evictions; /* since the engine was made */
    uint64_t lora_bytes;                     /* adapter bytes of each step's segments, summed */
    uint64_t kv_positions;                   /* cached positions of each step's sequences, summed */
    int max_batch, prefill_rows;             /* as they were chosen */
    /* pages_free includes pages_cached. */
    int n_active, n_waiting, pages_total, pages_free, pages_cached, pages_peak, page_len;
    int pages_wanted; /* that the waiting requests take if they share none */
    size_t page_bytes;
    int host_pages, host_pages_used;     /* pages of host memory, all and used */
    uint64_t pages_saved, pages_fetched; /* to the host and back, since the engine was made */
    double fetch_seconds;                /* to copy a page back to the device */
    double mask_seconds;                 /* spent on masks, mostly while the model ran */
} engine_stats;

typedef struct engine engine;

/* Makes an engine; the model must outlive it. NULL with e set when memory is short, or o->max_len does not fit. */
engine *engine_new(const model *m, const engine_options *o, err *e);
void engine_free(engine *g);

/* Adds a request to those that wait and copies everything in r. -1 with e set when it can never be served here. */
int engine_add(engine *g, const engine_request *r, err *e);

/* Forgets a request; its pages are free at once. Ignores unknown ids. */
void engine_cancel(engine *g, uint64_t id);

/* Runs one invocation. *events: [*n], valid until the next call. -1: the device failed; the engine cannot be used any
 * more. If all requests wait for their adapters or pages, blocks until some have arrived, or with never_waits does
 * nothing. */
int engine_step(engine *g, const event **events, int *n, err *e);

bool engine_is_idle(const engine *g); /* nothing running or waiting */

/* Runs made-up prompts on a GPU (on a CPU does nothing): a kernel is loaded when it first runs, which takes longer than
 * a step, and steps stay short until it is known how long they take. Call it before the first request. -1: the device
 * failed. */
int engine_warm_up(engine *g, err *e);

/* Loads an adapter ahead of its first request and waits for it. -1 with e set when that fails. */
int engine_preload(engine *g, const char *adapter, err *e);

engine_stats engine_get_stats(const engine *g);

/* Returns the adapters in memory (adapter_slots.h), to be looked at only; borrowed. */
adapter_slots *engine_adapters(engine *g);

#endif
