/* scheduler.c - see scheduler.h: events and queries
 *
 * Where requests wait and how they are placed is in placement.c, which every event ends with. Each event costs a few
 * walks down a tree or a heap, whatever the number of GPUs and requests; only changes of which GPUs are open,
 * reservations and consolidation look at all GPUs. */
#include "scheduler/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/consolidate.h"
#include "scheduler/killers.h"
#include "scheduler/placement.h"

#define LONG_WAIT 3600.0 /* seconds between ticks when nothing needs them */

scheduler_options scheduler_options_default(void)
{
    return (scheduler_options){.max_queue = 10000,
                               .max_wait = 0,
                               .max_no_gpu = 60,
                               .max_aside = 60,
                               .consolidate_every = 1,
                               .move_again_after = 30,
                               .light_share = 0.25,
                               .prefill_rate = 20000,
                               .step_time = 0.006,
                               .max_prefixes = 1 << 17};
}

scheduler *scheduler_new(const scheduler_options *o, command_sink *sink, void *ctx)
{
    scheduler *s = XNEW(scheduler);
    *s = (scheduler){.opt = *o,
                     .sink = sink,
                     .ctx = ctx,
                     .requests = id_map_new(),
                     .memory = {slab_new(sizeof(request)), slabs_new()},
                     .prefixes = prefixes_new(o->max_prefixes),
                     .none_since = -1};
    TAILQ_INIT(&s->may_be_late);
    TAILQ_INIT(&s->aside);
    return s;
}

/* Tells the tap, if there is one, of an event. */
#define TAP(s, event, ...)                               \
    do {                                                 \
        if ((s)->tap)                                    \
            (s)->tap->event((s)->tap->ctx, __VA_ARGS__); \
    } while (0)

static void tapped_sink(void *ctx, const command *c)
{
    scheduler *s = ctx;
    s->tap->command(s->tap->ctx, c);
    s->tapped_sink(s->tapped_ctx, c);
}

void scheduler_set_tap(scheduler *s, const scheduler_tap *tap)
{
    CHECK(!s->tap);
    s->tap = tap;
    s->tapped_sink = s->sink;
    s->tapped_ctx = s->ctx;
    s->sink = tapped_sink;
    s->ctx = s;
}

static gpu *gpu_at(const scheduler *s, int number)
{
    return number >= 0 && (size_t)number < s->n_gpus ? s->gpus[number] : NULL;
}

void scheduler_frontend_up(scheduler *s, int frontend)
{
    TAP(s, frontend_up, frontend);
    CHECK(frontend >= 0);
    s->frontends = xgrow(s->frontends, &s->frontends_cap, (size_t)frontend + 1, sizeof *s->frontends);
    while (s->n_frontends <= (size_t)frontend)
        s->frontends[s->n_frontends++] = NULL;
    CHECK(!s->frontends[frontend]);
    s->frontends[frontend] = XNEW(frontend_state);
    TAILQ_INIT(&s->frontends[frontend]->requests);
}

static frontend_state *frontend_at(scheduler *s, int number)
{
    CHECK(number >= 0 && (size_t)number < s->n_frontends && s->frontends[number]);
    return s->frontends[number];
}

void scheduler_frontend_gone(scheduler *s, double now, int frontend)
{
    TAP(s, frontend_gone, now, frontend);
    frontend_state *f = frontend_at(s, frontend);
    for (request *r; (r = TAILQ_FIRST(&f->requests)); s->stats.cancelled++)
        placement_drop(s, r);
    free(f);
    s->frontends[frontend] = NULL;
    placement_fill(s, now);
}

/* Returns what is wrong with a submission, or NULL. */
static const char *find_fault(const submission *r)
{
    if (r->n_prompt < 1 || r->n_tokens < r->n_prompt)
        return "a request needs a prompt of at least one token";
    if (r->max_tokens < 0 || r->max_tokens + (r->n_to_score > 0) < 1)
        return "max_tokens must be at least 1";
    if (r->n_to_score < 0 || r->n_to_score >= r->n_prompt || r->n_scored < 0 || r->n_scored > r->n_to_score ||
        (r->n_tokens > r->n_prompt && r->n_scored < r->n_to_score))
        return "it has more scored tokens than there are, or output before them";
    if (isnan(r->arrival))
        return "its arrival is not a number";
    return NULL;
}

/* Refuses a submission, and tells the frontend, if its id is there already, it makes no sense, or it has killed workers
 * before. Returns whether it did. */
