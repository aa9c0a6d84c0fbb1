/* sched_cost.c - see sched_cost.h */
#include "bench/sched_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "scheduler/scheduler.h"

enum { N_QUEUED = 100000, BATCH = 32, PROMPT = 32, CHUNK = 1000, ROUNDS = 100 };

typedef enum { SUBMIT, CANCEL, REPORT_TOKENS, REPORT_END, N_KINDS } cost_event;

typedef struct {
    uint64_t id;
    uint32_t attempt;
    int n_output;
} running_request;
typedef struct {
    running_request running[BATCH];
    int n;
    uint64_t n_seen;
} load;

typedef struct { char name[32]; } tenant_name;

/* The benchmark's own arrays are accessed at random too. They lie on large pages, so that this does not count as the
 * scheduler's cost. */
typedef struct {
    scheduler *s;
    load *gpu;           /* [n_gpus] */
    tenant_name *tenant; /* [n_tenants] */
    int n_gpus, n_tenants;
    uint64_t *queued; /* [n_queued] ids, in no order */
    size_t *place;    /* [last_id + 1] index of each id in queued */
    size_t n_queued;
    uint64_t last_id, n_drawn;
    double spent[N_KINDS]; /* seconds */
} cost;

static uint64_t draw(cost *c, size_t n)
{
    return rng_u64(1, c->n_drawn++) % n;
}

static void forget_queued(cost *c, uint64_t id)
{
    size_t at = c->place[id];
    uint64_t last = c->queued[--c->n_queued];
    c->queued[at] = last;
    c->place[last] = at;
}

static void obey(void *ctx, const command *m)
{
    cost *c = ctx;
    if (m->kind != COMMAND_ADD)
        return;
    load *g = &c->gpu[m->gpu];
    g->running[g->n++] = (running_request){m->id, m->attempt, 0};
    g->n_seen++;
    forget_queued(c, m->id);
}

static void submit(cost *c)
{
    static const int prompt[PROMPT];
    uint64_t id = ++c->last_id;
    const char *tenant = c->tenant[draw(c, (size_t)c->n_tenants)].name;
    c->queued[c->n_queued] = id;
    c->place[id] = c->n_queued++;
    scheduler_submit(c->s, (double)id, 0,
                     &(submission){.id = id,
                                   .arrival = (double)id,
                                   .tenant = tenant,
                                   .weight = 1 + id % 7,
                                   .token = prompt,
                                   .n_tokens = PROMPT,
                                   .n_prompt = PROMPT,
                                   .max_tokens = 1 << 20});
}

static void cancel(cost *c)
{
    uint64_t id = c->queued[draw(c, c->n_queued)];
    forget_queued(c, id);
    scheduler_cancel(c->s, (double)c->last_id, 0, id);
}

static int pages_free(cost *c)
{
    return 1000 + (int)draw(c, 100);
}

/* Reports a step of a GPU in which every request has made a token. */
static void report_step_of(cost *c, int number)
{
    static const int token = 7;
    load *g = &c->gpu[number];
    report_tokens tokens[BATCH];
    for (int i = 0; i < g->n; i++)
        tokens[i] = (report_tokens){.id = g->running[i].id,
                                    .attempt = g->running[i].attempt,
                                    .index = g->running[i].n_output++,
                                    .n = 1,
                                    .token = &token};
    scheduler_report(
        c->s, (double)c->last_id, number,
        &(gpu_report){.n_seen = g->n_seen, .pages_free = pages_free(c), .n_tokens = g->n, .tokens = tokens});
}

static void report_step(cost *c)
{
    report_step_of(c, (int)draw(c, (size_t)c->n_gpus));
}

/* Ends one request of a full GPU, so that the first in the queue takes its place. */
static void report_an_end(cost *c)
{
    int number = (int)draw(c, (size_t)c->n_gpus);
    load *g = &c->gpu[number];
    int at = (int)draw(c, (size_t)g->n);
    report_end end = {.id = g->running[at].id, .attempt = g->running[at].attempt, .why = END_STOP};
    memmove(&g->running[at], &g->running[at + 1],
            (size_t)(--g->n - at) * sizeof g->running[0]); /* by arrival, as engines do */
    scheduler_report(c->s, (double)c->last_id, number,
                     &(gpu_report){.n_seen = g->n_seen, .pages_free = pages_free(c), .n_ends = 1, .ends = &end});
}

