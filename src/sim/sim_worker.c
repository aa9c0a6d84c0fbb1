/* sim_worker.c - see sim_worker.h */
#include "sim/sim_worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/wire.pb-c.h"
#include "sim/sim_loaders.h"
#include "sim/toy.h"
#include "worker/adapter_key.h"
#include "worker/worker.h"

static const double SHORTEST_STEP = 0.7, LONGEST_STEP = 1.3; /* times the machine's step_time */

/* Messages one after the other, each preceded by its length. */
typedef struct { buf bytes; } message_list;

struct sim_worker {
    process base;          /* first */
    process_events events; /* the runner's */
    sim_machine *on;       /* borrowed */
    sim_process self;
    int gpu;
    toy *device;
    grammars *grammars;
    engine *g;
    worker *w; /* NULL: the model is being loaded, or it is dead */
    sim_loaders loaders;
    message_list in, out;
    sim_task round, step, delivery, reaping;
    bool in_step, hung;
    double slow;
    double held_until; /* until then it may be silent */
    char why[sizeof(err) + 32];
    bool from_outside; /* it was killed from outside */
};

const char *sim_adapter_name(int i)
{
    static const char *const names[N_ADAPTERS] = {"tide", "moss", "fern", "clay"};
    return names[i];
}

static int adapter_of(const char *name, size_t n)
{
    for (int i = 0; i < N_ADAPTERS; i++)
        if (strlen(sim_adapter_name(i)) == n && strncmp(sim_adapter_name(i), name, n) == 0)
            return i;
    return -1;
}

digest sim_digest(uint64_t content)
{
    digest d = {{0}};
    memcpy(d.byte, &content, sizeof content);
    return d;
}

int sim_machine_capacity(const sim_machine *m)
{
    int tokens = m->n_pages * m->page_len;
    return tokens < TOY_CONTEXT ? tokens : TOY_CONTEXT;
}

static void list_add(message_list *l, const void *message, size_t n)
{
    buf_add(&l->bytes, &n, sizeof n);
    buf_add(&l->bytes, message, n);
}

/* The disk. */

static lora *load(void *ctx, const char *name, err *e)
{
    const sim_machine *m = ctx;
    const char *hex;
    int i = adapter_of(name, adapter_key_split(name, &hex));
    if (i < 0 || m->disk[i].state == FILE_MISSING) {
        err_set(e, "adapter %s: there is no such directory", name);
        return NULL;
    }
    if (m->disk[i].state == FILE_BROKEN) {
        err_set(e, "adapter %s: input/output error", name);
        return NULL;
    }
    char has[DIGEST_HEX];
    digest d = sim_digest(m->disk[i].content);
    digest_to_hex(&d, has);
    if (hex && strcmp(has, hex) != 0) {
        err_set(e, "adapter %s: it was replaced since the request began", name);
        return NULL;
    }
    return toy_adapter(m->disk[i].state == FILE_POISONED ? TOY_POISON : m->disk[i].content);
}

/* Towards the runner. */

static void on_delivery(void *ctx)
{
    sim_worker *w = ctx;
    buf all = w->out.bytes;
    w->out.bytes = (buf){0};
    bool right = true;
    for (size_t at = 0; at < all.len && right;) {
        size_t n;
        memcpy(&n, all.data + at, sizeof n);
        right = w->events.message(w->events.ctx, all.data + at + sizeof n, n);
        at += sizeof n + n;
    }
    buf_free(&all);
    CHECK(right); /* the worker writes messages only */
}

static int send_up(void *ctx, const void *message, size_t n)
{
    sim_worker *w = ctx;
    list_add(&w->out, message, n);
    if (!w->delivery.planned)
        world_plan(w->self.in, &w->delivery, world_uniform(w->self.in, RNG_WORKERS, 0, 0.001));
    return 0;
}

static double now(void *ctx)
{
    return ((sim_worker *)ctx)->self.in->now;
}

/* The end of the process. */

static void stop_all(sim_worker *w)
{
    world *in = w->self.in;
    world_cancel(in, &w->round);
    world_cancel(in, &w->step);
    worker_free(w->w);
    engine_free(w->g);
    grammars_free(w->grammars);
    toy_free(w->device);
    w->w = NULL;
    w->g = NULL;
    w->grammars = NULL;
    w->device = NULL;
    sim_loaders_deinit(&w->loaders);
    buf_free(&w->in.bytes);
    w->self.dead = true;
    if (w->on->worker[w->gpu] == w)
        w->on->worker[w->gpu] = NULL;
}

/* Has the runner reap the dead worker, after it has read all that the worker had written. */
static void on_reaped(void *ctx)
{
    sim_worker *w = ctx;
    world_cancel(w->self.in, &w->delivery);
    on_delivery(w);
    w->events.ended(w->events.ctx, w->why, w->from_outside);
}

