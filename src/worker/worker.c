/* worker.c - see worker.h
 *
 * Everything that happens between two Steps is packed at once, part by part, into the next Step. */
#include "worker/worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/frames.h"
#include "net/pack.h"
#include "worker/adapter_key.h"
#include "worker/wire_sampling.h"

/* Least seconds between lists of residents: if changed, if unchanged. */
static const double RESIDENTS_SOON = 1, RESIDENTS_AGAIN = 5;
enum { MAX_RESIDENTS = 1024 };
static const double HEARTBEAT = 1;        /* seconds between Steps of a worker that has nothing to do */
static const uint64_t PROBE = UINT64_MAX; /* the id of a probe's request */
enum { PROBE_TOKENS = 16 };
static const double MASKS_SHOW = 0.5; /* share of a step's time above which masks spoil its measurement */

/* Seconds between checks whether an adapter or grammar has come, when all requests wait for one. */
static const double LOADING = 0.001;

/* Seconds that a request may wait for its adapter to be fetched: meanwhile it takes a place on this GPU. */
static const double FETCHING = 60;
static const double UNAVAILABLE = 5; /* Retry-After, in seconds, of a request whose adapter did not come */
enum { FETCHES = 3 };                /* for one request, if the disk cache evicts its adapter before it is read */

/* A request that is in the engine, or waits for its grammar to be compiled or its adapter to be fetched. */
typedef struct {
    uint64_t id;
    uint32_t attempt;
    int n_told; /* tokens reported so far: scored ones of the prompt, and output */
    int n_logprobs, n_prompt_logprobs;
    unsigned char *waiting; /* [waiting_bytes] the packed Request; NULL: it is in the engine */
    size_t waiting_bytes;
    char *fetchable; /* the id of its adapter, if that has a source; else NULL */
    char *wanted;    /* name and source of the adapter it waits for; NULL: none */
    double wanted_at;
    bool has_come; /* the wanted adapter has been fetched */
    int n_wants;   /* times it has been asked for */
} work;

struct worker {
    worker_setup is; /* its strings are owned */
    engine *g;       /* borrowed */
    unpacker *messages;
    work *jobs; /* [n_jobs] */
    size_t n_jobs, jobs_cap;
    uint64_t n_seen;     /* commands since the last reset */
    uint64_t n_told;     /* n_seen in the last Step */
    bool has_new;        /* there are requests that no Step has reported as seen */
    bool has_come;       /* an adapter that was waited for has come, or cannot be fetched */
    uint64_t n_compiled; /* grammars_compiled() when waiting requests were last tried */
    bool is_loading;     /* all requests wait for their adapters or grammars */
    bool is_probing;
    bool is_busy;            /* the last step left requests that run */
    double busy_since;       /* when the step began */
    uint64_t rows, context;  /* of the last step; 0: it has been reported */
    double seconds;          /* that it took; 0: not known */
    double residents_at;     /* when residents were last listed, */
    uint64_t residents_told; /* and adapter_slots_changes() then */
    double sent_at;          /* when the last Step was sent */
    bool told_of_rows;       /* the last Step had rows: silence after it would look like a step that still runs */
    uint32_t reset;
    buf parts;                        /* tokens and ends of the next Step, packed */
    buf body, message, logprobs, key; /* scratch */
    uint32_t *token;                  /* [token_cap] scratch */
    size_t token_cap;
};

worker *worker_new(engine *g, const worker_setup *s)
{
    worker *w = XNEW(worker);
    *w = (worker){.is = *s, .g = g, .messages = unpacker_new(16 * FRAME_MAX)};
    w->is.uuid = xstrdup(s->uuid);
    w->is.device = xstrdup(s->device);
    return w;
}

static void free_job(work *j)
{
    free(j->waiting);
    free(j->fetchable);
    free(j->wanted);
}

void worker_free(worker *w)
{
    if (!w)
        return;
    unpacker_free(w->messages);
    buf *scratch[] = {&w->parts, &w->body, &w->message, &w->logprobs, &w->key};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        buf_free(scratch[i]);
    free((char *)w->is.uuid);
    free((char *)w->is.device);
    for (size_t i = 0; i < w->n_jobs; i++)
        free_job(&w->jobs[i]);
    free(w->jobs);
    free(w->token);
    free(w);
}

static work *find_job(worker *w, uint64_t id)
{
    for (size_t i = 0; i < w->n_jobs; i++)
        if (w->jobs[i].id == id)
            return &w->jobs[i];
    return NULL;
}