static bool refuse(scheduler *s, double now, int frontend, const submission *what)
{
    request *same = id_map_get(s->requests, what->id);
    const char *fault = same ? "a request of this id is there already" : find_fault(what);
    if (!fault && killers_know(s, now, what)) {
        placement_tell_end(s, frontend, what->id, END_KILLS_WORKERS,
                           "this prompt ended several workers a short while ago");
        return true;
    }
    if (!fault)
        return false;
    placement_tell_end(s, frontend, what->id, END_FAILED, fault);
    if (same && same->frontend == frontend) {
        s->stats.cancelled++;
        placement_drop(s, same);
    }
    return true;
}

/* Returns whether the queue is full for this newcomer. A tenant that has no more than an equal part of it may enter a
 * full queue, so that no tenant shuts others out. At most twice max_queue wait. */
static bool is_one_too_many(const scheduler *s, const request *r)
{
    size_t n_waiting = (size_t)placement_n_waiting(s), others = n_waiting - s->newcomers.n_requests,
           most = (size_t)s->opt.max_queue;
    return n_waiting > most && r->tenant->line.n * s->newcomers.n_waiting + others > most;
}

void scheduler_submit(scheduler *s, double now, int frontend, const submission *what)
{
    TAP(s, submit, now, frontend, what);
    frontend_state *f = frontend_at(s, frontend);
    s->stats.submitted++;
    if (refuse(s, now, frontend, what)) {
        placement_fill(s, now);
        return;
    }
    request *r = request_new(&s->memory, what, shares_find(&s->newcomers, what->tenant, what->weight), frontend, now);
    bool taken_on = r->taken_on;
    id_map_put(s->requests, what->id, r);
    TAILQ_INSERT_TAIL(&f->requests, r, siblings);
    if (placement_is_hopeless(s, r) && !request_is_spent(r)) {
        placement_end_too_large(s, r);
        return;
    }
    placement_set_late(s, r, !taken_on);
    placement_enqueue(s, r);
    placement_fill(s, now);
    if (taken_on)
        return;
    r = id_map_get(s->requests, what->id);
    if (r && !r->on && is_one_too_many(s, r))
        placement_end(s, r, END_QUEUE_FULL, "%d requests are waiting already", placement_n_waiting(s) - 1);
}

void scheduler_cancel(scheduler *s, double now, int frontend, uint64_t id)
{
    TAP(s, cancel, now, frontend, id);
    frontend_at(s, frontend);
    request *r = id_map_get(s->requests, id);
    if (!r || r->frontend != frontend)
        return;
    s->stats.cancelled++;
    placement_drop(s, r);
    placement_fill(s, now);
}

/* Returns whether a GPU is up that neither drains nor is slow. */
static bool has_fast(const scheduler *s)
{
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i] && !s->gpus[i]->draining && !s->gpus[i]->slow)
            return true;
    return false;
}

/* Shuns slow GPUs as long as there are others. */
static void shun_slow(scheduler *s)
{
    bool others = has_fast(s);
    for (size_t i = 0; i < s->n_gpus; i++) {
        gpu *g = s->gpus[i];
        if (!g || g->draining || g->shunned == (g->slow && others))
            continue;
        if (!g->shunned)
            placement_close(s, g);
        g->shunned = !g->shunned;
        if (!g->shunned)
            placement_open(s, g);
    }
}

/* Finds out anew which GPUs are open: some came, went, started to drain, or changed their pace. */
static void count_open(scheduler *s, double now)
{
    shun_slow(s);
    s->n_open = 0;
    s->capacity = 0;
    for (size_t i = 0; i < s->n_gpus; i++) {
        const gpu *g = s->gpus[i];
        if (!g || !gpu_is_open(g))
            continue;
        s->n_open++;
        if (gpu_capacity(g) > s->capacity)
            s->capacity = gpu_capacity(g);
    }
    if (s->n_open > 0)
        s->none_since = -1;
    else if (s->none_since < 0)
        s->none_since = now;
    placement_requeue_aside(s);
}

static void suspect(request *r)
{
    r->confined = r->suspect || request_saw_too_many(r);
    r->suspect = true;
}

/* Notes that a worker died which had taken the request in. Returns whether it is now certain enough that the request
 * kills workers. */
static bool kills_workers(request *r, gpu_loss how, bool alone)
{
    death_count *n = &r->deaths[how];
    n->ever++;
    n->alone = alone ? n->alone + 1 : 0;
    suspect(r);
    return n->alone >= MOST_DEATHS[how].alone || (alone && n->ever > MOST_DEATHS[how].ever);
}