static void die(sim_worker *w, const char *why, bool from_outside)
{
    if (w->self.dead)
        return;
    snprintf(w->why, sizeof w->why, "%s", why);
    w->from_outside = from_outside;
    world_say(w->self.in, "%s ends: %s", w->self.name, why);
    stop_all(w);
    world_plan(w->self.in, &w->reaping, world_uniform(w->self.in, RNG_WORKERS, 0, 0.05));
}

/* A round of its loop: commands, a step, its report. */

static void plan_round(sim_worker *w, double after)
{
    world_plan(w->self.in, &w->round, after);
}

/* Returns the seconds until the next adapter is loaded; 1 if none is being loaded. */
static double time_to_adapter(const sim_worker *w)
{
    return w->loaders.n_loads ? w->loaders.load[0].end - w->self.in->now : 1;
}

static void on_step(void *ctx)
{
    sim_worker *w = ctx;
    err e;
    if (w->hung)
        return;
    w->in_step = false;
    w->loaders.now = w->self.in->now;
    w->loaders.seconds = w->on->load_time * w->on->disk_slow * world_uniform(w->self.in, RNG_WORKERS, 0.5, 2);
    if (worker_step(w->w, &e) != WORKER_GOES_ON) {
        char why[sizeof e + 16];
        snprintf(why, sizeof why, "exit 1: %s", e.msg);
        die(w, why, false);
        return;
    }
    double wait = worker_may_wait(w->w);
    if (wait > 0 && !engine_is_idle(w->g) &&
        !toy_is_copying(w->device)) /* it polls for adapters: skip ahead to the next one */
        wait = fmin(1, fmax(time_to_adapter(w), wait));
    plan_round(w, w->in.bytes.len ? 0 : wait);
}

static void on_round(void *ctx)
{
    sim_worker *w = ctx;
    if (w->hung)
        return;
    for (size_t at = 0, n; at < w->in.bytes.len; at += sizeof n + n) {
        err e;
        memcpy(&n, w->in.bytes.data + at, sizeof n);
        CHECK(worker_receive(w->w, w->in.bytes.data + at + sizeof n, n, &e) == 0);
    }
    buf_clear(&w->in.bytes);
    worker_report_news(w->w);
    if (w->on->kills_until > w->self.in->now && !engine_is_idle(w->g)) {
        sim_worker_kill(w);
        return;
    }
    w->in_step = true;
    double time = w->on->step_time * w->slow * world_uniform(w->self.in, RNG_WORKERS, SHORTEST_STEP, LONGEST_STEP);
    if (w->slow > 1)
        w->held_until = fmax(w->held_until, w->self.in->now + time);
    world_plan(w->self.in, &w->step, engine_is_idle(w->g) || worker_may_wait(w->w) > 0 ? 0 : time);
}

/* Starts the worker's engine, when its model is loaded. */
static void on_ready(void *ctx)
{
    sim_worker *w = ctx;
    const sim_machine *m = w->on;
    err e;
    w->device = toy_new(m->runs_ahead, m->device_room > 0);
    sim_loaders_init(&w->loaders, m->load_time);
    engine_options o = engine_options_default();
    o.max_batch = m->max_batch;
    o.n_pages = m->n_pages;
    o.page_len = m->page_len;
    o.host_bytes = (size_t)m->host_pages * (size_t)m->page_len * TOY_KV_BYTES;
    o.n_adapter_slots = m->n_slots;
    o.image_bytes = (size_t)m->n_images * 4096; /* an image takes one page of memory */
    o.prefill_rows = m->prefill_rows;
    o.itl_target = m->itl_target;
    o.now = now;
    o.now_ctx = w;
    o.adapters = (adapter_source){.load = load, .ctx = (void *)m};
    o.loaders = &w->loaders.base;
    o.never_waits = true;
    w->g = engine_new(toy_model(w->device), &o, &e);
    CHECK(w->g);
    if (m->device_room > 0)
        toy_limit_adapters(w->device, m->device_room);
    w->grammars = grammars_new((vocabulary_source){.read = toy_vocabulary}, NULL);
    char uuid[64], kind[32];
    snprintf(uuid, sizeof uuid, "gpu-%s-%d", m->name, w->gpu);
    snprintf(kind, sizeof kind, "toy of %.16s", m->name); /* a kind for each machine, as they are not equally fast */
    w->w = worker_new(w->g, &(worker_setup){.gpu = w->gpu,
                                            .uuid = uuid,
                                            .device = kind,
                                            .max_batch = m->max_batch,
                                            .grammars = w->grammars,
                                            .max_tokens = TOY_CONTEXT,
                                            .send = send_up,
                                            .now = now,
                                            .ctx = w});
    w->round.run = on_round;
    worker_announce(w->w);
    plan_round(w, 0);
}