static void remove_job(worker *w, work *j)
{
    free_job(j);
    *j = w->jobs[--w->n_jobs];
}

static EndReason end_reason_of(finish_reason why)
{
    switch (why) {
    case FINISH_STOP: return END_REASON__STOP;
    case FINISH_LENGTH: return END_REASON__LENGTH;
    }
    CHECK(!"a finish_reason");
    return END_REASON__FAILED;
}

static void report_end(worker *w, uint64_t id, uint32_t attempt, EndReason why)
{
    End end = END__INIT;
    end.id = id;
    end.attempt = attempt;
    end.why = why;
    pack_field(&w->parts, STEP_ENDS, &end.base);
}

/* Reports that a request failed. retry_after: seconds after which its adapter may be there; 0: a retry is no use. */
static void report_failure(worker *w, uint64_t id, uint32_t attempt, const err *why, double retry_after)
{
    End end = END__INIT;
    end.id = id;
    end.attempt = attempt;
    end.why = END_REASON__FAILED;
    end.message = (char *)why->msg;
    end.retry_after = retry_after;
    pack_field(&w->parts, STEP_ENDS, &end.base);
}

/* Reports n tokens of one request, all scored or all drawn. Packed LogprobLists one behind the other are a single
 * list. */
static void report_tokens(worker *w, work *j, const event *ev, int n)
{
    int n_logprobs = ev->kind == EVENT_SCORE ? j->n_prompt_logprobs : j->n_logprobs;
    w->token = xgrow(w->token, &w->token_cap, (size_t)n, sizeof *w->token);
    buf_clear(&w->logprobs);
    for (int i = 0; i < n; i++) {
        w->token[i] = (uint32_t)ev[i].drawn.token;
        if (n_logprobs >= 0)
            wire_logprobs_write(&w->logprobs, &ev[i].drawn, n_logprobs);
    }
    Tokens t = TOKENS__INIT;
    t.id = j->id;
    t.attempt = j->attempt;
    t.cached = j->n_told == 0 ? (uint32_t)ev->n_cached : 0;
    t.index = (uint32_t)j->n_told;
    t.n_tokens = (size_t)n;
    t.tokens = w->token;
    j->n_told += n;
    t.logprobs = (ProtobufCBinaryData){w->logprobs.len, (uint8_t *)w->logprobs.data};
    pack_field(&w->parts, STEP_TOKENS, &t.base);
}

/* Converts the scheduler's seconds to a number that the engine can order by. */
static uint64_t arrival_of(double seconds)
{
    return seconds > 0 && seconds < 1e12 ? (uint64_t)(seconds * 1e6) : 0;
}

static int check_request(const Request *r, err *e)
{
    if (r->id == PROBE)
        return err_set(e, "no request may have this id");
    if (r->n_tokens > INT_MAX || r->n_prompt > r->n_tokens)
        return err_set(e, "the request has %zu tokens, %u of them prompt", r->n_tokens, r->n_prompt);
    if (r->n_to_score > r->n_prompt || r->n_scored > r->n_to_score)
        return err_set(e, "%u of %u tokens of the prompt have been scored", r->n_scored, r->n_to_score);
    if (r->digest.len != 0 && r->digest.len != DIGEST_BYTES)
        return err_set(e, "the request has an adapter's digest of %zu bytes", r->digest.len);
    return 0;
}

static int add_with(worker *w, const Request *r, const wire_sampling *asked, err *e)
{
    adapter_key_make(&w->key, r->adapter, r->digest.data, r->digest.len);
    engine_request q = {.id = r->id,
                        .arrival = arrival_of(r->arrival),
                        .adapter = *r->adapter ? w->key.data : NULL,
                        .cache_salt = asked->wire->cache_salt,
                        .token = (const int *)r->tokens,
                        .n_tokens = (int)r->n_tokens,
                        .n_prompt = (int)r->n_prompt,
                        .n_scored = (int)r->n_scored,
                        .sampling = asked->params,
                        .rules = asked->rules};
    return engine_add(w->g, &q, e);
}

/* ADD_LATER: the request's grammar is being compiled, or its adapter fetched. ADD_UNAVAILABLE: it failed because its
 * adapter could not be fetched. */
typedef enum { ADD_UNAVAILABLE = -2, ADD_FAILED, ADD_DONE, ADD_LATER } add_status;

static double retry_after(add_status failed)
{
    return failed == ADD_UNAVAILABLE ? UNAVAILABLE : 0;
}

