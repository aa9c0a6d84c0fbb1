/* sched_server.c - see sched_server.h
 *
 * Every link has a peer: a frontend, with one number, or a runner, with a number for each of its GPUs. A message is
 * one event of the scheduler; the commands it answers with are packed as they come, each into the outbox of the link
 * it is for, and flush() sends what there is when the event is over. */
#include "scheduler/sched_server.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/pack.h"
#include "scheduler/pace.h"
#include "scheduler/signals.h"

static const double OLDEST = 1e6;         /* seconds; no request waits for longer */
static const double LONGEST_RETRY = 3600; /* seconds; nobody is told to come again later than that */
static const double PROBE_EVERY = 1;      /* seconds between probes of a slow GPU */
static const double LONGEST_TICK = 0.25;  /* seconds between looks at the clock, also for the hook */
enum { OUTBOX_FULL = 1 << 20, MAX_GPUS_OF_RUNNER = 1024, MAX_BATCH = 65536, MAX_PAGE_LEN = 65536 };

_Static_assert((int)OUTCOME__FAILED == (int)OUTCOME_FAILED && (int)OUTCOME__EVICTED == (int)OUTCOME_EVICTED,
               "outcomes as on the wire");
_Static_assert((int)END_REASON__KILLS_WORKERS == (int)END_KILLS_WORKERS &&
                   (int)END_REASON__TOO_LATE == (int)END_TOO_LATE,
               "end reasons as on the wire");

typedef struct peer peer;

/* Packed parts of a message to be. A frontend or a GPU has one, under its number. */
typedef struct {
    peer *to; /* NULL: the number is free */
    int number;
    uint32_t local, start; /* of a GPU: what its runner calls it; of its GpuUp */
    double probed;         /* of a GPU: when it was last asked to show how fast it is */
    buf parts;
    bool waiting; /* is in the list of those to be sent */
} outbox;

typedef struct {
    outbox **at;
    size_t n, cap;
} outbox_list; /* by number; entries are owned */

struct peer {
    sched_server *server;
    net_link *link;
    uint64_t instance;
    char *model;     /* "": it does not say */
    int frontend;    /* its number; -1: it is a runner */
    int n_gpus_told; /* of a frontend; -1: it has not been told yet */
    int64_t capacity_told;
    outbox **gpu; /* [n_gpus] a runner's, by what it calls them; NULL: not ready */
    size_t n_gpus, gpus_cap;
    bool *crashed; /* [n_gpus] its last worker did, and it has not been seen to be well since */
    size_t crashed_cap;
    bool draining;
    peer *prev, *next;
};

struct sched_server {
    net_loop *on; /* borrowed */
    scheduler *s;
    pace *pace;
    link_listener *listener;
    peer *peers;
    char *model; /* that the frontends serve; "": nobody has said yet */
    outbox_list frontends, gpus;
    outbox **dirty; /* [n_dirty] those with parts, in order; borrowed */
    size_t n_dirty, dirty_cap;
    report_tokens *tokens; /* scratch of a report */
    report_end *ends;
    size_t tokens_cap, ends_cap;
    buf body, message; /* scratch */
    loop_timer *tick;
    scale_hook *hook; /* borrowed; NULL: none */
    double epoch;     /* what to add to the monotonic clock */
};

sched_server_options sched_server_options_default(void)
{
    sched_server_options o = {
        .listen = "127.0.0.1:7000", .link = link_options_default(), .policy = scheduler_options_default()};
    o.link.max_message /= 4;
    return o;
}

/* Seconds since the epoch at first, and never going back from there. */
static double now_of(const sched_server *v)
{
    return v->epoch + loop_now(v->on);
}

static outbox *take_number(outbox_list *list, peer *to)
{
    size_t i = 0;
    while (i < list->n && list->at[i]->to)
        i++;
    if (i == list->n) {
        list->at = xgrow(list->at, &list->cap, list->n + 1, sizeof *list->at);
        list->at[list->n++] = XNEW(outbox);
    }
    list->at[i]->number = (int)i;
    list->at[i]->to = to;
    return list->at[i];
}