/* Seconds of processor time, so that other processes do not count. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_chunk(cost *c, cost_event kind, void (*event)(cost *), int n)
{
    double start = cpu_now();
    for (int i = 0; i < n; i++)
        event(c);
    c->spent[kind] += cpu_now() - start;
}

static void *new_array(size_t n, size_t size)
{
    void *items = mem_alloc_block(n * size);
    CHECK(items);
    return memset(items, 0, n * size);
}

static void set_up(cost *c, int n_gpus, int n_tenants)
{
    scheduler_options o = scheduler_options_default();
    o.max_queue = 1 << 30;
    o.max_wait = 1e12;
    size_t most = (size_t)n_gpus * BATCH + N_QUEUED + (size_t)CHUNK * ROUNDS * 2 + 4 * CHUNK;
    *c = (cost){.n_gpus = n_gpus,
                .n_tenants = n_tenants,
                .gpu = new_array((size_t)n_gpus, sizeof *c->gpu),
                .queued = new_array(most, sizeof *c->queued),
                .place = new_array(most, sizeof *c->place),
                .tenant = new_array((size_t)n_tenants, sizeof *c->tenant)};
    for (int t = 0; t < n_tenants; t++)
        snprintf(c->tenant[t].name, sizeof c->tenant[t].name, "tenant-%d", t);
    c->s = scheduler_new(&o, obey, c);
    scheduler_frontend_up(c->s, 0);
    for (int g = 0; g < n_gpus; g++) {
        char uuid[16];
        snprintf(uuid, sizeof uuid, "gpu-%06d", g);
        scheduler_gpu_up(c->s, 0, g, &(gpu_info){uuid, BATCH, 4096, 16, 1 << 24});
    }
    for (int i = 0; i < n_gpus * BATCH + N_QUEUED; i++)
        submit(c);
    for (int g = 0; g < n_gpus; g++)
        report_step_of(c, g); /* first touches of memory are the system's cost, not an event's */
}

static void tear_down(cost *c)
{
    scheduler_free(c->s);
    free(c->gpu);
    free(c->queued);
    free(c->place);
    free(c->tenant);
}

static void measure(int n_gpus, int n_tenants)
{
    cost c;
    set_up(&c, n_gpus, n_tenants);
    for (int i = 0; i < ROUNDS; i++) {
        run_chunk(&c, SUBMIT, submit, 2 * CHUNK);
        run_chunk(&c, CANCEL, cancel, CHUNK);
        run_chunk(&c, REPORT_TOKENS, report_step, CHUNK);
        run_chunk(&c, REPORT_END, report_an_end, CHUNK);
    }
    double all = 0, n = CHUNK * ROUNDS;
    for (int k = 0; k < N_KINDS; k++)
        all += c.spent[k];
    printf("%6d %8d %8d %9.2f %9.2f %16.2f %18.2f %14.0f\n", n_gpus, n_tenants, (int)c.n_queued,
           c.spent[SUBMIT] / n / 2 * 1e6, c.spent[CANCEL] / n * 1e6, c.spent[REPORT_END] / n * 1e6,
           c.spent[REPORT_TOKENS] / n * 1e6, 5 * n / all);
    tear_down(&c);
}

void sched_cost_run(void)
{
    static const struct { int gpus, tenants; } at[] = {{16, 1}, {256, 1}, {4096, 1}, {4096, 1000}};
    printf("microseconds of one core for each event, every GPU at its batch limit of %d\n\n", BATCH);
    printf("%6s %8s %8s %9s %9s %16s %18s %14s\n", "GPUs", "tenants", "queued", "submit", "cancel", "end and next in",
           "step of 32 tokens", "events/s, mix");
    for (int i = 0; i < 4; i++)
        measure(at[i].gpus, at[i].tenants);
}