/* Returns what tells apart several wants of the same content, which the runner may fetch from more than one place. */
static char *want_text(const char *adapter, const char *source)
{
    return xasprintf("%s\n%s", adapter, source);
}

/* Asks the runner to fetch an adapter. A failure to send is noticed at the next Step. */
static void send_want(worker *w, const Request *r, const wire_sampling *asked)
{
    Want want = WANT__INIT;
    want.id = asked->wire->adapter_id;
    want.adapter = r->adapter;
    want.source = asked->wire->adapter_source;
    want.trusted = asked->wire->trusted_source;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_WANT;
    m.want = &want;
    buf_clear(&w->message);
    pack_message(&w->message, &m);
    w->is.send(w->is.ctx, w->message.data, w->message.len);
}

static bool has_files(const worker *w, const work *j)
{
    return !w->is.has_adapter || w->is.has_adapter(w->is.ctx, j->fetchable);
}

/* Looks for the adapter's files on this host: ADD_DONE. If they are missing, asks the runner for them: ADD_LATER. */
static add_status find_files(worker *w, const Request *r, const wire_sampling *asked, work *j, err *e)
{
    if (*asked->wire->adapter_source && !j->fetchable)
        j->fetchable = xstrdup(asked->wire->adapter_id);
    if (!j->fetchable || has_files(w, j)) {
        free(j->wanted);
        j->wanted = NULL;
        return ADD_DONE;
    }
    double now = w->is.now(w->is.ctx);
    if (j->wanted && !j->has_come) {
        if (now - j->wanted_at < FETCHING)
            return ADD_LATER;
        err_set(e, "adapter %s is still on its way to the host that is to serve it; try again later", r->adapter);
        return ADD_UNAVAILABLE;
    }
    if (j->n_wants++ == FETCHES) {
        err_set(e, "adapter %s: the disk cache of the host that is to serve it is too small to keep it", r->adapter);
        return ADD_UNAVAILABLE;
    }
    free(j->wanted);
    j->wanted = want_text(r->adapter, asked->wire->adapter_source);
    j->wanted_at = now;
    j->has_come = false;
    send_want(w, r, asked);
    return ADD_LATER;
}

static int check_scores(const Request *r, const sampling_params *sampling, err *e)
{
    uint32_t n = sampling->n_prompt_logprobs >= 0 && r->n_prompt > 0 ? r->n_prompt - 1 : 0;
    return r->n_to_score == n ? 0 : err_set(e, "%u tokens of the prompt are to be scored, not %u", n, r->n_to_score);
}

static add_status add_to_engine(worker *w, const Request *r, work *j, err *e)
{
    wire_sampling asked;
    if (check_request(r, e) || wire_sampling_read(&asked, r->sampling.data, r->sampling.len, r->max_tokens, e))
        return ADD_FAILED;
    j->n_logprobs = asked.params.n_logprobs;
    j->n_prompt_logprobs = asked.params.n_prompt_logprobs;
    grammar_status found = check_scores(r, &asked.params, e) ? GRAMMAR_FAILED : GRAMMAR_READY;
    const Sampling *s = asked.wire;
    if (found == GRAMMAR_READY && s->grammar_kind != GRAMMAR_NONE)
        found = grammars_find(w->is.grammars, s->cache_salt, (grammar_kind)s->grammar_kind, s->grammar.data,
                              s->grammar.len, &asked.rules.grammar, e);
    add_status status = found == GRAMMAR_COMPILING ? ADD_LATER : ADD_FAILED;
    add_status files = found == GRAMMAR_FAILED ? ADD_FAILED : find_files(w, r, &asked, j, e);
    if (files != ADD_DONE)
        status = files;
    else if (found == GRAMMAR_READY && add_with(w, r, &asked, e) == 0)
        status = ADD_DONE;
    wire_sampling_deinit(&asked);
    return status;
}

static void receive_cancel(worker *w, uint64_t id)
{
    work *j = find_job(w, id);
    if (!j)
        return;
    engine_cancel(w->g, id);
    remove_job(w, j);
    w->is_busy = w->is_busy && !engine_is_idle(w->g); /* if idle, the next step is timed from when it begins */
}

static bool any_waits(const worker *w)
{
    for (size_t i = 0; i < w->n_jobs; i++)
        if (w->jobs[i].waiting)
            return true;
    return false;
}

