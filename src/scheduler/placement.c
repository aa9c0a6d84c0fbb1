/* placement.c - see placement.h
 *
 * From top to bottom: the order of GPUs, which is brought up to date lazily; lines, which requests join and leave;
 * requests put on GPUs and taken off; ends; GPUs that are reserved, closed and opened; and at the end the scheduling
 * itself, placement_fill(). */
#include "scheduler/placement.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"

void placement_touch(scheduler *s, gpu *g)
{
    if (g->touched)
        return;
    g->touched = true;
    __builtin_prefetch(&g->order, 1); /* placement_update_order() is about to write it */
    s->touched = xgrow(s->touched, &s->touched_cap, s->n_touched + 1, sizeof *s->touched);
    s->touched[s->n_touched++] = g;
}

void placement_update_order(scheduler *s)
{
    while (s->n_touched > 0)
        gpu_update_order(s->touched[--s->n_touched], &s->order);
}

static void tell_gpu(scheduler *s, command_kind kind, const gpu *g, const request *r)
{
    s->sink(s->ctx, &(command){.kind = kind,
                               .id = r->what.id,
                               .gpu = g->number,
                               .attempt = r->attempt,
                               .what = kind == COMMAND_ADD ? &r->what : NULL});
}

void placement_set_late(scheduler *s, request *r, bool may_be)
{
    if (may_be == r->may_be_late)
        return;
    if (may_be)
        TAILQ_INSERT_TAIL(&s->may_be_late, r, later);
    else
        TAILQ_REMOVE(&s->may_be_late, r, later);
    r->may_be_late = may_be;
}

/* Puts a request at its place in a line; it is in none. */
static void join(scheduler *s, request *r, wait_queue *line)
{
    if (line == &r->tenant->line)
        shares_put(&s->newcomers, r->tenant, &r->order);
    else
        wait_queue_put(line, &r->order);
    r->line = line;
}

/* Takes a request out of the line it is in, or from those aside, if it is in any. */
static void leave_line(scheduler *s, request *r)
{
    if (r->line == &r->tenant->line)
        shares_remove(&s->newcomers, r->tenant, &r->order);
    else if (r->line)
        wait_queue_remove(r->line, &r->order);
    r->line = NULL;
    if (!r->aside)
        return;
    TAILQ_REMOVE(&s->aside, r, beside);
    s->n_aside -= !r->on;
    r->aside = false;
}

/* Moves a request from its line to those that no open GPU could hold: there it holds up nobody. */
static void step_aside(scheduler *s, double now, request *r)
{
    leave_line(s, r);
    TAILQ_INSERT_TAIL(&s->aside, r, beside);
    s->n_aside += !r->on;
    r->aside = true;
    r->aside_since = now;
}

/* Returns the line that a request belongs in: that of those leaving if it is on a GPU; else newcomers, confined
 * requests, suspects and all others have a line each. */
static wait_queue *line_of(scheduler *s, const request *r)
{
    if (r->on)
        return &s->leaving;
    if (!r->taken_on)
        return &r->tenant->line;
    return r->confined ? &s->confined : r->suspect ? &s->suspects : &s->queue;
}

int placement_n_waiting(const scheduler *s)
{
    return (int)(s->newcomers.n_requests + s->queue.n + s->suspects.n + s->confined.n) + s->n_aside;
}

/* Gives a newcomer its turn, the time by which it is ordered from now on, and charges its tenant for the prompt. No two
 * turns are equal: they are at least a microsecond apart, the resolution in which workers are told. */
static void take_on(scheduler *s, double now, request *r)
{
    s->last_turn = now > s->last_turn + 1e-6 ? now : s->last_turn + 1e-6;
    r->what.arrival = r->order.arrival = s->last_turn;
    r->order.priority = 0;
    r->taken_on = true;
    shares_charge(&s->newcomers, r->tenant, (uint64_t)r->what.n_prompt * SHARES_PROMPT);
}

/* Gives a request to a GPU as a new attempt, with the command; marks: the request's own. */
static void put_on(scheduler *s, double now, request *r, gpu *g, const prefix_marks *marks)
{
    leave_line(s, r);
    placement_set_late(s, r, false);
    if (r->taken_on)
        r->placed_again = now;
    else
        take_on(s, now, r);
    r->was_confined = false;
    r->attempt = ++s->n_attempts;
    prefixes_add(s->prefixes, marks, g);
    gpu_add(g, r);
    placement_touch(s, g);
    s->n_running++;
    tell_gpu(s, COMMAND_ADD, g, r);
}

void placement_put_on(scheduler *s, double now, request *r, gpu *g)
{
    prefix_marks marks;
    prefixes_mark(s->prefixes, r, &marks);
    put_on(s, now, r, g, &marks);
}

void placement_take_off(scheduler *s, request *r, bool tell)
{
    gpu *g = r->on;
    leave_line(s, r);
    if (tell)
        tell_gpu(s, COMMAND_CANCEL, g, r);
    gpu_remove(g, r, tell);
    placement_touch(s, g);
    s->n_running--;
}

