/* naive_scheduler.h - a second, naive implementation of the scheduler: the oracle that scheduler.c is compared with
 *
 * Everything is an array that is scanned from end to end, and a plan is tried on a copy of the whole. It is fed the
 * events that scheduler.c gets, and the commands of both must be the same, word for word. */
#ifndef PUNICA_SIM_NAIVE_SCHEDULER_H
#define PUNICA_SIM_NAIVE_SCHEDULER_H

#include "base/buf.h"
#include "scheduler/scheduler.h"

enum {
    NAIVE_REQUESTS = 256,
    NAIVE_TOKENS = 128,
    NAIVE_GPUS = 12,
    NAIVE_FRONTENDS = 3,
    NAIVE_SENT = 2000,
    NAIVE_TENANTS = 8,
    NAIVE_PREFIXES = 1 << 13
};

typedef struct {
    uint64_t id;                  /* 0: the place is free */
    double arrival, since, moved; /* arrival: its turn, from its first GPU on */
    int tenant, priority;         /* priority: 0 once it has been on a GPU */
    int frontend, n_tokens, n_prompt, max_tokens, n_to_score, n_scored, token[NAIVE_TOKENS];
    int gpu; /* -1: waits */
    uint32_t attempt;
    char adapter[16];
    unsigned char digest[32];
    size_t digest_bytes;
    bool taken_on, suspect, confined, was_confined;
    int n_crashed, n_alone, n_killed, n_killed_alone, n_lost;
    double aside;          /* since when it is aside; below 0: it is not */
    uint64_t aside_serial; /* order of stepping aside */
    uint64_t serial;       /* order of submission */
} naive_request;

typedef struct {
    bool add;
    uint64_t id;
    uint32_t attempt;
    int pages;
} naive_sent;

typedef struct {
    bool up, draining, slow;
    char uuid[40];
    uint64_t life; /* in order of coming up, from 1 */
    gpu_info info;
    int pages_free;
    uint64_t n_sent, n_seen;
    naive_sent sent[NAIVE_SENT];
} naive_gpu;

typedef struct {
    int token[NAIVE_TOKENS], n;
    char adapter[16];
    unsigned char digest[32];
    size_t digest_bytes;
    double until;
} naive_killer;

/* The GPU that was last given a request with this beginning. */
typedef struct {
    uint64_t mark, life;
    int gpu;
} naive_prefix;

/* counter: service by weight, as in scheduler/shares.h */
typedef struct {
    char name[16];
    uint32_t weight;
    uint64_t counter;
} naive_tenant;

typedef struct {
    scheduler_options opt;
    naive_request request[NAIVE_REQUESTS];
    naive_killer killer[NAIVE_REQUESTS];
    int n_killers;
    naive_tenant tenant[NAIVE_TENANTS];
    int n_tenants;
    int last; /* 1 + the tenant whose newcomer left its line last; 0: none has */
    double last_turn;
    int reserved; /* 1 + the number of the reserved GPU; 0: none is */
    naive_gpu gpu[NAIVE_GPUS];
    double none_since; /* since when no GPU is open; below 0: one is. The caller sets -1 at first */
    int most_tokens;   /* of a request that the largest GPU so far could hold */
    naive_prefix prefix[NAIVE_PREFIXES];
    int n_prefixes;
    uint32_t n_attempts;
    uint64_t n_submitted, n_asides, n_lives;
    double next_look;
    buf said; /* commands so far, in words (command_words.h); the caller clears it */
} naive;

/* Return the number of requests on a GPU (-1: on none), and of those that wait. */
int naive_running(const naive *s, int gpu);
int naive_waiting(const naive *s);
void naive_submit(naive *s, double now, int frontend, const submission *w);
void naive_cancel(naive *s, double now, int frontend, uint64_t id);
void naive_frontend_gone(naive *s, double now, int frontend);
void naive_gpu_up(naive *s, double now, int gpu, const gpu_info *info);
void naive_gpus_gone(naive *s, double now, const int *gpu, int n, gpu_loss how);
void naive_gpus_drain(naive *s, double now, const int *gpu, int n);
void naive_gpu_pace(naive *s, double now, int gpu, bool slow);
void naive_report(naive *s, double now, int gpu, const gpu_report *p);
void naive_tick(naive *s, double now);

#endif