/* The same for runners: a link was lost while the request was on its way. */
static bool kills_runners(request *r)
{
    r->n_lost++;
    suspect(r);
    return r->n_lost >= MOST_LOST;
}

static void convict(scheduler *s, double now, request *r, const char *uuid, gpu_loss how)
{
    killers_add(s, now, &r->what);
    if (how != LOSS_LINK)
        placement_end(s, r, END_KILLS_WORKERS,
                      "%d workers in a row ended while they ran this request and nothing else, the last on GPU %s",
                      r->deaths[how].alone, uuid);
    else
        placement_end(
            s, r, END_KILLS_WORKERS,
            "%d links to runners in a row were lost while this request was on its way, the last to that of GPU %s",
            r->n_lost, uuid);
}

/* Puts the requests of a lost GPU back in line. Those that may be the cause become suspects: if a worker died, those
 * that it had taken in; if a link was lost, those on their way. */
static void abandon(scheduler *s, double now, gpu *g, gpu_loss how)
{
    /* Nobody came after it, not even to leave again. */
    bool alone = g->n_running == 1 && g->running[0].r->add == g->n_sent;
    while (g->n_running > 0) {
        request *r = g->running[0].r;
        bool blamed = (how != LOSS_LINK) == (r->add <= g->n_seen);
        placement_take_off(s, r, false);
        if (blamed && (how == LOSS_LINK ? kills_runners(r) : kills_workers(r, how, alone))) {
            convict(s, now, r, g->info.uuid, how);
            continue;
        }
        s->stats.recovered++;
        placement_enqueue(s, r);
    }
}

static void remove_gpu(scheduler *s, double now, int number, gpu_loss how)
{
    gpu *g = s->gpus[number];
    if (s->reserved == g)
        placement_unreserve(s);
    abandon(s, now, g, how);
    placement_update_order(s);
    gpu_order_remove(&s->order, &g->order);
    gpu_free(g);
    s->gpus[number] = NULL;
}

/* Ranks a new GPU above those of lower uuid and below the others. */
static void set_rank(scheduler *s, gpu *g)
{
    g->order.rank = 0;
    for (size_t i = 0; i < s->n_gpus; i++) {
        gpu *other = s->gpus[i];
        int c = other ? strcmp(other->info.uuid, g->info.uuid) : 0;
        if (other && (c > 0 || (c == 0 && other->number > g->number)))
            other->order.rank++;
        else if (other && other->order.rank >= g->order.rank)
            g->order.rank = other->order.rank + 1;
    }
}

void scheduler_gpu_up(scheduler *s, double now, int number, const gpu_info *info)
{
    TAP(s, gpu_up, now, number, info);
    CHECK(number >= 0);
    s->gpus = xgrow(s->gpus, &s->gpus_cap, (size_t)number + 1, sizeof *s->gpus);
    while (s->n_gpus <= (size_t)number)
        s->gpus[s->n_gpus++] = NULL;
    if (s->gpus[number])
        remove_gpu(s, now, number, LOSS_LINK);
    gpu *g = gpu_new(s->memory.rest, number, ++s->n_lives, info);
    set_rank(s, g);
    s->gpus[number] = g;
    if (gpu_capacity(g) > s->most_capacity)
        s->most_capacity = gpu_capacity(g);
    placement_touch(s, g);
    count_open(s, now);
    placement_fill(s, now);
}

void scheduler_gpu_gone(scheduler *s, double now, int number, gpu_loss how)
{
    TAP(s, gpus_gone, now, &number, 1, how);
    if (!gpu_at(s, number))
        return;
    remove_gpu(s, now, number, how);
    count_open(s, now);
    placement_fill(s, now);
}

void scheduler_gpus_gone(scheduler *s, double now, const int *number, int n)
{
    TAP(s, gpus_gone, now, number, n, LOSS_LINK);
    for (int i = 0; i < n; i++)
        if (gpu_at(s, number[i]))
            remove_gpu(s, now, number[i], LOSS_LINK);
    count_open(s, now);
    placement_fill(s, now);
}

static void start_draining(scheduler *s, gpu *g)
{
    if (!g || g->draining)
        return;
    if (!g->shunned)
        placement_close(s, g);
    g->draining = true;
}

void scheduler_gpus_drain(scheduler *s, double now, const int *number, int n)
{
    TAP(s, gpus_drain, now, number, n);
    for (int i = 0; i < n; i++)
        start_draining(s, gpu_at(s, number[i]));
    count_open(s, now);
    placement_fill(s, now);
}

