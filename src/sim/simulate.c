/* simulate.c - see simulate.h */
#include "sim/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/median.h"
#include "engine/kv_pool.h"
#include "scheduler/wait_queue.h"
#include "sim/cluster_series.h"
#include "sim/sim_policy.h"

/* One policy's run. */
typedef struct {
    policy *p;
    sim_gpu **gpu; /* [gpus] */
    sim_wakeups wakeups;
    wait_item *step_end;        /* [gpus] */
    wait_queue events;          /* steps that run, by when they end */
    double *since;              /* [gpus] when the step that runs began */
    const sim_arrival *request; /* [n_requests] */
    int n_requests, n_arrived, n_ended;
    double *first_token; /* [n_requests] seconds from arrival, or 0 */
    cluster_series series;
    double busy, batch_time; /* GPU-seconds, and requests times GPU-seconds */
    double now;
    uint64_t n_tokens;
} simulation;

typedef struct {
    double mean_batch, gpu_hours, seconds, tokens_per_s, wait_mean, wait_p99, cached;
    uint64_t moved, evicted;
} outcome_summary;

simulate_options simulate_options_default(void)
{
    return (simulate_options){
        .gpus = 16, .batch = 32, .pages = 2816, .page_len = KV_PAGE_LEN, .max_len = 2048, .hours = 1};
}

/* Returns the requests a second, of the paper's lengths, that GPUs serve with full batches of different adapters. */
static double rate_served(const simulate_options *o, const step_model *m)
{
    double tokens = o->max_len / 2.0 / (o->turns ? o->turns : 1), context = o->max_len / 3.0;
    return o->gpus * o->batch / step_model_time(m, o->batch, o->batch, o->batch * context, 0) / tokens;
}

static double start_of(const simulation *s, int bin)
{
    return bin * s->series.seconds_per_bin;
}

/* Counts a step of a GPU with this batch from `from` to `to`. */
static void count_batch(simulation *s, int gpu, double from, double to, int batch)
{
    cluster_series *c = &s->series;
    s->busy += to - from;
    s->batch_time += (to - from) * batch;
    for (int bin = (int)(from / c->seconds_per_bin); bin < c->n_bins && start_of(s, bin) < to; bin++) {
        double a = fmax(from, start_of(s, bin)), b = fmin(to, start_of(s, bin + 1));
        c->batch[(size_t)gpu * (size_t)c->n_bins + (size_t)bin] += (b - a) * batch / c->seconds_per_bin;
    }
}

static void count_in_bin(simulation *s, double *series, double n)
{
    int bin = (int)(s->now / s->series.seconds_per_bin);
    if (bin < s->series.n_bins)
        series[bin] += n / s->series.seconds_per_bin;
}

static void start_step(simulation *s, int g)
{
    double end = sim_gpu_start(s->gpu[g], s->now);
    if (end < 0)
        return;
    s->since[g] = s->now;
    s->step_end[g] = (wait_item){end, (uint64_t)g, 0};
    wait_queue_put(&s->events, &s->step_end[g]);
}

static void start_idle(simulation *s)
{
    for (int i = 0; i < s->wakeups.n; i++)
        if (!sim_gpu_is_running(s->gpu[s->wakeups.gpu[i]]))
            start_step(s, s->wakeups.gpu[i]);
    s->wakeups.n = 0;
}

static void end_step(simulation *s, int g)
{
    wait_queue_remove(&s->events, &s->step_end[g]);
    count_batch(s, g, s->since[g], s->now, sim_gpu_batch(s->gpu[g]));
    const gpu_report *r = sim_gpu_end(s->gpu[g]);
    count_in_bin(s, s->series.tokens, r->n_tokens);
    s->n_tokens += (uint64_t)r->n_tokens;
    for (int i = 0; i < r->n_tokens; i++)
        if (r->tokens[i].index == 0)
            s->first_token[r->tokens[i].id] = s->now - s->request[r->tokens[i].id].arrival;
    for (int i = 0; i < r->n_ends; i++)
        s->n_ended += r->ends[i].why != END_EVICTED;
    policy_report(s->p, s->now, g, r);
    start_step(s, g);
}

/* Advances to what happens next: the end of a step, an arrival, or the policy's tick. */
static void advance(simulation *s, double *next_tick)
{
    const wait_item *step = wait_queue_first(&s->events);
    double step_at = step ? step->arrival : HUGE_VAL;
    double arrival_at = s->n_arrived < s->n_requests ? s->request[s->n_arrived].arrival : HUGE_VAL;
    if (*next_tick <= step_at && *next_tick <= arrival_at) {
        s->now = *next_tick;
        *next_tick = s->now + fmax(policy_tick(s->p, s->now), 1e-3);
    } else if (arrival_at <= step_at) {
        s->now = arrival_at;
        count_in_bin(s, s->series.requests, 1);
        policy_arrive(s->p, s->now, s->n_arrived++);
    } else {
        s->now = step_at;
        end_step(s, (int)step->id);
    }
    start_idle(s);
}

static void show_progress(const simulation *s, const char *name, double *shown)
{
    if (!isatty(STDERR_FILENO) || clock_now() - *shown < 0.2)
        return;
    *shown = clock_now();
    fprintf(stderr, "\r%-10s %5.1f min, %d of %d requests done ", name, s->now / 60, s->n_ended, s->n_requests);
}

