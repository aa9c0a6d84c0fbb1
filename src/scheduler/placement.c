/* placement.c - see placement.h */
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
    __builtin_prefetch(&g->order, 1); /* for placement_settle() */
    s->touched = xgrow(s->touched, &s->touched_cap, s->n_touched + 1, sizeof *s->touched);
    s->touched[s->n_touched++] = g;
}

void placement_settle(scheduler *s)
{
    while (s->n_touched > 0)
        gpu_settle(s->touched[--s->n_touched], &s->order);
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

static void join(scheduler *s, request *r, wait_queue *line)
{
    if (line == &r->tenant->line)
        shares_put(&s->newcomers, r->tenant, &r->order);
    else
        wait_queue_put(line, &r->order);
    r->line = line;
}

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

static void step_aside(scheduler *s, double now, request *r)
{
    leave_line(s, r);
    TAILQ_INSERT_TAIL(&s->aside, r, beside);
    s->n_aside += !r->on;
    r->aside = true;
    r->aside_since = now;
}

/* The line for a request where it is. */
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

/* It is given to a GPU for the first time: its turn. Turns are at least a microsecond apart, which is what workers tell
 * apart. */
static void take_on(scheduler *s, double now, request *r)
{
    s->last_turn = now > s->last_turn + 1e-6 ? now : s->last_turn + 1e-6;
    r->what.arrival = r->order.arrival = s->last_turn;
    r->order.priority = 0;
    r->taken_on = true;
    shares_charge(&s->newcomers, r->tenant, (uint64_t)r->what.n_prompt * SHARES_PROMPT);
}

/* marks: of r. */
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

void placement_call_back(scheduler *s)
{
    for (request *r = TAILQ_FIRST(&s->aside), *next; r; r = next) {
        next = TAILQ_NEXT(r, beside);
        if (placement_is_too_large(s, r))
            continue;
        leave_line(s, r);
        join(s, r, line_of(s, r));
    }
}

/* The GPU with the fewest requests that could hold this one. */
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

static void reserve(scheduler *s, const request *r)
{
    gpu *g = s->reserved = fewest_running(s, r);
    if (!g)
        return;
    g->reserved = true;
    for (int i = 0; i < g->n_running; i++) {
        g->running[i].r->was_confined = false; /* it has been there among others since */
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

/* Those who must be alone, oldest first. */
static void serve_confined(scheduler *s, double now)
{
    for (request *r; placement_settle(s), (r = request_of(wait_queue_first(&s->confined)));) {
        gpu *g = placement_find_room(s, ROOM_ALONE, r);
        if (g) {
            placement_put_on(s, now, r, g);
        } else if (placement_is_too_large(s, r)) {
            step_aside(s, now, r);
        } else {
            if (!s->reserved)
                reserve(s, r);
            return;
        }
    }
    if (s->reserved)
        placement_unreserve(s);
}

/* Whoever has the first turn of the lines that are not stuck, else the next newcomer. */
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

/* Whether a request may go to g instead of the fullest that has room: as long as it is not lightly loaded, nobody wants
 * it to run empty. */
static bool is_as_good(const scheduler *s, const gpu *g, const gpu *fullest)
{
    int n = g->order.n_running;
    return n == fullest->order.n_running || (n > 0 && n >= s->opt.light_share * g->info.max_batch);
}

/* The GPU for a request: of those as good as the fullest that has room, the one that was last given its longest known
 * beginning. NULL: none has room; else marks are its own. */
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

/* Everybody else. */
static void serve_lines(scheduler *s, double now)
{
    bool suspects = true, leaving = true;
    for (request *r; placement_settle(s), (r = first_in_line(s, suspects, leaving));) {
        prefix_marks marks;
        gpu *g = choose(s, r, &marks);
        if (r->on && request_is_spent(r)) {
            placement_end(s, r, END_LENGTH, NULL); /* it is about to end where it is */
        } else if (g) {
            if (r->on) {
                s->stats.moved++;
                placement_take_off(s, r, true);
            }
            put_on(s, now, r, g, &marks);
            suspects = true; /* what one waits for may be more than before */
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

/* Whether the first of those who must be alone can be, now. */
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
    } while (can_be_alone(s)); /* the last to leave a reserved GPU has left */
}