/* Free for somebody else; what was to be sent is not. */
static void give_number(outbox *o)
{
    o->to = NULL;
    buf_clear(&o->parts);
}

static void outbox_list_deinit(outbox_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        buf_free(&list->at[i]->parts);
        free(list->at[i]);
    }
    free(list->at);
}

/* The parts as one message: Results for a frontend, Commands for a GPU. */
static void send_outbox(sched_server *v, outbox *o)
{
    if (!o->to || o->parts.len == 0)
        return;
    bool to_frontend = o->to->frontend >= 0;
    buf_clear(&v->body);
    if (!to_frontend) {
        Commands c = COMMANDS__INIT;
        c.gpu = o->local;
        c.start = o->start;
        size_t n = commands__get_packed_size(&c);
        CHECK(commands__pack(&c, (uint8_t *)buf_extend(&v->body, n)) == n);
    }
    buf_add(&v->body, o->parts.data, o->parts.len);
    buf_clear(&o->parts);
    buf_clear(&v->message);
    pack_bytes(&v->message, to_frontend ? MESSAGE__WHAT_RESULTS : MESSAGE__WHAT_COMMANDS, v->body.data, v->body.len);
    link_send_packed(o->to->link, v->message.data, v->message.len);
}

/* The event is over: one message to everybody it concerned. */
static void flush(sched_server *v)
{
    for (size_t i = 0; i < v->n_dirty; i++) {
        v->dirty[i]->waiting = false;
        send_outbox(v, v->dirty[i]);
    }
    v->n_dirty = 0;
}

static void add_part(sched_server *v, outbox *o, unsigned field, const ProtobufCMessage *part)
{
    CHECK(o->to);
    pack_field(&o->parts, field, part);
    if (o->parts.len > OUTBOX_FULL)
        send_outbox(v, o);
    if (o->waiting)
        return;
    v->dirty = xgrow(v->dirty, &v->dirty_cap, v->n_dirty + 1, sizeof *v->dirty);
    v->dirty[v->n_dirty++] = o;
    o->waiting = true;
}

/* Casts away const: packing only reads. */
static Request request_of(const command *c)
{
    const submission *w = c->what;
    Request r = REQUEST__INIT;
    r.id = c->id;
    r.attempt = c->attempt;
    r.arrival = w->arrival;
    r.adapter = (char *)(w->adapter ? w->adapter : "");
    r.n_tokens = (size_t)w->n_tokens;
    r.tokens = (uint32_t *)w->token;
    r.n_prompt = (uint32_t)w->n_prompt;
    r.max_tokens = (uint32_t)w->max_tokens;
    r.n_to_score = (uint32_t)w->n_to_score;
    r.n_scored = (uint32_t)w->n_scored;
    r.sampling = (ProtobufCBinaryData){w->sampling_bytes, (uint8_t *)w->sampling};
    r.digest = (ProtobufCBinaryData){w->digest_bytes, (uint8_t *)w->digest};
    return r;
}

static void put_gpu_command(sched_server *v, const command *c)
{
    Command out = COMMAND__INIT;
    Request add;
    Cancel cancel = CANCEL__INIT;
    if (c->kind == COMMAND_ADD) {
        add = request_of(c);
        out.what_case = COMMAND__WHAT_ADD;
        out.add = &add;
    } else {
        cancel.id = c->id;
        cancel.attempt = c->attempt;
        out.what_case = COMMAND__WHAT_CANCEL;
        out.cancel = &cancel;
    }
    add_part(v, v->gpus.at[c->gpu], COMMANDS_COMMANDS, &out.base);
}

