/* worker.c - see worker.h
 *
 *   wait (only when idle) ──▶ commands ──▶ one engine step ──▶ one Step out ──▶ ...
 *
 * The pipe is read between steps, and also while all requests wait for adapters from storage. Whatever happened since
 * the last Step is packed as it happens, part by part, into the next. */
#include "worker/worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "net/frames.h"
#include "net/pack.h"
#include "worker/adapter_store.h"
#include "worker/wire_sampling.h"

static const double HEARTBEAT = 1;      /* seconds between Steps of a worker that has nothing to do */
static const double LOADING = 0.001;    /* seconds between looks whether an adapter has arrived, when all wait for one */

/* A request that is in the engine. */
typedef struct { uint64_t id; uint32_t attempt; int n_output, n_logprobs; } job;

typedef struct {
    const worker_options *opt;
    backend *be;
    model *m;
    adapter_store adapters;
    engine *g;
    frame_reader in;
    unpacker *messages;
    job *jobs;                          /* [n_jobs] */
    size_t n_jobs, jobs_cap;
    uint64_t n_seen;                    /* commands since the last reset */
    uint64_t n_told;                    /* of them, as of the last Step */
    bool has_new;                       /* requests that the scheduler does not know to be here */
    bool is_loading;                    /* all requests wait for their adapters */
    double sent_at;                     /* the last Step */
    uint32_t reset;
    buf parts;                          /* tokens and ends of the next Step, packed */
    buf body, message, frame, logprobs; /* scratch */
} worker;

static job *find_job(worker *w, uint64_t id)
{
    for (size_t i = 0; i < w->n_jobs; i++)
        if (w->jobs[i].id == id)
            return &w->jobs[i];
    return NULL;
}

static void remove_job(worker *w, job *j)
{
    *j = w->jobs[--w->n_jobs];
}

static void report_end(worker *w, uint64_t id, uint32_t attempt, Outcome why, const char *message)
{
    End end = END__INIT;
    end.id = id;
    end.attempt = attempt;
    end.why = why;
    end.message = (char *)(message ? message : "");
    pack_field(&w->parts, STEP_ENDS, &end.base);
}

static void report_token(worker *w, job *j, const sample_result *r)
{
    uint32_t token = (uint32_t)r->token;
    Tokens t = TOKENS__INIT;
    t.id = j->id;
    t.attempt = j->attempt;
    t.index = (uint32_t)j->n_output++;
    t.n_tokens = 1;
    t.tokens = &token;
    buf_clear(&w->logprobs);
    if (j->n_logprobs >= 0)
        wire_logprobs_write(&w->logprobs, r, j->n_logprobs);
    t.logprobs = (ProtobufCBinaryData){w->logprobs.len, (uint8_t *)w->logprobs.data};
    pack_field(&w->parts, STEP_TOKENS, &t.base);
}

/* Seconds since the epoch to a number that the engine can order by. */
static uint64_t arrival_of(double seconds)
{
    return seconds > 0 && seconds < 1e12 ? (uint64_t)(seconds * 1e6) : 0;
}

static int add_to_engine(worker *w, const Request *r, sampling *how, err *e)
{
    if (r->n_tokens > INT_MAX || r->n_prompt > r->n_tokens)
        return err_set(e, "the request has %zu tokens, %u of them prompt", r->n_tokens, r->n_prompt);
    if (wire_sampling_read(how, r->how.data, r->how.len, r->max_tokens, e))
        return -1;
    engine_request q = {.id = r->id, .arrival = arrival_of(r->arrival), .adapter = *r->adapter ? r->adapter : NULL,
                        .token = (const int *)r->tokens, .n_tokens = (int)r->n_tokens, .n_prompt = (int)r->n_prompt, .how = *how};
    return engine_add(w->g, &q, e);
}

static void take_cancel(worker *w, uint64_t id)
{
    job *j = find_job(w, id);
    if (!j)
        return;
    engine_cancel(w->g, id);
    remove_job(w, j);
}