void placement_drop(scheduler *s, request *r)
{
    if (r->on)
        placement_take_off(s, r, true);
    leave_line(s, r);
    placement_set_late(s, r, false);
    id_map_remove(s->requests, r->what.id);
    TAILQ_REMOVE(&s->frontends[r->frontend]->requests, r, siblings);
    request_free(&s->memory, r);
}

/* Returns the statistic that counts an end. */
static uint64_t *counter_of(scheduler *s, end_reason why)
{
    switch (why) {
    case END_STOP:
    case END_LENGTH: return &s->stats.finished;
    case END_QUEUE_FULL:
    case END_TOO_LATE: return &s->stats.refused;
    case END_FAILED:
    case END_TOO_LARGE:
    case END_KILLS_WORKERS: return &s->stats.failed;
    case END_EVICTED: break; /* ends an attempt, no request */
    }
    CHECK(!"the end of a request");
    return NULL;
}

static void tell_end(scheduler *s, const command *c)
{
    (*counter_of(s, c->why))++;
    s->sink(s->ctx, c);
}

void placement_tell_end(scheduler *s, int frontend, uint64_t id, end_reason why, const char *message)
{
    tell_end(s, &(command){.kind = COMMAND_END, .id = id, .frontend = frontend, .why = why, .message = message});
}

void placement_fail(scheduler *s, request *r, const report_end *e)
{
    char message[512];
    snprintf(message, sizeof message, "%s", e->message ? e->message : "the worker failed it without saying why");
    tell_end(s, &(command){.kind = COMMAND_END,
                           .id = r->what.id,
                           .frontend = r->frontend,
                           .why = END_FAILED,
                           .message = message,
                           .retry_after = e->retry_after});
    placement_drop(s, r);
}

void placement_end(scheduler *s, request *r, end_reason why, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    if (fmt)
        vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (r->on)
        placement_take_off(s, r, true);
    placement_tell_end(s, r->frontend, r->what.id, why, fmt ? message : NULL);
    placement_drop(s, r);
}

gpu *placement_find_room(const scheduler *s, room_kind kind, const request *r)
{
    return (gpu *)gpu_order_find(&s->order, kind, (int64_t)r->what.n_tokens + 1);
}

bool placement_is_too_large(const scheduler *s, const request *r)
{
    return s->n_open > 0 && (int64_t)r->what.n_tokens + 1 > s->capacity;
}

bool placement_is_hopeless(const scheduler *s, const request *r)
{
    return placement_is_too_large(s, r) && !r->taken_on && (int64_t)r->what.n_tokens + 1 > s->most_capacity;
}

void placement_end_too_large(scheduler *s, request *r)
{
    placement_end(s, r, END_TOO_LARGE,
                  "%d tokens and one more do not fit: the largest open GPU holds %lld of a request", r->what.n_tokens,
                  (long long)s->capacity);
}

void placement_enqueue(scheduler *s, request *r)
{
    if (request_is_spent(r))
        placement_end(s, r, END_LENGTH, NULL);
    else
        join(s, r, line_of(s, r));
}

void placement_requeue_aside(scheduler *s)
{
    for (request *r = TAILQ_FIRST(&s->aside), *next; r; r = next) {
        next = TAILQ_NEXT(r, beside);
        if (placement_is_too_large(s, r))
            continue;
        leave_line(s, r);
        join(s, r, line_of(s, r));
    }
}

/* Returns the open GPU with the smallest working set that could hold this request if it were empty, or NULL. */
static gpu *fewest_running(const scheduler *s, const request *r)
{
    gpu *best = NULL;
    for (size_t i = 0; i < s->n_gpus; i++) {
        gpu *g = s->gpus[i];
        bool fits = g && gpu_is_open(g) && gpu_capacity(g) > r->what.n_tokens;
        if (fits && (!best || gpu_order_before(&g->order, &best->order)))
            best = g;
    }
    return best;
}

/* Reserves a GPU for a confined request: nobody else is given to it, and those that run there are to leave. */
static void reserve(scheduler *s, const request *r)
{
    gpu *g = s->reserved = fewest_running(s, r);
    if (!g)
        return;
    g->reserved = true;
    for (int i = 0; i < g->n_running; i++) {
        g->running[i].r->was_confined = false; /* it has shared the GPU with others since */
        if (!g->running[i].r->confined)
            join(s, g->running[i].r, &s->leaving);
    }
    placement_touch(s, g);
}

void placement_unreserve(scheduler *s)
{
    gpu *g = s->reserved;
    s->reserved = NULL;
    g->reserved = false;
    for (int i = 0; i < g->n_running && gpu_is_open(g); i++)
        leave_line(s, g->running[i].r);
    placement_touch(s, g);
}

void placement_close(scheduler *s, gpu *g)
{
    if (s->reserved == g)
        placement_unreserve(s);
    for (int i = 0; i < g->n_running; i++)
        join(s, g->running[i].r, &s->leaving);
    placement_touch(s, g);
}

