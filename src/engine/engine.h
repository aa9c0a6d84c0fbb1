/* engine.h - continuous batching on one device
 *
 * Requests are added at any time and wait, first come first served; every engine_step() is one
 * model invocation over all running requests: one row for each that decodes, and prompts (or chunks of
 * them) of as many rows as keep the time between tokens on target (row_budget.h). What happened comes back as events.
 *
 * A request that the KvCache has no room for any more is handed back (EVENT_EVICTED), newest
 * first, and forgotten here: the caller adds it again, here or elsewhere, with the tokens it has so
 * far. Because randomness depends only on seed and position, it goes on with the same tokens.
 *
 * A prompt may be scored: each of its tokens but the first is told with its logprob given those before it, in order and
 * before any output. Their rows' logits are computed with the prompt, SCORED_ROWS of a step at most, and stay on the
 * device.
 *
 * One thread calls all functions. Adapters load beside it. */
#ifndef PUNICA_ENGINE_ENGINE_H
#define PUNICA_ENGINE_ENGINE_H

#include <stdint.h>

#include "engine/adapter_slots.h"
#include "engine/sampling.h"
#include "engine/token_rules.h"
#include "model/model.h"

/* Where the caller says nothing: rows of prompts in an invocation on a GPU with memory for them, and adapter slots. */
enum { GPU_PROMPT_ROWS = 8192, USUAL_SLOTS = 64 };

#define KV_HOST_AUTO SIZE_MAX

typedef struct {
    int max_batch;    /* requests running together; 0: as many as the KvCache has room for, up to what serves the device
                         well */
    int prefill_rows; /* rows of prompts per invocation at most; 0: what scratch memory and the device allow */
    double itl_target; /* seconds between tokens of running requests, which prompts beside them keep to where it can be
                          kept */
    int n_pages,
        page_len; /* KvCache; n_pages 0: room for max_batch requests as long as they may be, or as much as there is */
    double memory_share; /* of a device's memory that weights and KvCache may take; the rest is for adapters, and steps.
                          * A CPU's is half of what is free, and only what is used is taken */
    int max_len; /* tokens of a request, which the KvCache must be able to hold; 0: as many as the model allows, or
                  * the KvCache can */
    kv_form kv;  /* what pages hold */
    bool no_prefix_cache; /* requests that begin alike do not share pages, and nothing is kept of those that ended */
    int n_adapter_slots;  /* 0: 64, or max_batch if that is more */
    size_t host_bytes;    /* of host memory, pinned, for pages that the device has no room for any more; 0: none;
                           * KV_HOST_AUTO: where the device has memory of its own, an eighth of what the host can give, up
                           * to 4 GiB: a worker that is started again after a crash has to pin it again */
    size_t image_bytes;   /* pinned host memory for adapters, where the device has memory of its own */
    adapter_source adapters;
    jobs *loaders;            /* who loads adapters, and nothing else; borrowed. NULL: threads of the engine's own */
    bool never_waits;         /* for adapters or pages to arrive: see engine_step() */
    double (*now)(void *ctx); /* seconds of any clock, by which steps are timed; NULL: they are not, and itl_target says
                                 nothing */
    void *now_ctx;
    void (*drawn)(void *ctx, int n); /* so many draws of a step have come from the device, of which events are about to
                                        be made; NULL: nobody wants to know */
    void *drawn_ctx;
} engine_options;

/* All sizes by memory and device, 100 ms between tokens (faster than people read), pages of 16 tokens, nine tenths of
 * the memory, no pages on the host, 2 GiB of images. */
engine_options engine_options_default(void);

typedef struct {
    uint64_t id;         /* the caller's; unique among those in the engine */
    uint64_t arrival;    /* lower is older, then the lower id; kept by the caller over evictions */
    const char *adapter; /* NULL: the base model. Its name stands for its weights: what they are must not change while
                          * the engine lives */
    const char *cache_salt; /* it shares pages only with requests of the same; NULL: as "" */
    const int *token;       /* [n_tokens] prompt, then output of earlier attempts */
    int n_tokens, n_prompt;
    int n_scored; /* of the prompt's tokens behind the first, where they are scored: how many have been, in earlier
                     attempts */
    sampling_params sampling;
    token_rules rules; /* its grammar is held until the request ends */
} engine_request;

typedef enum { FINISH_STOP, FINISH_LENGTH } finish_reason;
typedef enum { EVENT_SCORE, EVENT_TOKEN, EVENT_FINISHED, EVENT_EVICTED, EVENT_FAILED } event_kind;

typedef struct {
    event_kind kind;
    uint64_t id;
    sample_result
        drawn; /* EVENT_TOKEN: the token, and logprobs if asked for; EVENT_SCORE: the same of the prompt's next token */
    int n_cached;      /* EVENT_TOKEN: tokens of the request that were in the cache when it began to run */
    finish_reason why; /* EVENT_FINISHED */
    err error;         /* EVENT_FAILED */
} event;

typedef struct {
    uint64_t steps, rows, tokens, evictions; /* since the engine was made */
    uint64_t lora_bytes;                     /* adapter bytes of each step's segments, summed */
    uint64_t kv_positions;                   /* cached positions of each step's sequences, summed */
    int max_batch, prefill_rows;             /* as they were chosen */
    int n_active, n_waiting, pages_total, pages_free, pages_cached, pages_peak,
        page_len;     /* cached ones are free, too */
    int pages_wanted; /* what those waiting will take when they are admitted */
    size_t page_bytes;
    int host_pages, host_pages_used;     /* of the host */
    uint64_t pages_saved, pages_fetched; /* to the host and back, since the engine was made */
    double fetch_seconds;                /* that a page takes to come back */
    double mask_seconds;                 /* in which masks were computed, most of them while the model ran */
} engine_stats;

typedef struct engine engine;

/* The model must outlive the engine. NULL with e set when the backend is short of memory. */
engine *engine_new(const model *m, const engine_options *o, err *e);
void engine_free(engine *g);

/* -1 when the request can never be served here (e says why); everything in r is copied. */
int engine_add(engine *g, const engine_request *r, err *e);

/* Forget a request; its pages are free at once. Unknown ids are ignored. */
void engine_cancel(engine *g, uint64_t id);

/* One invocation. *events: [*n], valid until the next call. -1: the device failed; the engine is of
 * no more use. Blocks while the only runnable requests wait for their adapters or pages, or with never_waits
 * does nothing then. */
int engine_step(engine *g, const event **events, int *n, err *e);

bool engine_is_idle(const engine *g); /* nothing running or waiting */

/* Computes prompts that nobody asked for, on a GPU: the first time a kernel runs it is loaded, which takes longer than
 * a step, and what steps take must be known before they can be as long as they may be. Before the first request; -1:
 * the device failed. */
int engine_warm_up(engine *g, err *e);

/* Load an adapter ahead of its first request. */
int engine_preload(engine *g, const char *adapter, err *e);

engine_stats engine_get_stats(const engine *g);

/* The adapters in memory (adapter_slots.h), to be looked at. */
adapter_slots *engine_adapters(engine *g);

#endif