static void run_policy(simulation *s, const char *name)
{
    double next_tick = 0, shown = 0;
    for (uint64_t n = 0; s->n_ended < s->n_requests; n++) {
        advance(s, &next_tick);
        if (n % 1024 == 0)
            show_progress(s, name, &shown);
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
}

static outcome_summary summarise(simulation *s)
{
    double sum = 0;
    for (int i = 0; i < s->n_requests; i++)
        sum += s->first_token[i];
    sort_times(s->first_token, (size_t)s->n_requests);
    int n = s->n_requests;
    return (outcome_summary){.mean_batch = s->busy > 0 ? s->batch_time / s->busy : 0,
                             .gpu_hours = s->busy / 3600,
                             .seconds = s->now,
                             .tokens_per_s = s->now > 0 ? (double)s->n_tokens / s->now : 0,
                             .wait_mean = n ? sum / n : 0,
                             .wait_p99 = n ? s->first_token[(n - 1) * 99 / 100] : 0,
                             .moved = policy_moved(s->p),
                             .evicted = policy_evicted(s->p)};
}

static outcome_summary simulate_policy(const simulate_options *o, const step_model *m, policy_kind kind,
                                       const sim_arrival *a, int n, int n_adapters, cluster_series *series)
{
    simulation s = {.request = a, .n_requests = n};
    size_t gpus = (size_t)o->gpus;
    s.gpu = XNEW_ARRAY(sim_gpu *, gpus);
    s.step_end = XNEW_ARRAY(wait_item, gpus);
    s.since = XNEW_ARRAY(double, gpus);
    s.first_token = XNEW_ARRAY(double, (size_t)n + 1);
    s.series = cluster_series_new(o->gpus, o->batch, o->hours * 3600);
    s.wakeups.gpu = XNEW_ARRAY(int, gpus);
    for (int g = 0; g < o->gpus; g++)
        s.gpu[g] = sim_gpu_new(&(sim_gpu_setup){g, o->batch, o->pages, o->page_len, n_adapters, m, &s.wakeups});
    policy_setup setup = {.n_gpus = o->gpus,
                          .n_requests = n,
                          .n_adapters = n_adapters,
                          .gpu = s.gpu,
                          .request = a,
                          .max_batch = o->batch,
                          .n_pages = o->pages,
                          .page_len = o->page_len,
                          .max_tokens = o->max_len,
                          .scheduling = scheduler_options_default()};
    setup.has_cache = o->turns > 0;
    setup.scheduling.max_queue = n;
    setup.scheduling.prefill_rate = 1 / m->prefill_token_time;
    s.p = policy_new(kind, &setup);
    run_policy(&s, policy_name(kind));
    outcome_summary result = summarise(&s);
    for (int g = 0; g < o->gpus; g++)
        result.cached += (double)sim_gpu_n_cached(s.gpu[g]);
    *series = s.series;
    policy_free(s.p);
    for (int g = 0; g < o->gpus; g++)
        sim_gpu_free(s.gpu[g]);
    wait_queue_deinit(&s.events);
    free(s.gpu);
    free(s.wakeups.gpu);
    free(s.step_end);
    free(s.since);
    free(s.first_token);
    return result;
}

static int simulate_policies(const simulate_options *o, const step_model *m, double peak, err *e)
{
    int n, n_adapters, status = 0;
    arrivals_options of = {
        .seconds = o->hours * 3600.0, .peak = peak, .max_len = o->max_len, .turns = o->turns, .seed = o->seed};
    sim_arrival *a = arrivals_make(&of, &n, &n_adapters);
    printf("%d GPUs, batch limit %d, %d pages of %d tokens; %.3g h, peak %.3g requests/s: %d requests of %d adapters\n",
           o->gpus, o->batch, o->pages, o->page_len, o->hours, peak, n, n_adapters);
    printf("steps: %s\n\n%-10s %10s %10s %9s %12s %15s %12s %8s %8s%s\n", m->about, "policy", "mean batch", "GPU-hours",
           "done in", "tokens/s", "1st token mean", "and p99", "moved", "evicted", o->turns ? "  known cached" : "");
    fflush(stdout);
    double known = 0; /* tokens of prompts that one unlimited cache for all GPUs would have */
    for (int i = 0; i < n; i++)
        known += a[i].n_known / o->page_len * o->page_len;
    for (int k = 0; k < N_POLICIES && status == 0 && !(o->only_packed && k > POLICY_FORGETFUL); k++) {
        cluster_series series;
        if (k == POLICY_FORGETFUL && !o->turns)
            continue;
        outcome_summary r = simulate_policy(o, m, (policy_kind)k, a, n, n_adapters, &series);
        printf("%-10s %10.1f %10.3f %7.1f m %12.0f %13.3f s %10.3f s %8llu %8llu", policy_name((policy_kind)k),
               r.mean_batch, r.gpu_hours, r.seconds / 60, r.tokens_per_s, r.wait_mean, r.wait_p99,
               (unsigned long long)r.moved, (unsigned long long)r.evicted);
        if (o->turns)
            printf(" %12.1f %%", 100 * r.cached / known);
        printf("\n");
        fflush(stdout);
        if (k == POLICY_PACKED && o->csv)
            status = cluster_series_write_csv(&series, o->csv, e);
        cluster_series_free(&series);
    }
    free(a);
    return status;
}

int simulate_run(const simulate_options *o, err *e)
{
    step_model m;
    if (step_model_load(&m, o->steps, e))
        return err_wrap(e, "measured step times (--steps)");
    int longest = (o->max_len + o->page_len) / o->page_len;
    if (o->pages < longest)
        return err_set(e, "--pages %d of %d tokens do not hold one request of %d tokens; at least %d do", o->pages,
                       o->page_len, o->max_len, longest);
    double peak = o->rate > 0 ? o->rate : 0.9 * rate_served(o, &m);
    return simulate_policies(o, &m, peak, e);
}