static void put_tokens(sched_server *v, const command *c)
{
    const report_tokens *t = c->tokens;
    Tokens out = TOKENS__INIT;
    out.id = c->id;
    out.index = (uint32_t)t->index;
    out.n_tokens = (size_t)t->n;
    out.tokens = (uint32_t *)t->token;
    out.logprobs = (ProtobufCBinaryData){t->extra_bytes, (uint8_t *)t->extra};
    out.cached = t->cached;
    add_part(v, v->frontends.at[c->frontend], RESULTS_TOKENS, &out.base);
}

static void put_end(sched_server *v, const command *c)
{
    End out = END__INIT;
    out.id = c->id;
    out.why = c->why;
    out.message = (char *)(c->message ? c->message : "");
    out.retry_after = c->why == END_QUEUE_FULL || c->why == END_TOO_LATE ? 1 : c->retry_after;
    add_part(v, v->frontends.at[c->frontend], RESULTS_ENDS, &out.base);
}

static void take_command(void *ctx, const command *c)
{
    sched_server *v = ctx;
    switch (c->kind) {
    case COMMAND_ADD:
    case COMMAND_CANCEL: put_gpu_command(v, c); return;
    case COMMAND_TOKENS: put_tokens(v, c); return;
    case COMMAND_END: put_end(v, c); return;
    }
}

static void lose_gpu(peer *p, uint32_t local, gpu_loss how)
{
    if (local >= p->n_gpus || !p->gpu[local])
        return;
    outbox *o = p->gpu[local];
    pace_gpu_gone(p->server->pace, o->number);
    scheduler_gpu_gone(p->server->s, now_of(p->server), o->number, how);
    give_number(o);
    p->gpu[local] = NULL;
}

/* The numbers of a runner's GPUs; owned by the caller. */
static int *numbers_of_gpus(const peer *p, int *n)
{
    int *number = XNEW_ARRAY(int, p->n_gpus + 1);
    *n = 0;
    for (size_t i = 0; i < p->n_gpus; i++)
        if (p->gpu[i])
            number[(*n)++] = p->gpu[i]->number;
    return number;
}

static void lose_all_gpus(peer *p)
{
    int n, *gone = numbers_of_gpus(p, &n);
    scheduler_gpus_gone(p->server->s, now_of(p->server), gone, n);
    for (int i = 0; i < n; i++) {
        pace_gpu_gone(p->server->pace, gone[i]);
        give_number(p->server->gpus.at[gone[i]]);
    }
    free(gone);
}

/* Everything that went over its link is forgotten. */
static void peer_free(peer *p)
{
    sched_server *v = p->server;
    lose_all_gpus(p);
    if (p->frontend >= 0) {
        scheduler_frontend_gone(v->s, now_of(v), p->frontend);
        give_number(v->frontends.at[p->frontend]);
    }
    if (p->prev)
        p->prev->next = p->next;
    else
        v->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    link_set_data(p->link, NULL);
    free(p->model);
    free(p->gpu);
    free(p->crashed);
    free(p);
    flush(v);
}

static void send_away(peer *p, const char *why)
{
    net_link *l = p->link;
    peer_free(p);
    link_drop(l, why);
}

static void replace_older(sched_server *v, uint64_t instance)
{
    for (peer *p = v->peers, *next; p; p = next) {
        next = p->next;
        if (p->instance == instance)
            send_away(p, "replaced by a newer link of the same process");
    }
}

static int count_frontends(const sched_server *v)
{
    int n = 0;
    for (const peer *p = v->peers; p; p = p->next)
        n += p->frontend >= 0;
    return n;
}

static bool fits(const sched_server *v, const char *model)
{
    return !*model || !*v->model || strcmp(model, v->model) == 0;
}

/* Why not; owned by the caller. */
static char *misfit(const sched_server *v, const char *model)
{
    return xasprintf("its model is %.50s, but this cluster serves %.50s", model, v->model);
}

/* The first frontend says what this cluster serves; runners that came before it and have another model must go. */
static void decide_model(sched_server *v, const char *model)
{
    free(v->model);
    v->model = xstrdup(model);
    for (peer *p = v->peers, *next; p; p = next) {
        next = p->next;
        if (fits(v, p->model))
            continue;
        char *why = misfit(v, p->model);
        send_away(p, why);
        free(why);
    }
}