static void take_add(worker *w, const Request *r)
{
    err e;
    sampling how;
    take_cancel(w, r->id);              /* an older attempt whose end has crossed this on the way */
    if (add_to_engine(w, r, &how, &e)) {
        report_end(w, r->id, r->attempt, OUTCOME__FAILED, e.msg);
        return;
    }
    w->jobs = xgrow(w->jobs, &w->jobs_cap, w->n_jobs + 1, sizeof *w->jobs);
    w->jobs[w->n_jobs++] = (job){r->id, r->attempt, (int)(r->n_tokens - r->n_prompt), how.n_logprobs};
    w->has_new = true;
}

static void take_command(worker *w, const Command *c)
{
    w->n_seen++;
    if (c->what_case == COMMAND__WHAT_ADD) {
        take_add(w, c->add);
    } else if (c->what_case == COMMAND__WHAT_CANCEL) {
        job *j = find_job(w, c->cancel->id);
        if (j && j->attempt == c->cancel->attempt)
            take_cancel(w, c->cancel->id);
    }
}

/* Forget everything. */
static void take_reset(worker *w, uint32_t number)
{
    while (w->n_jobs > 0)
        take_cancel(w, w->jobs[w->n_jobs - 1].id);
    buf_clear(&w->parts);
    w->n_seen = 0;
    w->n_told = UINT64_MAX;             /* the next Step is news */
    w->reset = number;
}

static int take_message(worker *w, const void *bytes, size_t n, err *e)
{
    const Message *m = unpacker_read(w->messages, bytes, n);
    if (!m || m->what_case != MESSAGE__WHAT_COMMANDS)
        return err_set(e, "the runner sent what is no command");
    if (m->commands->reset)
        take_reset(w, m->commands->reset);
    for (size_t i = 0; i < m->commands->n_commands; i++)
        take_command(w, m->commands->commands[i]);
    return 0;
}

/* Take in all commands there are, waiting for the first when there is nothing else to do. */
static int read_commands(worker *w, err *e)
{
    double wait = engine_is_idle(w->g) ? HEARTBEAT : w->is_loading ? LOADING : 0;
    for (; frame_reader_wait(&w->in, wait); wait = 0) {
        if (frame_reader_fill(&w->in, e) < 0)
            return -1;
        size_t n;
        for (const void *bytes; (bytes = frame_reader_next(&w->in, &n));)
            if (take_message(w, bytes, n, e))
                return -1;
    }
    return 0;
}

static void take_event(worker *w, const event *ev)
{
    job *j = find_job(w, ev->id);
    CHECK(j);                           /* the engine says nothing of what was cancelled */
    switch (ev->kind) {
    case EVENT_TOKEN:
        report_token(w, j, &ev->drawn);
        return;
    case EVENT_FINISHED:
        report_end(w, j->id, j->attempt, ev->why == FINISH_STOP ? OUTCOME__STOP : OUTCOME__LENGTH, NULL);
        break;
    case EVENT_EVICTED:
        report_end(w, j->id, j->attempt, OUTCOME__EVICTED, NULL);
        break;
    case EVENT_FAILED:
        report_end(w, j->id, j->attempt, OUTCOME__FAILED, ev->error.msg);
        break;
    }
    remove_job(w, j);
}

static int run_step(worker *w, err *e)
{
    const event *events;
    int n;
    w->is_loading = false;
    if (engine_is_idle(w->g))
        return 0;
    if (engine_step(w->g, &events, &n, e))
        return -1;
    for (int i = 0; i < n; i++)
        take_event(w, &events[i]);
    w->is_loading = n == 0 && engine_get_stats(w->g).n_active == 0;
    return 0;
}

static int send(worker *w, const buf *message)
{
    buf_clear(&w->frame);
    frame_add(&w->frame, message->data, message->len);
    return frame_write_all(w->opt->out, w->frame.data, w->frame.len);
}