void scheduler_gpu_pace(scheduler *s, double now, int number, bool slow)
{
    TAP(s, gpu_pace, now, number, slow);
    gpu *g = gpu_at(s, number);
    if (!g)
        return;
    g->slow = slow;
    count_open(s, now);
    placement_fill(s, now);
}

/* Returns the request that a GPU's report speaks of, or NULL if that attempt is over. */
static request *find_attempt(scheduler *s, const gpu *g, uint64_t id, uint32_t attempt, int *near)
{
    request *r = gpu_find(g, id, attempt, near);
    s->stats.stale += !r;
    return r;
}

/* Records reported tokens and passes them on. False if they are not the next of their request. */
static bool receive_tokens(scheduler *s, gpu *g, const report_tokens *t, int *near)
{
    request *r = find_attempt(s, g, t->id, t->attempt, near);
    if (!r || t->n <= 0)
        return true;
    int have = request_n_told(r);
    if (t->index != have || t->n > request_most(r) - have)
        return false;
    int n_output = request_record(&s->memory, r, t->token, t->n);
    shares_charge(&s->newcomers, r->tenant, (uint64_t)n_output * SHARES_OUTPUT);
    gpu_trust(g, r);
    s->sink(s->ctx, &(command){.kind = COMMAND_TOKENS, .id = t->id, .frontend = r->frontend, .tokens = t});
    return true;
}

static void receive_end(scheduler *s, gpu *g, const report_end *e, int *near)
{
    request *r = find_attempt(s, g, e->id, e->attempt, near);
    if (!r)
        return;
    placement_take_off(s, r, false);
    switch (e->why) {
    case END_STOP:
    case END_LENGTH: placement_end(s, r, e->why, NULL); return;
    case END_EVICTED:
        s->stats.evicted++;
        placement_enqueue(s, r);
        return;
    case END_FAILED: placement_fail(s, r, e); return;
    case END_QUEUE_FULL:
    case END_TOO_LATE:
    case END_TOO_LARGE:
    case END_KILLS_WORKERS: break;
    }
    CHECK(!"an end that workers report");
}

/* Puts requests of a GPU that has too few pages back in line, the newest first. */
static void shed(scheduler *s, gpu *g)
{
    while (g->n_running > 0 && gpu_balance(g) < 0) {
        request *r = g->running[g->n_running - 1].r;
        s->stats.evicted++;
        placement_take_off(s, r, true);
        placement_enqueue(s, r);
    }
}

/* Gives up a GPU that reports what cannot be: nobody knows what it does. Its requests go to others, with the tokens
 * they have. Returns false. */
static bool give_up(scheduler *s, double now, int number)
{
    remove_gpu(s, now, number, LOSS_LINK);
    count_open(s, now);
    placement_fill(s, now);
    return false;
}