/* All frontends have the same model, and runners that of the frontends. */
static bool check_model(sched_server *v, net_link *l, const Hello *hello)
{
    if (hello->role == HELLO__ROLE__FRONTEND && *hello->model && count_frontends(v) == 0)
        decide_model(v, hello->model);
    if (fits(v, hello->model))
        return true;
    char *why = misfit(v, hello->model);
    link_drop(l, why);
    free(why);
    return false;
}

static void link_is_up(void *ctx, net_link *l, const Hello *hello)
{
    sched_server *v = ctx;
    replace_older(v, hello->instance);
    if (hello->role == HELLO__ROLE__SCHEDULER) {
        link_drop(l, "two schedulers have nothing to say to each other");
        return;
    }
    if (!check_model(v, l, hello))
        return;
    peer *p = XNEW(peer);
    *p = (peer){.server = v,
                .link = l,
                .instance = hello->instance,
                .model = xstrdup(hello->model),
                .frontend = -1,
                .n_gpus_told = -1,
                .next = v->peers};
    if (p->next)
        p->next->prev = p;
    v->peers = p;
    link_set_data(l, p);
    if (hello->role == HELLO__ROLE__FRONTEND) {
        p->frontend = take_number(&v->frontends, p)->number;
        scheduler_frontend_up(v->s, p->frontend);
    }
}

static void link_is_down(void *ctx, net_link *l, const char *why)
{
    (void)ctx;
    (void)why;
    peer *p = link_data(l);
    if (p)
        peer_free(p);
}

static int int_of(uint32_t x)
{
    return x <= INT_MAX ? (int)x : INT_MAX;
}

/* When a request first came, by our own clock: whatever its frontend's says, it has not come after now. */
static double arrival_of(const sched_server *v, double age)
{
    return now_of(v) - (age > 0 && age < OLDEST ? age : 0);
}

static void take_submit(peer *p, const Request *r)
{
    if (r->n_tokens > INT_MAX) {
        link_drop(p->link, "a request with more tokens than can be counted");
        return;
    }
    submission what = {.id = r->id,
                       .arrival = arrival_of(p->server, r->age),
                       .adapter = *r->adapter ? r->adapter : NULL,
                       .token = (const int *)r->tokens,
                       .n_tokens = (int)r->n_tokens,
                       .n_prompt = int_of(r->n_prompt),
                       .max_tokens = int_of(r->max_tokens),
                       .n_to_score = int_of(r->n_to_score),
                       .n_scored = int_of(r->n_scored),
                       .sampling = r->sampling.data,
                       .sampling_bytes = r->sampling.len,
                       .digest = r->digest.data,
                       .digest_bytes = r->digest.len,
                       .tenant = *r->tenant ? r->tenant : NULL,
                       .weight = r->weight,
                       .priority = r->priority,
                       .again = r->again};
    scheduler_submit(p->server->s, now_of(p->server), p->frontend, &what);
}

static void take_frontend_message(peer *p, const Message *m)
{
    if (m->what_case == MESSAGE__WHAT_SUBMIT)
        take_submit(p, m->submit);
    else if (m->what_case == MESSAGE__WHAT_CANCEL)
        scheduler_cancel(p->server->s, now_of(p->server), p->frontend, m->cancel->id);
    else
        link_drop(p->link, "a frontend does not send this");
}

/* What it does then is no request of anybody's, and no command that is counted. */
static void probe(sched_server *v, outbox *o)
{
    Commands c = COMMANDS__INIT;
    c.gpu = o->local;
    c.start = o->start;
    c.probe = true;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &c;
    o->probed = now_of(v);
    link_send(o->to->link, &m);
}

