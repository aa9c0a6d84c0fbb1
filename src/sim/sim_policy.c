/* sim_policy.c - see sim_policy.h */
#include "sim/sim_policy.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/wait_queue.h"

struct policy {
    policy_kind kind;
    policy_setup setup;
    scheduler *s;        /* packed */
    int *prompt;         /* [max_tokens] scratch: of the request that arrives */
    uint32_t n_attempts; /* from here on: spread and dedicated only */
    uint64_t n_evicted;
    wait_item *item;  /* [n_requests] */
    int *n_output;    /* [n_requests] tokens made so far */
    wait_queue *lane; /* [n_lanes] requests that wait: one for all, or one for each adapter */
    int n_lanes;
    int *adapter; /* [n_gpus] that the GPU serves, or served last */
};

const char *policy_name(policy_kind k)
{
    static const char *const names[N_POLICIES] = {"packed", "forgetful", "spread", "dedicated"};
    return names[k];
}

static void add_to_gpu(policy *p, int gpu, int request, uint32_t attempt, int n_output)
{
    const bench_request *w = &p->setup.request[request].what;
    sim_gpu_add(p->setup.gpu[gpu], &(sim_request){.id = request,
                                                  .adapter = w->adapter,
                                                  .attempt = attempt,
                                                  .n_tokens = w->prompt_len + n_output,
                                                  .n_output = n_output,
                                                  .n_total = w->gen_len,
                                                  .arrival = p->setup.has_cache ? &p->setup.request[request] : NULL});
}

static void obey(void *ctx, const command *c)
{
    policy *p = ctx;
    if (c->kind == COMMAND_ADD)
        add_to_gpu(p, c->gpu, (int)c->id, c->attempt, c->what->n_tokens - c->what->n_prompt);
    else if (c->kind == COMMAND_CANCEL)
        sim_gpu_cancel(p->setup.gpu[c->gpu], (int)c->id, c->attempt);
    else if (c->kind == COMMAND_END)
        CHECK(c->why == END_LENGTH);
}

static void start_scheduler(policy *p)
{
    const policy_setup *t = &p->setup;
    scheduler_options o = t->scheduling;
    o.max_prefixes = p->kind == POLICY_FORGETFUL ? 0 : o.max_prefixes;
    p->s = scheduler_new(&o, obey, p);
    p->prompt = XNEW_ARRAY(int, (size_t)t->max_tokens);
    scheduler_frontend_up(p->s, 0);
    for (int g = 0; g < t->n_gpus; g++) {
        char uuid[16];
        snprintf(uuid, sizeof uuid, "gpu-%06d", g);
        scheduler_gpu_up(p->s, 0, g, &(gpu_info){uuid, t->max_batch, t->n_pages, t->page_len, t->max_tokens + 1});
    }
}

policy *policy_new(policy_kind k, const policy_setup *setup)
{
    policy *p = XNEW(policy);
    *p = (policy){.kind = k, .setup = *setup};
    if (k == POLICY_PACKED || k == POLICY_FORGETFUL) {
        start_scheduler(p);
        return p;
    }
    p->n_lanes = k == POLICY_SPREAD ? 1 : setup->n_adapters;
    p->lane = XNEW_ARRAY(wait_queue, (size_t)p->n_lanes + 1);
    p->item = XNEW_ARRAY(wait_item, (size_t)setup->n_requests + 1);
    p->n_output = XNEW_ARRAY(int, (size_t)setup->n_requests + 1);
    p->adapter = XNEW_ARRAY(int, (size_t)setup->n_gpus);
    return p;
}

void policy_free(policy *p)
{
    scheduler_free(p->s);
    for (int i = 0; i < p->n_lanes; i++)
        wait_queue_deinit(&p->lane[i]);
    free(p->prompt);
    free(p->lane);
    free(p->item);
    free(p->n_output);
    free(p->adapter);
    free(p);
}

