/* consolidate.c - see consolidate.h */
#include "scheduler/consolidate.h"

#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/placement.h"

/* Returns whether moving all requests off a GPU is worth it: the prefill that other GPUs must repeat takes no longer
 * than this GPU would go on running for its last request, and none of its requests was moved a moment ago or has all
 * its tokens. */
static bool is_worth_emptying(const scheduler *s, const gpu *g, double now)
{
    double tokens = 0;
    int longest = 0;
    for (int i = 0; i < g->n_running; i++) {
        const request *r = g->running[i].r;
        int left = request_most(r) - request_n_told(r);
        if (left == 0 || now - r->placed_again < s->opt.move_again_after)
            return false;
        tokens += r->what.n_tokens;
        longest = left > longest ? left : longest;
    }
    return tokens / s->opt.prefill_rate <= longest * s->opt.step_time;
}

/* Reserves a place for a request on g, or gives it back (sign -1), in the books alone: nothing is sent. */
static void promise(scheduler *s, gpu *g, const request *r, int sign)
{
    g->n_promised += sign;
    g->n_promised_suspects += sign * r->suspect;
    g->pages_promised += sign * gpu_pages_for(g, r);
    gpu_update_order(g, &s->order);
}

/* Plans where each of g's requests would go, to[n_running]: all to GPUs with larger working sets. False when some have
 * no room there. Nothing is changed in either case. */
static bool plan(scheduler *s, gpu *g, gpu **to)
{
    const gpu_node here = g->order;
    int n = 0;
    g->closed = true;
    gpu_update_order(g, &s->order);
    for (; n < g->n_running; n++) {
        const request *r = g->running[n].r;
        to[n] = placement_find_room(s, request_room(r), r);
        if (!to[n] || !gpu_order_before(&here, &to[n]->order))
            break;
        promise(s, to[n], r, 1);
    }
    bool fits = n == g->n_running;
    while (n-- > 0)
        promise(s, to[n], g->running[n].r, -1);
    g->closed = false;
    gpu_update_order(g, &s->order);
    return fits;
}

static void empty(scheduler *s, gpu *g, double now)
{
    int n = g->n_running;
    gpu **to = XNEW_ARRAY(gpu *, (size_t)n);
    if (plan(s, g, to))
        for (int i = 0; i < n; i++) {
            request *r = g->running[0].r;
            placement_take_off(s, r, true);
            placement_put_on(s, now, r, to[i]);
            s->stats.moved++;
        }
    placement_update_order(s);
    free(to);
}

static int by_order(const void *a, const void *b)
{
    const gpu *x = *(gpu *const *)a, *y = *(gpu *const *)b;
    return gpu_order_before(&x->order, &y->order) ? -1 : 1;
}

void consolidate(scheduler *s, double now)
{
    gpu **light = XNEW_ARRAY(gpu *, s->n_gpus + 1);
    size_t n = 0;
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i] && gpu_is_light(s->gpus[i], s->opt.light_share))
            light[n++] = s->gpus[i];
    qsort(light, n, sizeof *light, by_order);
    for (size_t i = 0; i < n; i++)
        if (gpu_is_light(light[i], s->opt.light_share) && is_worth_emptying(s, light[i], now))
            empty(s, light[i], now);
    free(light);
}