bool scheduler_report(scheduler *s, double now, int number, const gpu_report *r)
{
    TAP(s, report, now, number, r);
    gpu *g = gpu_at(s, number);
    if (!g)
        return true;
    if (r->n_seen < g->n_seen || r->n_seen > g->n_sent)
        return give_up(s, now, number);
    gpu_record_report(g, r->n_seen, r->pages_free);
    g->host = r->host;
    placement_touch(s, g);
    int near = 0;
    for (int i = 0; i < r->n_tokens; i++) {
        gpu_prefetch(g, i);
        if (!receive_tokens(s, g, &r->tokens[i], &near))
            return give_up(s, now, number);
    }
    for (int i = 0; i < r->n_ends; i++)
        receive_end(s, g, &r->ends[i], &near);
    shed(s, g);
    placement_release(s, g);
    placement_fill(s, now);
    return true;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void end_late(scheduler *s, double now)
{
    for (request *r; s->opt.max_wait > 0 && (r = TAILQ_FIRST(&s->may_be_late)) && now - r->since >= s->opt.max_wait;)
        placement_end(s, r, END_TOO_LATE, "no GPU was free within %g s", s->opt.max_wait);
}

/* Ends new requests that have waited max_no_gpu while no GPU was open: a runner may be on its way, but not for ever. */
static void end_stranded(scheduler *s, double now)
{
    if (s->n_open == 0 && s->none_since < 0)
        s->none_since = now; /* no GPU has ever come up */
    if (s->n_open > 0 || s->opt.max_no_gpu <= 0)
        return;
    for (request *r; (r = TAILQ_FIRST(&s->may_be_late)) && now - later(r->since, s->none_since) >= s->opt.max_no_gpu;)
        placement_end(s, r, END_TOO_LATE, "there has been no GPU for %g s", s->opt.max_no_gpu);
}

/* Ends requests that have been aside for max_aside. One that still runs, on a GPU that is not open, may go on. */
static void end_aside(scheduler *s, double now)
{
    for (request *r = TAILQ_FIRST(&s->aside), *next;
         s->opt.max_aside > 0 && r && now - r->aside_since >= s->opt.max_aside; r = next) {
        next = TAILQ_NEXT(r, beside);
        if (!r->on && request_n_output(r) > 0)
            placement_end(s, r, END_LENGTH, NULL); /* what it has is not lost */
        else if (!r->on)
            placement_end_too_large(s, r);
    }
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Returns the seconds until something is due. Where nobody waits yet, that is the whole limit: a request submitted
 * later is not due before. */
static double time_to_next(const scheduler *s, double now)
{
    const request *late = TAILQ_FIRST(&s->may_be_late), *aside = TAILQ_FIRST(&s->aside);
    double wait = LONG_WAIT;
    while (aside && aside->on)
        aside = TAILQ_NEXT(aside, beside);
    if (s->opt.max_wait > 0)
        wait = least(wait, (late ? late->since - now : 0) + s->opt.max_wait);
    if (s->opt.max_no_gpu > 0 && s->n_open == 0)
        wait = least(wait, (late ? later(late->since, s->none_since) - now : 0) + s->opt.max_no_gpu);
    if (s->opt.max_aside > 0)
        wait = least(wait, (aside ? aside->aside_since - now : 0) + s->opt.max_aside);
    if (s->opt.consolidate_every > 0)
        wait = least(wait, s->next_look - now);
    return wait > 0 ? wait : 0;
}

double scheduler_tick(scheduler *s, double now)
{
    TAP(s, tick, now);
    end_late(s, now);
    end_stranded(s, now);
    end_aside(s, now);
    placement_fill(s, now);
    if (s->opt.consolidate_every > 0 && now >= s->next_look) {
        consolidate(s, now);
        s->next_look = now + s->opt.consolidate_every;
        placement_fill(s, now);
    }
    return time_to_next(s, now);
}

scheduler_stats scheduler_get_stats(const scheduler *s)
{
    scheduler_stats t = s->stats;
    t.n_running = s->n_running;
    t.n_queued = placement_n_waiting(s);
    t.n_suspects = (int)(s->suspects.n + s->confined.n);
    const request *r;
    TAILQ_FOREACH(r, &s->aside, beside)
    t.n_suspects += r->suspect && !r->on;
    for (size_t i = 0; i < s->n_gpus; i++) {
        const gpu *g = s->gpus[i];
        if (!g)
            continue;
        t.n_gpus++;
        t.n_idle += gpu_is_open(g) && g->n_running == 0;
        t.n_slow += g->slow;
        t.n_light += gpu_is_light(g, s->opt.light_share);
        t.n_full += g->n_running >= g->info.max_batch;
        t.n_suspects += g->n_suspects;
    }
    t.wants_more = t.n_idle + t.n_light == 0;
    return t;
}

int scheduler_n_open(const scheduler *s)
{
    return s->n_open;
}

int64_t scheduler_capacity(const scheduler *s)
{
    return s->capacity;
}

bool scheduler_get_gpu(const scheduler *s, int number, gpu_state *state)
{
    const gpu *g = gpu_at(s, number);
    if (g)
        *state = (gpu_state){.uuid = g->info.uuid,
                             .n_running = g->n_running,
                             .max_batch = g->info.max_batch,
                             .pages_free = g->pages_free,
                             .n_pages = g->info.n_pages,
                             .page_len = g->info.page_len,
                             .draining = g->draining,
                             .slow = g->slow,
                             .device = g->info.device,
                             .host = g->host};
    return g != NULL;
}

void scheduler_free(scheduler *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_frontends; i++) {
        frontend_state *f = s->frontends[i];
        for (request *r; f && (r = TAILQ_FIRST(&f->requests));) {
            TAILQ_REMOVE(&f->requests, r, siblings);
            request_free(&s->memory, r);
        }
        free(f);
    }
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i])
            gpu_free(s->gpus[i]);
    shares_deinit(&s->newcomers);
    wait_queue_deinit(&s->queue);
    wait_queue_deinit(&s->suspects);
    wait_queue_deinit(&s->confined);
    wait_queue_deinit(&s->leaving);
    id_map_free(s->requests);
    slab_free(s->memory.requests);
    slabs_free(s->memory.rest);
    prefixes_free(s->prefixes);
    free(s->frontends);
    free(s->gpus);
    free(s->touched);
    free(s);
}