static int send_step(worker *w)
{
    if (w->is_loading && w->n_seen == w->n_told && clock_now() - w->sent_at < HEARTBEAT)
        return 0;                       /* nothing has happened */
    engine_stats stats = engine_get_stats(w->g);
    Step s = STEP__INIT;
    s.gpu = (uint32_t)w->opt->gpu;
    s.n_seen = w->n_seen;
    s.pages_free = stats.pages_free - stats.pages_wanted;
    s.reset = w->reset;
    s.n_requests = (uint32_t)w->n_jobs;
    size_t n = step__get_packed_size(&s);
    buf_clear(&w->body);
    CHECK(step__pack(&s, (uint8_t *)buf_extend(&w->body, n)) == n);
    buf_add(&w->body, w->parts.data, w->parts.len);
    buf_clear(&w->parts);
    w->has_new = false;
    w->n_told = w->n_seen;
    w->sent_at = clock_now();
    buf_clear(&w->message);
    pack_bytes(&w->message, MESSAGE__WHAT_STEP, w->body.data, w->body.len);
    return send(w, &w->message);
}

/* The model is loaded. */
static int send_up(worker *w)
{
    engine_stats stats = engine_get_stats(w->g);
    char uuid[64];
    backend_device_uuid(w->opt->device, uuid, sizeof uuid);
    GpuUp up = GPU_UP__INIT;
    up.gpu = (uint32_t)w->opt->gpu;
    up.uuid = uuid;
    up.max_batch = (uint32_t)w->opt->max_batch;
    up.n_pages = (uint32_t)stats.pages_total;
    up.page_len = (uint32_t)stats.page_len;
    up.max_tokens = (uint32_t)w->m->config.max_positions;
    up.device = (char *)w->be->name;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_UP;
    m.gpu_up = &up;
    buf_clear(&w->message);
    pack_message(&w->message, &m);
    return send(w, &w->message);
}

static int open_all(worker *w, err *e)
{
    const worker_options *o = w->opt;
    dtype type;
    weights_form form;
    if (weights_form_find(o->weights, &form, e) || model_weights_type(o->model_dir, &type, e) ||
        !(w->be = backend_open(o->device, type, o->threads, e)) || !(w->m = model_load(w->be, o->model_dir, form, e)))
        return -1;
    w->adapters = (adapter_store){.dir = o->adapters_dir, .named = o->adapter, .n_named = o->n_adapters,
                                  .base = &w->m->config, .be = w->be};
    engine_options g = engine_options_default();
    g.max_batch = o->max_batch;
    g.n_pages = o->kv_pages;
    g.n_adapter_slots = o->n_adapter_slots ? o->n_adapter_slots : g.n_adapter_slots;
    g.adapters = adapter_store_source(&w->adapters);
    g.never_waits = true;
    w->g = engine_new(w->m, &g, e);
    w->in.fd = o->in;
    w->messages = unpacker_new(16 * FRAME_MAX);
    return w->g ? 0 : -1;
}

static void close_all(worker *w)
{
    engine_free(w->g);
    model_free(w->m);
    if (w->be)
        w->be->ops->free(w->be);
    frame_reader_deinit(&w->in);
    unpacker_free(w->messages);
    buf *scratch[] = {&w->parts, &w->body, &w->message, &w->frame, &w->logprobs};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        buf_free(scratch[i]);
    free(w->jobs);
}

/* Until the runner is gone: 0; -1: the device failed. Before the first step with a new request it is reported as taken
 * in: if that step is the worker's end, the scheduler knows who was there. */
static int serve(worker *w, err *e)
{
    err pipe = {0};
    for (int status = send_up(w); status == 0; status = send_step(w)) {
        if (read_commands(w, &pipe) < 0 || (w->has_new && send_step(w)))
            break;
        if (run_step(w, e))
            return -1;
    }
    log_debug("worker %d ends: %s", w->opt->gpu, *pipe.msg ? pipe.msg : "the pipe is closed");
    return 0;
}

int worker_run(const worker_options *o, err *e)
{
    worker w = {.opt = o};
    int status = open_all(&w, e);
    if (status == 0)
        status = serve(&w, e);
    close_all(&w);
    return status;
}