static void wait_in_lane(policy *p, int request)
{
    p->item[request] = (wait_item){p->setup.request[request].arrival, (uint64_t)request, 0};
    wait_queue_put(&p->lane[p->kind == POLICY_SPREAD ? 0 : p->setup.request[request].what.adapter], &p->item[request]);
}

/* Returns whether GPU a is better than b for a request of this adapter. */
static bool is_better(const policy *p, int a, int b, int adapter)
{
    int x = sim_gpu_n_requests(p->setup.gpu[a]), y = sim_gpu_n_requests(p->setup.gpu[b]);
    if (p->kind == POLICY_SPREAD)
        return x < y;
    bool serves_a = x && p->adapter[a] == adapter, serves_b = y && p->adapter[b] == adapter;
    return serves_a != serves_b ? serves_a : x > y;
}

static int choose(const policy *p, int request)
{
    const bench_request *w = &p->setup.request[request].what;
    int best = -1;
    for (int g = 0; g < p->setup.n_gpus; g++) {
        const sim_gpu *gpu = p->setup.gpu[g];
        bool taken = p->kind == POLICY_DEDICATED && sim_gpu_n_requests(gpu) > 0 && p->adapter[g] != w->adapter;
        if (!taken && sim_gpu_has_room(gpu, w->prompt_len + p->n_output[request]) &&
            (best < 0 || is_better(p, g, best, w->adapter)))
            best = g;
    }
    return best;
}

/* Places the oldest request that is first in its lane and has a GPU; false if there is none. */
static bool serve_one(policy *p)
{
    int oldest = -1, gpu = -1;
    for (int i = 0; i < p->n_lanes; i++) {
        const wait_item *first = wait_queue_first(&p->lane[i]);
        if (!first || (oldest >= 0 && (int)first->id > oldest))
            continue;
        int g = choose(p, (int)first->id);
        if (g >= 0) {
            oldest = (int)first->id;
            gpu = g;
        }
    }
    if (oldest < 0)
        return false;
    int adapter = p->setup.request[oldest].what.adapter;
    wait_queue_remove(&p->lane[p->kind == POLICY_SPREAD ? 0 : adapter], &p->item[oldest]);
    p->adapter[gpu] = adapter;
    add_to_gpu(p, gpu, oldest, ++p->n_attempts, p->n_output[oldest]);
    return true;
}

void policy_arrive(policy *p, double now, int request)
{
    const sim_arrival *a = &p->setup.request[request];
    if (p->s) {
        for (int i = 0; i < a->what.prompt_len; i++)
            p->prompt[i] = sim_arrival_token(a, i);
        scheduler_submit(p->s, now, 0,
                         &(submission){.id = (uint64_t)request,
                                       .arrival = a->arrival,
                                       .token = p->prompt,
                                       .n_tokens = a->what.prompt_len,
                                       .n_prompt = a->what.prompt_len,
                                       .max_tokens = a->what.gen_len});
        return;
    }
    wait_in_lane(p, request);
    while (serve_one(p))
        ;
}

void policy_report(policy *p, double now, int gpu, const gpu_report *r)
{
    if (p->s) {
        scheduler_report(p->s, now, gpu, r);
        return;
    }
    for (int i = 0; i < r->n_tokens; i++)
        p->n_output[r->tokens[i].id]++;
    for (int i = 0; i < r->n_ends; i++)
        if (r->ends[i].why == END_EVICTED) {
            p->n_evicted++;
            wait_in_lane(p, (int)r->ends[i].id);
        }
    while (r->n_ends && serve_one(p))
        ;
}

double policy_tick(policy *p, double now)
{
    return p->s ? scheduler_tick(p->s, now) : 1e9;
}

uint64_t policy_moved(const policy *p)
{
    return p->s ? scheduler_get_stats(p->s).moved : 0;
}

uint64_t policy_evicted(const policy *p)
{
    return p->s ? scheduler_get_stats(p->s).evicted : p->n_evicted;
}