static void take_gpu_up(peer *p, const GpuUp *up)
{
    sched_server *v = p->server;
    if (up->gpu >= MAX_GPUS_OF_RUNNER || !*up->uuid || up->max_batch < 1 || up->max_batch > MAX_BATCH ||
        up->n_pages < 1 || up->page_len < 1 || up->page_len > MAX_PAGE_LEN || up->max_tokens < 1) {
        link_drop(p->link, "a GPU that cannot be: its numbers make no sense");
        return;
    }
    lose_gpu(p, up->gpu, LOSS_LINK);
    p->gpu = xgrow(p->gpu, &p->gpus_cap, (size_t)up->gpu + 1, sizeof *p->gpu);
    p->crashed = xgrow(p->crashed, &p->crashed_cap, (size_t)up->gpu + 1, sizeof *p->crashed);
    for (; p->n_gpus <= up->gpu; p->n_gpus++) {
        p->gpu[p->n_gpus] = NULL;
        p->crashed[p->n_gpus] = false;
    }
    outbox *o = p->gpu[up->gpu] = take_number(&v->gpus, p);
    o->local = up->gpu;
    o->start = up->start;
    gpu_info info = {.uuid = up->uuid,
                     .device = up->device,
                     .max_batch = int_of(up->max_batch),
                     .n_pages = int_of(up->n_pages),
                     .page_len = int_of(up->page_len),
                     .max_tokens = int_of(up->max_tokens),
                     .on_probation = p->crashed[up->gpu]};
    /* Within one process the runner has said it already. */
    log_line(link_is_within(p->link) && !info.on_probation ? LOG_DEBUG : LOG_INFO, "GPU %s (%s) of %s is ready%s",
             up->uuid, up->device, link_peer(p->link),
             info.on_probation ? "; as its last worker crashed, it is tried out first" : "");
    pace_gpu_up(v->pace, now_of(v), o->number, up->device, info.on_probation);
    scheduler_gpu_up(v->s, now_of(v), o->number, &info);
    probe(v, o);
    if (p->draining)
        scheduler_gpus_drain(v->s, now_of(v), &o->number, 1);
}

/* Who crashes again and again must not take one request after the other with it: it is on probation when it is back. */
static void take_gpu_gone(peer *p, const GpuGone *gone)
{
    if (gone->gpu < p->n_gpus && gone->died && !gone->from_outside)
        p->crashed[gone->gpu] = true;
    log_warn("GPU %u of %s is gone: %s", gone->gpu, link_peer(p->link), gone->message);
    lose_gpu(p, gone->gpu, !gone->died ? LOSS_LINK : gone->from_outside ? LOSS_KILLED : LOSS_CRASH);
}

static void take_drain(peer *p)
{
    log_info("%s drains", link_peer(p->link));
    p->draining = true;
    int n, *number = numbers_of_gpus(p, &n);
    scheduler_gpus_drain(p->server->s, now_of(p->server), number, n);
    free(number);
}

static report_tokens tokens_of(const Tokens *t)
{
    return (report_tokens){.id = t->id,
                           .attempt = t->attempt,
                           .index = int_of(t->index),
                           .n = (int)t->n_tokens,
                           .token = (const int *)t->tokens,
                           .extra = t->logprobs.data,
                           .extra_bytes = t->logprobs.len,
                           .cached = t->cached};
}

static report_end end_of(const End *e)
{
    double later = e->retry_after > 0 && e->retry_after < LONGEST_RETRY ? e->retry_after : 0;
    return (report_end){
        .id = e->id, .attempt = e->attempt, .why = (outcome)e->why, .message = e->message, .retry_after = later};
}

static void log_pace(const sched_server *v, int gpu, bool slow)
{
    gpu_state g = {.uuid = ""};
    pace_times last = pace_last(v->pace, gpu);
    scheduler_get_gpu(v->s, gpu, &g);
    if (slow)
        log_warn(
            "GPU %s is slow: a step takes %.3g s, where %.2g s are usual; it gets nothing new while others are open",
            g.uuid, last.took, last.usual);
    else
        log_info("GPU %s is as fast as it should be again: a step takes %.3g s", g.uuid, last.took);
}

