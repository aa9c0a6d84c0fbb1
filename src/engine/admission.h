/* admission.h - who runs on one device, and which rows a step has
 *
 *   add ──▶ waiting ──admit──▶ active, at most max_batch ──▶ removed, evicted
 *              └──────▶ failed: its adapter did not load
 *
 * An item whose prefix is being fetched from the host is active, with its place and its pages, but has no rows until
 * the prefix has arrived.
 *
 * Everything that continuous batching decides by counting: whose turn it is, room in the batch, pages of the KvCache,
 * adapter slots. It knows neither models nor the meaning of tokens, so that the engine and the simulation of a cluster
 * run the same rules.
 *
 * Order is by arrival, then by id: the oldest are admitted, get pages and have their prompts computed first; the
 * newest is evicted. One thread calls all functions. */
#ifndef PUNICA_ENGINE_ADMISSION_H
#define PUNICA_ENGINE_ADMISSION_H

#include "engine/adapter_slots.h"
#include "engine/kv_pool.h"
#include "engine/row_budget.h"

/* What admission knows of a sequence; embedded in a struct of the caller, who owns it and updates the counts. */
typedef struct {
    uint64_t id, arrival;       /* id: unique among those here; arrival: lower is older */
    char *adapter;              /* NULL: the base model */
    adapter_slot *slot;         /* held; NULL until claimed. Admission's */
    kv_seq kv;                  /* admission's */
    int *token;                 /* [n_tokens] the caller's; NULL where tokens are only counted: nothing is shared */
    kv_key root;                /* what else its keys and values depend on (kv_pool.h) */
    uint64_t number;            /* of its admission, from 1. Admission's */
    uint64_t n_admitted_before; /* its first decode, itself included; 0: it has had none. Admission's */
    double decodes_since;       /* the seconds of all steps before that. Admission's */
    int n_cached;               /* tokens that were in the cache when it was admitted. Admission's */
    int n_tokens;               /* prompt and output so far */
    int in_flight;              /* 1: one more has been drawn whose value is not known yet */
    int n_done;                 /* tokens whose keys and values are in the cache; the others are pending */
    int limit;                  /* tokens it may have at most; the last of these never has a row */
    bool is_scored;             /* the logits of all its prompt's rows may be wanted */
} admission_item;

typedef struct {
    int max_batch;     /* items running together */
    int prefill_rows;  /* rows of prompts per step at most; longer prompts go in chunks */
    int scored_rows;   /* of these, how many may be of prompts that are scored */
    double itl_target; /* target for the seconds of a step while elders run (row_budget.h); 0: none */
} admission_limits;

/* Called for an item that leaves without admission_remove(). Its pages and slot are given back already; it may be
 * freed. */
typedef struct {
    void (*evicted)(void *ctx, admission_item *it);
    void (*failed)(void *ctx, admission_item *it, const err *why); /* its adapter did not load */
    void *ctx;
} admission_events;

/* The rows an item brings to a step: its pending tokens from n_done on, or the first of them. */
typedef struct {
    admission_item *item;
    int n_rows;
    bool draws;
} admission_rows; /* draws: these are all its pending tokens, so the next is drawn */
typedef struct {
    admission_rows *prefill, *decode;
    int n_prefills, n_decodes;
    step_work work;
} admission_step;

typedef struct {
    int n_active, n_waiting, pages_total, pages_free, pages_cached, pages_peak; /* pages_free includes pages_cached */
    int pages_wanted; /* that the waiting items take if they share none */
    uint64_t evictions;
} admission_stats;

typedef struct admission admission;

/* Makes an admission. pool and slots are borrowed until admission_free(), by when all items must have left. */
admission *admission_new(const admission_limits *l, kv_pool *pool, adapter_slots *slots, admission_events events);
void admission_free(admission *a);

/* Adds an item to those that wait; it must stay where it is in memory until it leaves. All pages of the pool together
 * must be enough for its tokens and one more. */
void admission_add(admission *a, admission_item *it);

/* Takes an item out, waiting or active; its pages and its claim are given back at once. */
void admission_remove(admission *a, admission_item *it);

/* Keeps others from sharing pages that an item has computed, as their content may be wrong. */
void admission_spoil(admission *a, admission_item *it);

admission_item *admission_find(const admission *a, uint64_t id); /* NULL: unknown */
admission_item *admission_last(const admission *a); /* the newest that waits, else the newest that runs; NULL: none */
admission_item *const *admission_active(const admission *a, int *n); /* by age; valid until the next call */

/* Takes in adapters that have arrived and moves waiting items into the batch. With may_wait, blocks for an adapter if
 * there is nothing else to do. */
void admission_admit(admission *a, bool may_wait);

/* Reserves pages for all pending tokens of every active item; when pages run out, evicts the newest items. */
void admission_make_room(admission *a);

/* Returns the rows of the next step: every decode, and of prompts, oldest first, as many as the limits and the target
 * allow. Items whose last token is in flight, or whose prefix has not arrived, have none. Valid until the next call. */
admission_step admission_choose_rows(admission *a);

/* Notes how long a step took, to predict later ones (row_budget.h). */
void admission_learn(admission *a, const step_work *w, double seconds);

/* Forgets how long steps took, and resets the counters. */
void admission_forget(admission *a);

/* Notes how long fetching a page from the host takes: prefixes are fetched if that is faster than computing them. */
void admission_learn_fetch(admission *a, double seconds);

/* Counts the next n_rows pending tokens of an item as computed, which makes full pages findable: they are computed, or
 * will be before anything that is asked of the device from now on. */
void admission_advance(admission *a, admission_item *it, int n_rows);

admission_stats admission_get_stats(const admission *a);

#endif
