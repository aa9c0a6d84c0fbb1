/* turns.c - see turns.h */
#include "bench/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/machine.h"
#include "bench/median.h"
#include "bench/random_adapters.h"
#include "bench/shapes.h"

static const char *const names[N_TURNS_MODES] = {"off", "device", "host"};

/* A conversation: all that was said, and the turn that waits for its answer. */
typedef struct {
    int *token; /* [n_tokens] */
    int n_tokens, n_prompt, n_turns;
    uint64_t arrival;
    /* By the clock: when the turn was asked, and when the first token of its answer came (0: not yet). */
    double asked, first;
} talk;

typedef struct {
    const turns_options *o;
    const model *m;
    engine *g;
    talk *talks; /* [conversations] */
    int *queue;  /* [conversations] a ring: whose turn is next */
    int n_queued, next;
    uint64_t n_asked;
    double *waits; /* [conversations * turns] times to first token */
    int n_waits;
    double prompt_tokens, cached_tokens, ideal_tokens, output_tokens;
} run;

turns_options turns_options_default(void)
{
    return (turns_options){.device = "cpu",
                           .tp = 1,
                           .type = DTYPE_F16,
                           .rank = 16,
                           .conversations = 64,
                           .turns = 4,
                           .at_once = 16,
                           .adapters = 4,
                           .system_len = 512,
                           .user_len = 64,
                           .gen_len = 32,
                           .host_bytes = KV_HOST_AUTO,
                           .rounds = 1};
}

int turns_modes_find(const char *list, bool wanted[N_TURNS_MODES], err *e)
{
    char *copy = xstrdup(list), *save = NULL;
    int status = 0, n = 0;
    for (char *name = strtok_r(copy, ",", &save); name && status == 0; name = strtok_r(NULL, ",", &save)) {
        int found = 0;
        for (int i = 0; i < N_TURNS_MODES; i++)
            if (strcmp(name, "all") == 0 || strcmp(name, names[i]) == 0)
                found += wanted[i] = true;
        n += found;
        if (!found)
            status = err_set(e, "unknown mode \"%s\"; known: off, device, host, all", name);
    }
    free(copy);
    return status || n ? status : err_set(e, "--cache names none");
}

static int adapter_of(const run *r, int i)
{
    return r->o->adapters ? i % r->o->adapters : -1;
}

static void say(const run *r, talk *t, uint64_t stream, int n)
{
    for (int i = 0; i < n; i++)
        t->token[t->n_tokens++] =
            (int)(rng_u64(rng_mix(r->o->seed) + stream, (uint64_t)i) % (uint64_t)r->m->config.vocab);
}

static int ask(run *r, int i, err *e)
{
    talk *t = &r->talks[i];
    char name[16];
    snprintf(name, sizeof name, "%d", adapter_of(r, i));
    engine_request q = {.id = (uint64_t)i,
                        .arrival = t->arrival,
                        .adapter = r->o->adapters ? name : NULL,
                        .token = t->token,
                        .n_tokens = t->n_tokens,
                        .n_prompt = t->n_prompt,
                        .sampling = sampling_default()};
    q.sampling.max_tokens = r->o->gen_len;
    q.sampling.ignore_eos = true;
    return engine_add(r->g, &q, e);
}

/* The tokens of a turn's prompt that a cache which forgets nothing would have: those of the turn before, but for the
 * last, whose keys and values were never computed; for a first turn, the system prompt, unless it is the first with
 * that one. The last token of a prompt is always computed. */
static double ideal_of(const run *r, int i, const talk *t)
{
    int page_len = engine_options_default().page_len, n_adapters = r->o->adapters ? r->o->adapters : 1;
    int known = t->n_turns > 0 ? t->n_prompt - r->o->user_len - 1 : i >= n_adapters ? r->o->system_len : 0;
    known = known < t->n_prompt - 1 ? known : t->n_prompt - 1;
    return known / page_len * page_len;
}