static void take_news(sched_server *v, int gpu, pace_news news)
{
    if (news == PACE_SAME)
        return;
    log_pace(v, gpu, news == PACE_SLOW);
    const outbox *o = v->gpus.at[gpu];
    if (news == PACE_WELL)
        o->to->crashed[o->local] = false;
    scheduler_gpu_pace(v->s, now_of(v), gpu, news == PACE_SLOW);
}

/* As the scheduler knows it, in scratch memory. False: it has an end that nobody knows. */
static bool read_step(sched_server *v, const Step *step, gpu_report *r)
{
    v->tokens = xgrow(v->tokens, &v->tokens_cap, step->n_tokens + 1, sizeof *v->tokens);
    v->ends = xgrow(v->ends, &v->ends_cap, step->n_ends + 1, sizeof *v->ends);
    for (size_t i = 0; i < step->n_tokens; i++)
        v->tokens[i] = tokens_of(step->tokens[i]);
    for (size_t i = 0; i < step->n_ends; i++) {
        if (step->ends[i]->why > OUTCOME__FAILED)
            return false;
        v->ends[i] = end_of(step->ends[i]);
    }
    *r = (gpu_report){.n_seen = step->n_seen,
                      .pages_free = step->pages_free,
                      .host = {step->host_pages, step->pages_saved, step->pages_fetched},
                      .n_tokens = (int)step->n_tokens,
                      .n_ends = (int)step->n_ends,
                      .tokens = v->tokens,
                      .ends = v->ends};
    return true;
}

/* Which adapters a GPU has is told to all frontends, for whoever wants to know. */
static void tell_residents(sched_server *v, int gpu, const Residents *r)
{
    gpu_state g = {.uuid = ""};
    Residents of_gpu = *r;
    Message m = MESSAGE__INIT;
    scheduler_get_gpu(v->s, gpu, &g);
    of_gpu.gpu = (char *)g.uuid;
    m.what_case = MESSAGE__WHAT_RESIDENTS;
    m.residents = &of_gpu;
    for (peer *p = v->peers; p; p = p->next)
        if (p->frontend >= 0)
            link_send(p->link, &m);
}

static void take_step(peer *p, const Step *step)
{
    sched_server *v = p->server;
    if (step->gpu >= p->n_gpus || !p->gpu[step->gpu])
        return;
    gpu_report r;
    int number = p->gpu[step->gpu]->number;
    if (step->residents)
        tell_residents(v, number, step->residents);
    if (!read_step(v, step, &r) || !scheduler_report(v->s, now_of(v), number, &r)) {
        send_away(p, "it reported tokens, ends or commands that cannot be");
        return;
    }
    double seconds = step->micros ? (double)step->micros * 1e-6 : -1;
    take_news(v, number,
              pace_step(v->pace, now_of(v), number, step->rows, (int64_t)step->context, seconds, step->n_requests > 0));
}

static void take_runner_message(peer *p, const Message *m)
{
    switch (m->what_case) {
    case MESSAGE__WHAT_STEP: take_step(p, m->step); return;
    case MESSAGE__WHAT_GPU_UP: take_gpu_up(p, m->gpu_up); return;
    case MESSAGE__WHAT_GPU_GONE: take_gpu_gone(p, m->gpu_gone); return;
    case MESSAGE__WHAT_DRAIN: take_drain(p); return;
    default: link_drop(p->link, "a runner does not send this");
    }
}

static void link_message(void *ctx, net_link *l, const Message *m)
{
    sched_server *v = ctx;
    peer *p = link_data(l);
    if (!p)
        return; /* it is being dropped */
    if (p->frontend >= 0)
        take_frontend_message(p, m);
    else
        take_runner_message(p, m);
    flush(v);
}