/* Begins to draw tokens that nobody gets, unless there is something to do. The next request ends the probe. */
static void begin_probe(worker *w)
{
    err e;
    static const int token[] = {0};
    engine_request q = {.id = PROBE, .token = token, .n_tokens = 1, .n_prompt = 1, .sampling = sampling_default()};
    q.sampling.max_tokens = PROBE_TOKENS;
    q.sampling.ignore_eos = true;
    w->is_probing = engine_is_idle(w->g) && !any_waits(w) && engine_add(w->g, &q, &e) == 0;
}

static void end_probe(worker *w)
{
    if (w->is_probing)
        engine_cancel(w->g, PROBE);
    w->is_probing = false;
    w->is_busy = w->is_busy && !engine_is_idle(w->g);
}

static void receive_add(worker *w, const Request *r)
{
    err e;
    end_probe(w);
    receive_cancel(w, r->id); /* an older attempt, if one is still here */
    work j = {.id = r->id, .attempt = r->attempt, .n_told = (int)(r->n_scored + r->n_tokens - r->n_prompt)};
    add_status status = add_to_engine(w, r, &j, &e);
    if (status < 0) {
        report_failure(w, r->id, r->attempt, &e, retry_after(status));
        free_job(&j);
        return;
    }
    if (status == ADD_LATER) {
        j.waiting_bytes = request__get_packed_size(r);
        j.waiting = xmalloc(j.waiting_bytes + 1);
        request__pack(r, j.waiting);
    }
    w->jobs = xgrow(w->jobs, &w->jobs_cap, w->n_jobs + 1, sizeof *w->jobs);
    w->jobs[w->n_jobs++] = j;
    w->has_new = true;
}

/* Returns whether some adapter has come, or has been waited for too long. */
static bool has_files_news(const worker *w)
{
    double now = w->is.now(w->is.ctx);
    bool news = w->has_come;
    for (size_t i = 0; i < w->n_jobs && !news; i++)
        news = w->jobs[i].wanted && now - w->jobs[i].wanted_at >= FETCHING;
    return news;
}

/* Adds to the engine those waiting requests whose grammars and adapters are ready now. */
static void add_waiting(worker *w)
{
    if (!any_waits(w))
        return;
    uint64_t n_compiled = grammars_compiled(w->is.grammars);
    if (n_compiled == w->n_compiled && !has_files_news(w))
        return;
    w->n_compiled = n_compiled;
    w->has_come = false;
    for (size_t i = 0; i < w->n_jobs; i++) {
        work *j = &w->jobs[i];
        err e;
        if (!j->waiting)
            continue;
        Request *r = request__unpack(NULL, j->waiting_bytes, j->waiting);
        add_status status = add_to_engine(w, r, j, &e);
        request__free_unpacked(r, NULL);
        if (status == ADD_LATER)
            continue;
        if (status < 0) {
            report_failure(w, j->id, j->attempt, &e, retry_after(status));
            remove_job(w, j);
            i--;
            continue;
        }
        free(j->waiting);
        j->waiting = NULL;
    }
}

static void receive_command(worker *w, const Command *c)
{
    w->n_seen++;
    if (c->what_case == COMMAND__WHAT_ADD) {
        receive_add(w, c->add);
    } else if (c->what_case == COMMAND__WHAT_CANCEL) {
        work *j = find_job(w, c->cancel->id);
        if (j && j->attempt == c->cancel->attempt)
            receive_cancel(w, c->cancel->id);
    }
}

/* Handles the runner's answer to a Want: the adapter is here, or cannot be fetched. */
static void receive_fetched(worker *w, const Fetched *f)
{
    char *failed = *f->error ? want_text(f->adapter, f->source) : NULL;
    for (size_t i = 0; i < w->n_jobs; i++) {
        work *j = &w->jobs[i];
        if (!j->wanted || strcmp(j->fetchable, f->id) != 0 || (failed && strcmp(j->wanted, failed) != 0))
            continue;
        w->has_come = j->has_come = true;
        if (!failed)
            continue;
        err e;
        err_set(&e, "the adapter cannot be fetched to the host that is to serve it: %s", f->error);
        report_failure(w, j->id, j->attempt, &e, UNAVAILABLE);
        remove_job(w, j);
        i--;
    }
    free(failed);
}

/* Forgets all requests and counts commands from 0. */
static void receive_reset(worker *w, uint32_t number)
{
    end_probe(w);
    while (w->n_jobs > 0)
        receive_cancel(w, w->jobs[w->n_jobs - 1].id);
    buf_clear(&w->parts);
    w->n_seen = 0;
    w->n_told = UINT64_MAX; /* so that the next Step is sent */
    w->reset = number;
}

