/* arrivals.c - see arrivals.h */
#include "sim/arrivals.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

/* Returns the time by which so many arrivals are expected: the inverse of the rate's integral, two parabolas. */
static double when_expected(double expected, double seconds, double all)
{
    if (expected <= all / 2)
        return seconds * sqrt(expected / (2 * all));
    return seconds * (1 - sqrt((all - expected) / (2 * all)));
}

/* Draws the first turns of conversations: a Poisson process, by inversion of its expected count. */
static sim_arrival *make_firsts(const arrivals_options *o, double peak, int *n)
{
    double all = o->seconds * peak / 2, expected = 0;
    sim_arrival *a = NULL;
    size_t cap = 0;
    *n = 0;
    for (uint64_t i = 0;; i++) {
        expected -= log(1 - rng_uniform(o->seed ^ 0x61727276, i));
        if (expected > all)
            break;
        a = xgrow(a, &cap, (size_t)*n + 1, sizeof *a);
        a[*n] = (sim_arrival){.arrival = when_expected(expected, o->seconds, all), .conversation = *n};
        (*n)++;
    }
    return a;
}

/* Returns the turn after `last`: it comes when the answer has been read, at READ_TIME seconds a token, and after a
 * pause, on average THINK_TIME seconds. */
static sim_arrival next_turn(const arrivals_options *o, const sim_arrival *last, uint64_t turn)
{
    static const double READ_TIME = 0.02, THINK_TIME = 30;
    uint64_t key = (uint64_t)last->conversation * (uint64_t)o->turns + turn;
    sim_arrival a = *last;
    bench_request drawn;
    workload_make(WORKLOAD_NONE, 1, 0, 0, (o->max_len - SYSTEM_PROMPT) / o->turns, rng_u64(o->seed ^ 0x7475726e, key),
                  &drawn);
    a.n_known = turn == 0 ? SYSTEM_PROMPT : last->what.prompt_len + last->what.gen_len;
    a.what.prompt_len = a.n_known + drawn.prompt_len;
    a.what.gen_len = drawn.gen_len;
    if (turn > 0)
        a.arrival += last->what.gen_len * READ_TIME - log(1 - rng_uniform(o->seed ^ 0x74686e6b, key)) * THINK_TIME;
    return a;
}

static int by_time(const void *a, const void *b)
{
    const sim_arrival *x = a, *y = b;
    if (x->arrival != y->arrival)
        return x->arrival < y->arrival ? -1 : 1;
    return x->conversation - y->conversation;
}

/* Makes all turns of these conversations, by time. */
static sim_arrival *make_turns(const arrivals_options *o, const sim_arrival *first, int *n)
{
    int n_firsts = *n;
    sim_arrival *all = XNEW_ARRAY(sim_arrival, (size_t)n_firsts * (size_t)o->turns + 1);
    *n = 0;
    for (int i = 0; i < n_firsts; i++) {
        sim_arrival last = first[i];
        for (int turn = 0; turn < o->turns; turn++)
            all[(*n)++] = last = next_turn(o, &last, (uint64_t)turn);
    }
    qsort(all, (size_t)*n, sizeof *all, by_time);
    return all;
}

sim_arrival *arrivals_make(const arrivals_options *o, int *n, int *n_adapters)
{
    sim_arrival *a = make_firsts(o, o->turns ? o->peak / o->turns : o->peak, n);
    bench_request *what = XNEW_ARRAY(bench_request, (size_t)*n + 1);
    *n_adapters = *n ? workload_make(WORKLOAD_SKEWED, *n, 0, 0, o->max_len, o->seed, what) : 0;
    for (int i = 0; i < *n; i++)
        a[i].what = what[i];
    free(what);
    if (!o->turns)
        return a;
    sim_arrival *turns = make_turns(o, a, n);
    free(a);
    return turns;
}

int sim_arrival_token(const sim_arrival *a, int i)
{
    bool common = a->n_known > 0 && i < SYSTEM_PROMPT;
    return (int)(rng_u64(common ? (uint64_t)a->what.adapter : ~(uint64_t)a->conversation, (uint64_t)i) & 0xffff);
}