static int next_turn(run *r, err *e)
{
    int i = r->queue[r->next];
    talk *t = &r->talks[i];
    r->next = (r->next + 1) % r->o->conversations;
    r->n_queued--;
    say(r, t, (uint64_t)(1000000 + i * r->o->turns + t->n_turns), r->o->user_len);
    t->n_prompt = t->n_tokens;
    t->arrival = r->n_asked++;
    t->asked = clock_now();
    t->first = 0;
    r->prompt_tokens += t->n_prompt;
    r->ideal_tokens += ideal_of(r, i, t);
    return ask(r, i, e);
}

static void end_turn(run *r, int i)
{
    talk *t = &r->talks[i];
    if (++t->n_turns < r->o->turns)
        r->queue[(r->next + r->n_queued++) % r->o->conversations] = i;
}

static int on_event(run *r, const event *ev, err *e)
{
    int i = (int)ev->id;
    talk *t = &r->talks[i];
    switch (ev->kind) {
    case EVENT_TOKEN:
        if (t->first == 0) {
            t->first = clock_now();
            r->waits[r->n_waits++] = t->first - t->asked;
            r->cached_tokens += ev->n_cached;
        }
        t->token[t->n_tokens++] = ev->drawn.token;
        r->output_tokens++;
        return 0;
    case EVENT_FINISHED: end_turn(r, i); return 0;
    case EVENT_EVICTED: return ask(r, i, e);
    case EVENT_FAILED: *e = ev->error; return -1;
    case EVENT_SCORE: break;
    }
    return 0;
}

static int talk_until_all_is_said(run *r, err *e)
{
    for (int n_running = 0; r->n_queued > 0 || n_running > 0;) {
        const event *events;
        int n;
        for (; n_running < r->o->at_once && r->n_queued > 0; n_running++)
            if (next_turn(r, e))
                return -1;
        if (engine_step(r->g, &events, &n, e))
            return -1;
        for (int i = 0; i < n; i++) {
            n_running -= events[i].kind == EVENT_FINISHED;
            if (on_event(r, &events[i], e))
                return -1;
        }
    }
    return 0;
}

static engine *make_engine(const turns_options *o, turns_mode mode, const model *m, random_adapters *source, err *e)
{
    engine_options opt = engine_options_default();
    opt.max_batch = o->at_once;
    opt.n_pages = o->kv_pages;
    opt.kv = o->kv;
    opt.now = clock_reading;
    opt.no_prefix_cache = mode == TURNS_OFF;
    opt.host_bytes = mode == TURNS_HOST ? o->host_bytes : 0;
    opt.n_adapter_slots = o->adapters ? o->adapters : 1;
    opt.adapters = random_adapters_source(source);
    return engine_new(m, &opt, e);
}

/* Puts the system prompts into all conversations, and all conversations in line. */
static void begin_run(run *r)
{
    const turns_options *o = r->o;
    size_t n = (size_t)o->conversations,
           longest = (size_t)o->system_len + (size_t)o->turns * (size_t)(o->user_len + o->gen_len);
    r->talks = XNEW_ARRAY(talk, n);
    r->queue = XNEW_ARRAY(int, n);
    r->waits = XNEW_ARRAY(double, n *(size_t)o->turns);
    for (int i = 0; i < o->conversations; i++) {
        r->talks[i].token = XNEW_ARRAY(int, longest);
        say(r, &r->talks[i], (uint64_t)(adapter_of(r, i) + 1), o->system_len);
        r->queue[r->n_queued++] = i;
    }
}

static void end(run *r)
{
    for (int i = 0; r->talks && i < r->o->conversations; i++)
        free(r->talks[i].token);
    free(r->talks);
    free(r->queue);
    free(r->waits);
    engine_free(r->g);
}