int worker_receive(worker *w, const void *bytes, size_t n, err *e)
{
    const Message *m = unpacker_read(w->messages, bytes, n);
    if (!m || m->what_case != MESSAGE__WHAT_COMMANDS)
        return err_set(e, "the runner sent what is no command");
    if (m->commands->reset)
        receive_reset(w, m->commands->reset);
    for (size_t i = 0; i < m->commands->n_commands; i++)
        receive_command(w, m->commands->commands[i]);
    for (size_t i = 0; i < m->commands->n_fetched; i++)
        receive_fetched(w, m->commands->fetched[i]);
    if (m->commands->probe && !w->is_probing)
        begin_probe(w);
    return 0;
}

bool worker_is_empty(const worker *w)
{
    return (w->is_probing || engine_is_idle(w->g)) && !any_waits(w);
}

double worker_may_wait(const worker *w)
{
    bool idle = engine_is_idle(w->g);
    return idle && !any_waits(w) ? HEARTBEAT : idle || w->is_loading ? LOADING : 0;
}

/* Returns whether a request failed because the disk cache evicted its adapter's files before they were read. It is then
 * scheduled again, and the files are fetched again. */
static bool lost_its_files(const worker *w, const work *j)
{
    return j->fetchable && !has_files(w, j);
}

/* Handles the first of n events, and those behind it that are reported together with it. Returns how many. */
static int on_events(worker *w, const event *ev, int n)
{
    int same = 1;
    if (ev->id == PROBE) {
        w->is_probing = ev->kind == EVENT_TOKEN;
        return 1;
    }
    work *j = find_job(w, ev->id);
    CHECK(j); /* the engine says nothing of what was cancelled */
    switch (ev->kind) {
    case EVENT_SCORE:
    case EVENT_TOKEN:
        while (same < n && ev[same].id == ev->id && ev[same].kind == ev->kind)
            same++;
        report_tokens(w, j, ev, same);
        return same;
    case EVENT_FINISHED: report_end(w, j->id, j->attempt, end_reason_of(ev->why)); break;
    case EVENT_EVICTED: report_end(w, j->id, j->attempt, END_REASON__EVICTED); break;
    case EVENT_FAILED:
        if (lost_its_files(w, j))
            report_end(w, j->id, j->attempt, END_REASON__EVICTED);
        else
            report_failure(w, j->id, j->attempt, &ev->error, 0);
        break;
    }
    remove_job(w, j);
    return 1;
}

/* Notes how large the step was and how long it took. Where grammar masks took a large part of that, the time is
 * dropped: it is not known how much of theirs overlapped with the model, so it says nothing about the device. */
static void measure(worker *w, const engine_stats *before, const engine_stats *after)
{
    double now = w->is.now(w->is.ctx);
    w->rows = after->rows - before->rows;
    w->context = after->kv_positions - before->kv_positions;
    w->seconds = now - w->busy_since;
    if (after->mask_seconds - before->mask_seconds > MASKS_SHOW * w->seconds)
        w->seconds = 0;
    w->busy_since = now;
    w->is_busy = after->n_active > 0;
}

static int run_step(worker *w, err *e)
{
    const event *events;
    int n;
    w->is_loading = false;
    add_waiting(w);
    if (engine_is_idle(w->g)) {
        w->is_loading = any_waits(w);
        return 0;
    }
    engine_stats before = engine_get_stats(w->g);
    if (engine_step(w->g, &events, &n, e))
        return -1;
    for (int i = 0; i < n;)
        i += on_events(w, &events[i], n - i);
    engine_stats after = engine_get_stats(w->g);
    w->is_loading = n == 0 && after.rows == before.rows; /* nothing was computed: adapters or pages are awaited */
    measure(w, &before, &after);
    return 0;
}

static worker_status send_message(worker *w)
{
    return w->is.send(w->is.ctx, w->message.data, w->message.len) ? WORKER_DISCONNECTED : WORKER_GOES_ON;
}

/* A list of residents under construction. */
typedef struct {
    Resident *at;
    Resident **list;
    digest *of;
    size_t n;
} resident_list;

static Tier wire_tier(adapter_tier tier)
{
    switch (tier) {
    case TIER_DEVICE: return TIER__DEVICE;
    case TIER_HOST: return TIER__HOST;
    case TIER_DISK: return TIER__DISK;
    }
    CHECK(!"an adapter_tier");
    return TIER__DISK;
}