/* Frontends say whether there is any use in asking, and for how much. */
static void tell_gpus(sched_server *v)
{
    int n = scheduler_n_open(v->s);
    int64_t capacity = scheduler_capacity(v->s);
    Cluster cluster = CLUSTER__INIT;
    cluster.n_gpus = (uint32_t)n;
    cluster.max_tokens = capacity < INT_MAX ? (uint32_t)capacity : INT_MAX;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_CLUSTER;
    m.cluster = &cluster;
    for (peer *p = v->peers; p; p = p->next) {
        if (p->frontend >= 0 && (p->n_gpus_told != n || p->capacity_told != capacity))
            link_send(p->link, &m);
        p->n_gpus_told = n;
        p->capacity_told = capacity;
    }
}

/* Who is silent for too long; and whether those that are slow still are, once they are empty. */
static void look_at_pace(sched_server *v)
{
    gpu_state g;
    for (size_t i = 0; i < v->gpus.n; i++) {
        outbox *o = v->gpus.at[i];
        if (!o->to)
            continue;
        take_news(v, o->number, pace_look(v->pace, now_of(v), o->number));
        if (pace_is_slow(v->pace, o->number) && now_of(v) - o->probed >= PROBE_EVERY &&
            scheduler_get_gpu(v->s, o->number, &g) && g.n_running == 0)
            probe(v, o);
    }
}

static void tick(void *ctx)
{
    sched_server *v = ctx;
    double wait = scheduler_tick(v->s, now_of(v));
    look_at_pace(v);
    flush(v);
    tell_gpus(v);
    if (v->hook) {
        buf_clear(&v->body);
        buf_add(&v->body, "", 0);
        signals_write_wish(&v->body, v->s, (int)v->gpus.n);
        scale_hook_wish(v->hook, now_of(v), v->body.data);
    }
    loop_timer_set(v->tick, wait < LONGEST_TICK ? wait : LONGEST_TICK);
}

static int start_links(sched_server *v, const sched_server_options *o, err *e)
{
    link_options l = o->link;
    l.role = HELLO__ROLE__SCHEDULER;
    l.model = NULL;
    link_events events = {link_is_up, link_message, link_is_down, v};
    v->listener = link_listen(v->on, o->listen, &l, &events, e);
    return v->listener ? 0 : -1;
}

sched_server *sched_server_new(net_loop *on, const sched_server_options *o, err *e)
{
    sched_server *v = XNEW(sched_server);
    *v = (sched_server){.on = on, .model = xstrdup(""), .hook = o->hook, .epoch = loop_wall(on) - loop_now(on)};
    v->s = scheduler_new(&o->policy, take_command, v);
    v->pace = pace_new();
    if (o->tap)
        scheduler_set_tap(v->s, o->tap);
    v->tick = loop_timer_new(on, tick, v);
    if (start_links(v, o, e)) {
        sched_server_free(v);
        return NULL;
    }
    loop_timer_set(v->tick, 0);
    return v;
}

void sched_server_free(sched_server *v)
{
    if (!v)
        return;
    while (v->peers)
        peer_free(v->peers);
    link_listener_free(v->listener);
    loop_timer_free(v->tick);
    scheduler_free(v->s);
    pace_free(v->pace);
    outbox_list_deinit(&v->frontends);
    outbox_list_deinit(&v->gpus);
    buf_free(&v->body);
    buf_free(&v->message);
    free(v->dirty);
    free(v->tokens);
    free(v->ends);
    free(v->model);
    free(v);
}

const char *sched_server_address(const sched_server *v)
{
    return link_listener_address(v->listener);
}

scheduler_stats sched_server_stats(const sched_server *v)
{
    return scheduler_get_stats(v->s);
}

void sched_server_check(const sched_server *v)
{
    scheduler_check(v->s);
}

void sched_server_write_metrics(const sched_server *v, buf *out)
{
    signals_write_metrics(out, v->s, (int)v->gpus.n, count_frontends(v));
}

void sched_server_write_signals(const sched_server *v, buf *out)
{
    signals_write_json(out, v->s, (int)v->gpus.n, count_frontends(v));
}