/* Prints a line. GB/s: the latest average for pages that came back. */
static void print_result(run *r, turns_mode mode, double ready, double seconds)
{
    engine_stats s = engine_get_stats(r->g);
    double sum = 0;
    for (int i = 0; i < r->n_waits; i++)
        sum += r->waits[i];
    sort_times(r->waits, (size_t)r->n_waits);
    double rate = s.fetch_seconds > 0 ? (double)s.page_bytes / s.fetch_seconds * 1e-9 : 0;
    printf("%-7s %8.2f %8.2f %9.1f %9.0f %9.1f %9.1f %8.1f%% %8.1f%% %8llu %8llu %6.1f %6d/%-6d %5llu\n", names[mode],
           ready, seconds, r->output_tokens / seconds, (r->prompt_tokens + r->output_tokens) / seconds,
           sum / r->n_waits * 1e3, r->waits[(r->n_waits * 99 + 99) / 100 - 1] * 1e3,
           100 * r->cached_tokens / r->prompt_tokens, 100 * r->ideal_tokens / r->prompt_tokens,
           (unsigned long long)s.pages_saved, (unsigned long long)s.pages_fetched, rate, s.host_pages_used,
           s.host_pages, (unsigned long long)s.evictions);
    fflush(stdout);
}

static int run_mode(const turns_options *o, const model *m, turns_mode mode, bool show, err *e)
{
    random_adapters source = {.m = m, .rank = o->rank, .type = backend_weight_type(m->be, o->type)};
    double making = clock_now();
    run r = {.o = o, .m = m, .g = make_engine(o, mode, m, &source, e)};
    int status = r.g && random_adapters_preload(r.g, o->adapters, e) == 0 ? 0 : -1;
    if (status == 0) {
        begin_run(&r);
        double start = clock_now();
        status = talk_until_all_is_said(&r, e);
        if (status == 0 && show)
            print_result(&r, mode, start - making, clock_now() - start);
    }
    end(&r);
    return status;
}

/* Runs once for nothing: the first run on a device is slower, as everything lazy is set up. */
static int warm_up(const turns_options *o, const model *m, err *e)
{
    turns_options few = *o;
    few.conversations = few.at_once < few.conversations ? few.at_once : few.conversations;
    few.turns = 1;
    few.seed = ~o->seed;
    return run_mode(&few, m, TURNS_OFF, false, e);
}

static int run_modes(const turns_options *o, const model *m, double seconds, err *e)
{
    char cpu[128];
    machine_cpu_name(cpu, sizeof cpu);
    printf("punica " PUNICA_VERSION " bench turns on %s, %s\n", cpu, m->be->name);
    printf("%s, %s, ready in %.1f s; %d conversations of %d turns, %d at once, %d adapters; system prompt %d, said %d, "
           "answered %d a turn; KvCache pages %d%s\n\n",
           o->shape ? o->shape : o->model_dir, weights_name(o->form, m->config.quant, m->config.type), seconds,
           o->conversations, o->turns, o->at_once, o->adapters, o->system_len, o->user_len, o->gen_len, o->kv_pages,
           o->kv_pages ? "" : " (as many as fit)");
    fflush(stdout);
    if (warm_up(o, m, e))
        return -1;
    printf("cache    ready s  seconds  output/s     all/s  1st mean    1st 99%%   cached    ideal    saved  fetched   "
           "GB/s   host pages evicted\n");
    for (int round = 0; round < o->rounds; round++)
        for (int mode = 0; mode < N_TURNS_MODES; mode++)
            if (o->run[mode] && run_mode(o, m, mode, true, e))
                return -1;
    return 0;
}

static model *make_model(const turns_options *o, backend *be, err *e)
{
    model_config c;
    if (o->model_dir)
        return model_load(be, o->model_dir, o->form, e);
    return shape_find(o->shape, o->type, &c, e) ? NULL : model_random(be, &c, o->form, o->seed, e);
}

int turns_run(const turns_options *o, err *e)
{
    dtype type = o->type;
    backend *be = NULL;
    if (!o->model_dir || model_weights_type(o->model_dir, &type, e) == 0)
        be = backend_open(o->device, o->tp, type, o->threads, e);
    double start = clock_now();
    model *m = be ? make_model(o, be, e) : NULL;
    int status = m ? run_modes(o, m, clock_now() - start, e) : -1;
    model_free(m);
    backend_close(be);
    return status;
}