/* Checks that a request is either in its line or on a GPU; if it is to leave that GPU, it is in the line of those
 * leaving as well. One that is aside is too large, and in no line. */
static void check_request(const scheduler *s, const request *r)
{
    const wait_queue *waits = !r->taken_on  ? &r->tenant->line
                              : r->confined ? &s->confined
                              : r->suspect  ? &s->suspects
                                            : &s->queue;
    bool leaves = r->on && (!gpu_is_open(r->on) || (r->on->reserved && !r->confined && !r->was_confined));
    const wait_queue *line = !r->on ? waits : leaves ? &s->leaving : NULL;
    CHECK(r->aside ? line && !r->line && placement_is_too_large(s, r) : r->line == line);
    CHECK(!r->line || wait_queue_has(line, &r->order));
    CHECK(r->taken_on || !r->suspect);
    CHECK(id_map_get(s->requests, r->what.id) == r);
    CHECK(r->may_be_late == !r->taken_on);
    CHECK(request_n_output(r) >= 0 && request_n_output(r) <= r->what.max_tokens &&
          r->what.n_scored <= r->what.n_to_score);
    CHECK(!r->on || r->taken_on);
}

static size_t check_frontends(const scheduler *s)
{
    size_t n = 0;
    for (size_t f = 0; f < s->n_frontends; f++) {
        const request *r;
        if (s->frontends[f])
            TAILQ_FOREACH(r, &s->frontends[f]->requests, siblings)
            {
                CHECK(r->frontend == (int)f);
                check_request(s, r);
                n++;
            }
    }
    return n;
}

/* Checks that the first of no line has room, unless one that comes before it has no room of any kind. */
static void check_lines(const scheduler *s)
{
    const wait_queue *line[] = {&s->queue, &s->suspects, &s->leaving};
    const wait_item *blocker = NULL;
    wait_queue_check(&s->confined);
    const request *alone = request_of(wait_queue_first(&s->confined));
    CHECK(!alone || !placement_find_room(s, ROOM_ALONE, alone));
    CHECK(!s->reserved || (alone && s->reserved->reserved));
    for (int i = 0; i < 3; i++) {
        const wait_item *first = wait_queue_first(line[i]);
        wait_queue_check(line[i]);
        if (i < 2 && first && !placement_find_room(s, ROOM_ANY, request_of(first)) &&
            (!blocker || wait_before(first, blocker)))
            blocker = first;
    }
    for (int i = 0; i < 3; i++) {
        const request *r = request_of(wait_queue_first(line[i]));
        if (r && placement_find_room(s, request_room(r), r))
            CHECK(blocker && wait_before(blocker, &r->order));
    }
    shares_check(&s->newcomers);
    const request *next = request_of(shares_first(&s->newcomers));
    CHECK(!next || blocker || !placement_find_room(s, ROOM_ANY, next));
}

static void check_aside(const scheduler *s)
{
    int n = 0;
    double since = -HUGE_VAL;
    const request *r;
    TAILQ_FOREACH(r, &s->aside, beside)
    {
        CHECK(r->aside && r->aside_since >= since);
        since = r->aside_since;
        n += !r->on;
    }
    CHECK(n == s->n_aside);
}

void scheduler_check(const scheduler *s)
{
    size_t n = check_frontends(s), n_running = 0;
    int n_with_room = 0;
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i]) {
            CHECK(s->gpus[i]->number == (int)i);
            gpu_check(s->gpus[i]);
            n_running += (size_t)s->gpus[i]->n_running;
            n_with_room += s->gpus[i]->order.room[ROOM_ANY] > 0 || s->gpus[i]->order.room[ROOM_ALONE] > 0;
            CHECK(!s->gpus[i]->reserved || s->reserved == s->gpus[i]);
        }
    CHECK(gpu_order_check(&s->order) == n_with_room);
    CHECK((int)n_running == s->n_running);
    CHECK(n == id_map_count(s->requests) && n == n_running + (size_t)placement_n_waiting(s));
    check_aside(s);
    check_lines(s);
    const scheduler_stats *t = &s->stats;
    CHECK(t->submitted == t->finished + t->failed + t->refused + t->cancelled + n);
}