void placement_open(scheduler *s, gpu *g)
{
    for (int i = 0; i < g->n_running; i++)
        leave_line(s, g->running[i].r);
    placement_touch(s, g);
}

void placement_release(scheduler *s, gpu *g)
{
    request *r = g->n_running == 1 ? g->running[0].r : NULL;
    if (!r || !r->was_confined || s->confined.n == 0)
        return;
    placement_take_off(s, r, true);
    placement_enqueue(s, r);
}

/* Places confined requests, each on an empty GPU of its own, in order of their turns. When one has to wait for an empty
 * GPU, a GPU is reserved for it, and those behind it wait, too. */
static void serve_confined(scheduler *s, double now)
{
    for (request *r; placement_update_order(s), (r = request_of(wait_queue_first(&s->confined)));) {
        gpu *g = placement_find_room(s, ROOM_ALONE, r);
        if (g) {
            placement_put_on(s, now, r, g);
        } else if (placement_is_too_large(s, r)) {
            step_aside(s, now, r);
        } else {
            if (s->reserved && gpu_capacity(s->reserved) <= r->what.n_tokens)
                placement_unreserve(s); /* it was for one that came to stand behind r */
            if (!s->reserved)
                reserve(s, r);
            return;
        }
    }
    if (s->reserved)
        placement_unreserve(s);
}

/* Returns the next request to be placed: of the queue, the suspects and those leaving a GPU, the one with the earliest
 * turn; if there is none, the next newcomer by its tenant's share. suspects, leaving: whether that line is looked at;
 * false when its first request was found to have no room yet. */
static request *first_in_line(scheduler *s, bool suspects, bool leaving)
{
    wait_item *first = wait_queue_first(&s->queue);
    wait_item *other[2] = {suspects ? wait_queue_first(&s->suspects) : NULL,
                           leaving ? wait_queue_first(&s->leaving) : NULL};
    for (int i = 0; i < 2; i++)
        if (other[i] && (!first || wait_before(other[i], first)))
            first = other[i];
    return request_of(first ? first : shares_first(&s->newcomers));
}

/* Returns whether a request may go to g instead of the fullest GPU that has room. It may unless g is lightly loaded:
 * such GPUs are left to run empty, so that they can be given back. */
static bool is_as_good(const scheduler *s, const gpu *g, const gpu *fullest)
{
    int n = g->order.n_running;
    return n == fullest->order.n_running || (n > 0 && n >= s->opt.light_share * g->info.max_batch);
}

/* Returns the GPU for a request, or NULL if none has room: the one that was last given a request with the longest
 * prefix in common, since its cache may have that prefix, if it is as good as the fullest GPU that has room; else the
 * fullest. Sets *marks to the request's own unless NULL is returned. */
static gpu *choose(const scheduler *s, const request *r, prefix_marks *marks)
{
    gpu *fullest = placement_find_room(s, request_room(r), r);
    uint32_t life;
    if (!fullest)
        return NULL;
    prefixes_mark(s->prefixes, r, marks);
    for (int n = marks->n; n > 0; n--) {
        int number = prefixes_find(s->prefixes, marks->mark[n - 1], &life);
        gpu *g = number >= 0 ? s->gpus[number] : NULL;
        if (g && g->life == life && g->order.room[request_room(r)] > r->what.n_tokens && is_as_good(s, g, fullest))
            return g;
    }
    return fullest;
}

/* Places all other requests, in the order of first_in_line(), until the first has to wait (head-of-line blocking: later
 * requests must not overtake it for ever). Only three do not hold up those behind them: a request that is to leave its
 * GPU, where it still runs; a suspect that would have room if it were none; one that no open GPU could hold. */
static void serve_lines(scheduler *s, double now)
{
    bool suspects = true, leaving = true;
    for (request *r; placement_update_order(s), (r = first_in_line(s, suspects, leaving));) {
        prefix_marks marks;
        gpu *g = choose(s, r, &marks);
        if (r->on && request_is_spent(r)) {
            placement_end(s, r, END_LENGTH, NULL); /* it has all its tokens: only its end has not been reported */
        } else if (g) {
            if (r->on) {
                s->stats.moved++;
                placement_take_off(s, r, true);
            }
            put_on(s, now, r, g, &marks);
            suspects = true; /* the first suspect may be another one now, with room */
        } else if (placement_is_hopeless(s, r)) {
            placement_end_too_large(s, r);
        } else if (placement_is_too_large(s, r)) {
            step_aside(s, now, r);
        } else if (r->on) {
            leaving = false;
        } else if (r->suspect && placement_find_room(s, ROOM_ANY, r)) {
            suspects = false;
        } else {
            return;
        }
    }
}

/* Returns whether there is an empty GPU for the first confined request. */
static bool can_be_alone(const scheduler *s)
{
    const request *r = request_of(wait_queue_first(&s->confined));
    return r && placement_find_room(s, ROOM_ALONE, r);
}

void placement_fill(scheduler *s, double now)
{
    do {
        serve_confined(s, now);
        serve_lines(s, now);
    } while (can_be_alone(s)); /* serve_lines() has moved the last request off the reserved GPU */
}
