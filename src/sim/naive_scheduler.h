/* naive_scheduler.h - the scheduler's rules once more, as plainly as possible
 *
 * Everything is an array that is looked through from end to end, and a plan is tried on a copy of the whole. It is fed
 * the events that scheduler.c gets, and what both say is compared, word for word. */
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
    uint64_t id;                  /* 0: nobody */
    double arrival, since, moved; /* arrival: from its first GPU on, its turn */
    int tenant, priority;         /* priority: until it has been on a GPU */
    int frontend, n_tokens, n_prompt, max_tokens, n_to_score, n_scored, token[NAIVE_TOKENS];
    int gpu; /* -1: waits */
    uint32_t attempt;
    char adapter[16];
    unsigned char digest[32];
    size_t digest_bytes;
    bool taken_on, suspect, confined, was_confined;
    int n_crashed, n_alone, n_killed, n_killed_alone, n_lost;
    double aside;    /* since when; below 0: it is not */
    uint64_t turn;   /* order of stepping aside */
    uint64_t serial; /* order of submission */
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
    uint64_t life; /* number of those that came up before it */
    gpu_info info;
    int pages_free;
    uint64_t n_sent, n_seen;
    naive_sent sent[NAIVE_SENT];
} naive_gpu;

typedef struct {
    int token[NAIVE_TOKENS], n;
    char adapter[16];
    double until;
} naive_killer;

/* Who was last given a request that begins so. */
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
    int last; /* one more than the tenant of which a newcomer left its line last; 0: none has */
    double last_turn;
    int reserved; /* one more than the number of the GPU that is; 0: none */
    naive_gpu gpu[NAIVE_GPUS];
    double none_since; /* no GPU takes anybody; below 0: one does. Set to -1 at first */
    int most_tokens;   /* the largest request that a GPU so far could hold */
    naive_prefix prefix[NAIVE_PREFIXES];
    int n_prefixes;
    uint32_t n_attempts;
    uint64_t n_submitted, n_turns, n_lives;
    double next_look;
    buf said;
} naive;

/* Requests on a GPU; -1: that wait. */
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