static void add_resident(void *ctx, const adapter_resident *r)
{
    resident_list *l = ctx;
    const char *hex;
    adapter_key_split(r->name, &hex);
    if (!hex || l->n == MAX_RESIDENTS)
        return;
    digest_of_parts(&l->of[l->n], &(digest_part){r->name, strlen(r->name)}, 1);
    Resident *to = l->list[l->n] = &l->at[l->n];
    *to = (Resident)RESIDENT__INIT;
    to->digest = (ProtobufCBinaryData){.data = l->of[l->n].byte, .len = DIGEST_BYTES};
    to->tier = wire_tier(r->tier);
    to->from = wire_tier(r->from);
    to->micros = (uint64_t)(r->seconds * 1e6);
    l->n++;
}

/* Adds the list of residents to the next Step, if it is time. */
static void report_residents(worker *w)
{
    double now = w->is.now(w->is.ctx), since = now - w->residents_at;
    uint64_t changes = w->is.tells_residents ? adapter_slots_changes(engine_adapters(w->g)) : 0;
    if (!w->is.tells_residents || since < RESIDENTS_SOON || (since < RESIDENTS_AGAIN && changes == w->residents_told))
        return;
    resident_list l = {.at = XNEW_ARRAY(Resident, MAX_RESIDENTS),
                       .list = XNEW_ARRAY(Resident *, MAX_RESIDENTS),
                       .of = XNEW_ARRAY(digest, MAX_RESIDENTS)};
    adapter_slots_each(engine_adapters(w->g), add_resident, &l);
    Residents all = RESIDENTS__INIT;
    all.n_adapters = l.n;
    all.adapters = l.list;
    pack_field(&w->parts, STEP_RESIDENTS, &all.base);
    w->residents_at = now;
    w->residents_told = changes;
    free(l.at);
    free(l.list);
    free(l.of);
}

static worker_status send_step(worker *w)
{
    report_residents(w);
    engine_stats stats = engine_get_stats(w->g);
    Step s = STEP__INIT;
    s.gpu = (uint32_t)w->is.gpu;
    s.n_seen = w->n_seen;
    s.pages_free = w->is_probing ? stats.pages_total : stats.pages_free - stats.pages_wanted;
    s.host_pages = (uint32_t)stats.host_pages_used;
    s.pages_saved = stats.pages_saved;
    s.pages_fetched = stats.pages_fetched;
    s.reset = w->reset;
    s.n_requests = (uint32_t)w->n_jobs;
    s.rows = (uint32_t)w->rows;
    s.context = w->context;
    s.micros = (uint64_t)(w->seconds * 1e6);
    w->told_of_rows = w->rows > 0;
    w->rows = w->context = 0;
    w->seconds = 0;
    size_t n = step__get_packed_size(&s);
    buf_clear(&w->body);
    CHECK(step__pack(&s, (uint8_t *)buf_extend(&w->body, n)) == n);
    buf_add(&w->body, w->parts.data, w->parts.len);
    buf_clear(&w->parts);
    w->has_new = false;
    w->n_told = w->n_seen;
    w->sent_at = w->is.now(w->is.ctx);
    buf_clear(&w->message);
    pack_bytes(&w->message, MESSAGE__WHAT_STEP, w->body.data, w->body.len);
    return send_message(w);
}

worker_status worker_announce(worker *w)
{
    engine_stats stats = engine_get_stats(w->g);
    GpuUp up = GPU_UP__INIT;
    up.gpu = (uint32_t)w->is.gpu;
    up.uuid = (char *)w->is.uuid;
    up.max_batch = (uint32_t)w->is.max_batch;
    up.n_pages = (uint32_t)stats.pages_total;
    up.page_len = (uint32_t)stats.page_len;
    up.max_tokens = (uint32_t)w->is.max_tokens;
    up.device = (char *)w->is.device;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_UP;
    m.gpu_up = &up;
    buf_clear(&w->message);
    pack_message(&w->message, &m);
    return send_message(w);
}

worker_status worker_report_news(worker *w)
{
    if (!w->is_busy)
        w->busy_since = w->is.now(w->is.ctx);
    return w->has_new ? send_step(w) : WORKER_GOES_ON;
}

worker_status worker_step(worker *w, err *e)
{
    if (run_step(w, e))
        return WORKER_FAILED;
    bool nothing_new = w->is_loading && w->parts.len == 0 && !w->told_of_rows && w->n_seen == w->n_told &&
                       w->is.now(w->is.ctx) - w->sent_at < HEARTBEAT;
    return nothing_new ? WORKER_GOES_ON : send_step(w);
}