/* The runner's calls. */

static bool kills_runner(const void *message, size_t n)
{
    Message *m = message__unpack(NULL, n, message);
    bool kills = false;
    CHECK(m);
    for (size_t i = 0; m->what_case == MESSAGE__WHAT_COMMANDS && i < m->commands->n_commands; i++) {
        const Command *c = m->commands->commands[i];
        kills |= c->what_case == COMMAND__WHAT_ADD && c->add->n_tokens && c->add->tokens[0] == TOY_RUNNER_KILLER;
    }
    message__free_unpacked(m, NULL);
    return kills;
}

static void send_down(process *p, const void *message, size_t n)
{
    sim_worker *w = (sim_worker *)p;
    if (w->self.dead)
        return;
    if (kills_runner(message, n)) {
        w->on->runner->n_acts_left = 1; /* it dies after this act */
        return;
    }
    list_add(&w->in, message, n);
    if (w->w && !w->in_step)
        plan_round(w, world_uniform(w->self.in, RNG_WORKERS, 0, 0.001));
}

/* Called by a runner that takes the worker to hang. */
static void kill_worker(process *p)
{
    sim_worker *w = (sim_worker *)p;
    if (!w->self.dead && !sim_worker_is_held(w))
        world_violate(w->self.in, "%s is killed, though it does not hang", w->self.name);
    die(w, "signal 9", w->self.stopped_until > w->self.in->now);
}

static void free_worker(process *p)
{
    sim_worker *w = (sim_worker *)p;
    if (!w->self.dead)
        stop_all(w);
    world_cancel(w->self.in, &w->delivery);
    world_cancel(w->self.in, &w->reaping);
    buf_free(&w->out.bytes);
    free(w);
}

static process *start(void *ctx, char *const argv[], const process_events *events, err *e)
{
    static const process_ops ops = {.send = send_down, .kill = kill_worker, .free = free_worker};
    sim_machine *m = ctx;
    if (m->starts_fail_until > m->runner->in->now) {
        err_set(e, "cannot start a process: resource temporarily unavailable");
        return NULL;
    }
    sim_worker *w = XNEW(sim_worker);
    *w = (sim_worker){.base = {&ops, 1}, .events = *events, .on = m, .slow = 1};
    for (int i = 0; argv[i]; i++)
        if (strcmp(argv[i], "--gpu") == 0)
            w->gpu = atoi(argv[i + 1]);
    char name[32];
    snprintf(name, sizeof name, "worker %.16s.%d", m->name, w->gpu);
    sim_process_init(&w->self, m->runner->in, name, 0);
    w->round = (sim_task){.of = &w->self, .run = on_ready, .ctx = w};
    w->step = (sim_task){.of = &w->self, .run = on_step, .ctx = w};
    w->delivery = (sim_task){.of = m->runner, .run = on_delivery, .ctx = w};
    w->reaping = (sim_task){.of = m->runner, .run = on_reaped, .ctx = w};
    m->worker[w->gpu] = w;
    plan_round(w, world_uniform(w->self.in, RNG_WORKERS, 0.05, 1));
    return &w->base;
}

process_starter sim_worker_starter(sim_machine *m)
{
    return (process_starter){.start = start, .ctx = m};
}

void sim_worker_crash(sim_worker *w)
{
    die(w, "signal 11", false);
}

void sim_worker_kill(sim_worker *w)
{
    w->on->n_killed++;
    die(w, "signal 9", true);
}

void sim_worker_hang(sim_worker *w)
{
    w->hung = true;
    w->held_until = HUGE_VAL;
}

void sim_worker_slow(sim_worker *w, double times)
{
    w->slow = times;
}

/* The worker may be silent until its first step after the stop is done. */
void sim_worker_stop(sim_worker *w, double seconds)
{
    sim_process_stop(&w->self, seconds);
    w->held_until = fmax(w->held_until, w->self.stopped_until + LONGEST_STEP * w->slow * w->on->step_time);
}

bool sim_worker_is_empty(const sim_worker *w)
{
    if (!w->w)
        return true;
    engine_stats s = engine_get_stats(w->g);
    bool has_pages = engine_is_idle(w->g) && s.pages_free < s.pages_total;
    return worker_is_empty(w->w) && !has_pages && w->in.bytes.len == 0;
}

bool sim_worker_is_held(const sim_worker *w)
{
    return w->held_until > w->self.in->now - 0.1; /* a moment longer, until its messages have been read */
}
