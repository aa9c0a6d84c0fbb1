/* sim_gpu.c - see sim_gpu.h */
#include "sim/sim_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "model/lora.h"
#include "sim/sim_loaders.h"

typedef struct {
    admission_item item; /* first */
    int adapter, n_prompt;
    uint32_t attempt;
    bool seen; /* it has had rows */
    char adapter_name[16];
} row;

typedef struct {
    bool add;
    sim_request what;
} sim_command;

struct sim_gpu {
    sim_gpu_setup is;
    kv_pool *pool;
    sim_loaders loaders;
    adapter_slots *slots;
    admission *admission;
    admission_step step; /* the one that runs */
    double seconds;      /* that the step takes */
    bool running;
    sim_command *inbox; /* [n_inbox] */
    size_t n_inbox, inbox_cap;
    int n_coming;   /* adds less cancels in the inbox */
    int *last_step; /* [n_adapters] number of the step in which it was last counted */
    int n_steps;
    report_tokens *tokens; /* of the report */
    int *drawn;            /* the tokens themselves */
    report_end *ends;
    size_t tokens_cap, drawn_cap, ends_cap;
    gpu_report report;
    uint64_t n_cached;
};

/* Adapters have no weights here, and the device no memory. */
static lora *load_nothing(void *ctx, const char *name, err *e)
{
    (void)ctx, (void)name, (void)e;
    return lora_new(0);
}

static void release_nothing(backend *be, void *p)
{
    (void)be, (void)p;
}

static const backend_ops no_ops = {.release = release_nothing};
static backend no_device = {.ops = &no_ops, .owns_host_memory = true};

static void add_end(sim_gpu *g, const row *r, end_reason why)
{
    g->ends = xgrow(g->ends, &g->ends_cap, (size_t)g->report.n_ends + 1, sizeof *g->ends);
    g->ends[g->report.n_ends++] = (report_end){.id = r->item.id, .attempt = r->attempt, .why = why};
}

static void free_row(row *r)
{
    free(r->item.token);
    free(r);
}

static void on_evicted(void *ctx, admission_item *it)
{
    add_end(ctx, (row *)it, END_EVICTED);
    free_row((row *)it);
}

sim_gpu *sim_gpu_new(const sim_gpu_setup *s)
{
    engine_options usual = engine_options_default();
    admission_limits limits = {s->max_batch, GPU_PROMPT_ROWS, GPU_PROMPT_ROWS, usual.itl_target};
    sim_gpu *g = XNEW(sim_gpu);
    g->is = *s;
    g->pool = kv_pool_new(s->n_pages, 0, s->page_len);
    sim_loaders_init(&g->loaders, s->model->adapter_load_time);
    g->slots = adapter_slots_new(&no_device, USUAL_SLOTS, 0, (adapter_source){.load = load_nothing}, &g->loaders.base);
    g->admission = admission_new(&limits, g->pool, g->slots, (admission_events){.evicted = on_evicted, .ctx = g});
    g->last_step = XNEW_ARRAY(int, (size_t)s->n_adapters + 1);
    return g;
}

static void drop_row(sim_gpu *g, row *r)
{
    admission_remove(g->admission, &r->item);
    free_row(r);
}

void sim_gpu_free(sim_gpu *g)
{
    for (admission_item *it; (it = admission_last(g->admission));)
        drop_row(g, (row *)it);
    admission_free(g->admission);
    adapter_slots_free(g->slots);
    sim_loaders_deinit(&g->loaders);
    kv_pool_free(g->pool);
    free(g->inbox);
    free(g->last_step);
    free(g->tokens);
    free(g->drawn);
    free(g->ends);
    free(g);
}

static void send(sim_gpu *g, sim_command c)
{
    if (!g->running && g->n_inbox == 0)
        g->is.wakeups->gpu[g->is.wakeups->n++] = g->is.number;
    g->inbox = xgrow(g->inbox, &g->inbox_cap, g->n_inbox + 1, sizeof *g->inbox);
    g->inbox[g->n_inbox++] = c;
    g->n_coming += c.add ? 1 : -1;
}

void sim_gpu_add(sim_gpu *g, const sim_request *r)
{
    send(g, (sim_command){true, *r});
}

void sim_gpu_cancel(sim_gpu *g, int id, uint32_t attempt)
{
    send(g, (sim_command){false, {.id = id, .attempt = attempt}});
}

/* Returns all n tokens that a request may come to have; owned by the caller. */
static int *write_tokens(const sim_arrival *arrival, int n)
{
    int *token = XNEW_ARRAY(int, (size_t)n);
    for (int i = 0; i < n; i++)
        token[i] = sim_arrival_token(arrival, i);
    return token;
}

static void add_row(sim_gpu *g, const sim_request *q)
{
    row *r = XNEW(row);
    int n_prompt = q->n_tokens - q->n_output;
    *r = (row){.item = {.id = (uint64_t)q->id,
                        .arrival = (uint64_t)q->id,
                        .n_tokens = q->n_tokens,
                        .limit = n_prompt + q->n_total},
               .adapter = q->adapter,
               .n_prompt = n_prompt,
               .attempt = q->attempt};
    snprintf(r->adapter_name, sizeof r->adapter_name, "%d", q->adapter);
    r->item.adapter = r->adapter_name;
    r->item.root = (kv_key){{(uint64_t)q->adapter + 1, 0}};
    r->item.token = q->arrival ? write_tokens(q->arrival, r->item.limit) : NULL;
    admission_add(g->admission, &r->item);
}

static void take_in(sim_gpu *g)
{
    for (size_t i = 0; i < g->n_inbox; i++) {
        const sim_request *q = &g->inbox[i].what;
        row *r = (row *)admission_find(g->admission, (uint64_t)q->id);
        if (g->inbox[i].add)
            add_row(g, q);
        else if (r && r->attempt == q->attempt)
            drop_row(g, r);
    }
    g->report.n_seen += g->n_inbox;
    g->n_inbox = 0;
    g->n_coming = 0;
}

/* Returns how long the model takes for the rows that were chosen. */
static double step_time(sim_gpu *g)
{
    int n_adapters = 0, n_prompt_rows = 0;
    double positions = 0;
    g->n_steps++;
    for (int i = 0; i < sim_gpu_batch(g); i++) {
        bool is_prompt = i < g->step.n_prefills;
        const admission_rows *rows = is_prompt ? &g->step.prefill[i] : &g->step.decode[i - g->step.n_prefills];
        int adapter = ((const row *)rows->item)->adapter;
        n_adapters += g->last_step[adapter] != g->n_steps;
        g->last_step[adapter] = g->n_steps;
        n_prompt_rows += is_prompt ? rows->n_rows : 0;
        positions += rows->item->n_done + rows->n_rows;
    }
    return step_model_time(g->is.model, sim_gpu_batch(g), n_adapters, positions, n_prompt_rows);
}

double sim_gpu_start(sim_gpu *g, double now)
{
    CHECK(!g->running);
    if (g->n_inbox == 0 && !admission_last(g->admission))
        return -1;
    g->report = (gpu_report){.n_seen = g->report.n_seen};
    g->loaders.now = now;
    take_in(g);
    admission_admit(g->admission, true);
    admission_make_room(g->admission);
    g->step = admission_choose_rows(g->admission);
    g->running = true;
    g->seconds = sim_gpu_batch(g) ? step_time(g) : 0;
    return sim_gpu_batch(g) ? g->loaders.now + g->seconds : now;
}

bool sim_gpu_is_running(const sim_gpu *g)
{
    return g->running;
}

int sim_gpu_batch(const sim_gpu *g)
{
    return g->step.n_prefills + g->step.n_decodes;
}

static void make_token(sim_gpu *g, row *r)
{
    g->drawn = xgrow(g->drawn, &g->drawn_cap, (size_t)g->report.n_tokens + 1, sizeof *g->drawn);
    g->drawn[g->report.n_tokens] = r->item.token ? r->item.token[r->item.n_tokens] : 0;
    g->tokens = xgrow(g->tokens, &g->tokens_cap, (size_t)g->report.n_tokens + 1, sizeof *g->tokens);
    g->tokens[g->report.n_tokens++] =
        (report_tokens){.id = r->item.id, .attempt = r->attempt, .index = r->item.n_tokens - r->n_prompt, .n = 1};
    if (++r->item.n_tokens < r->item.limit)
        return;
    add_end(g, r, END_LENGTH);
    drop_row(g, r);
}

/* Advances requests by the rows that the step has computed, and makes the tokens that they draw. */
static void finish_rows(sim_gpu *g, const admission_rows *rows, int n)
{
    for (int i = 0; i < n; i++) {
        row *r = (row *)rows[i].item;
        g->n_cached += r->seen ? 0 : (uint64_t)r->item.n_cached;
        r->seen = true;
        admission_advance(g->admission, &r->item, rows[i].n_rows);
        if (rows[i].draws)
            make_token(g, r);
    }
}

/* Returns the free pages less those that waiting requests will take, as a worker reports them. */
static int pages_free(const sim_gpu *g)
{
    admission_stats s = admission_get_stats(g->admission);
    return s.pages_free - s.pages_wanted;
}

const gpu_report *sim_gpu_end(sim_gpu *g)
{
    CHECK(g->running);
    g->running = false;
    admission_learn(g->admission, &g->step.work, g->seconds);
    finish_rows(g, g->step.prefill, g->step.n_prefills);
    finish_rows(g, g->step.decode, g->step.n_decodes);
    g->report.pages_free = pages_free(g);
    for (int i = 0; i < g->report.n_tokens; i++)
        g->tokens[i].token = &g->drawn[i];
    g->report.tokens = g->tokens;
    g->report.ends = g->ends;
    return &g->report;
}

uint64_t sim_gpu_n_cached(const sim_gpu *g)
{
    return g->n_cached;
}

int sim_gpu_n_requests(const sim_gpu *g)
{
    admission_stats s = admission_get_stats(g->admission);
    return s.n_active + s.n_waiting + g->n_coming;
}

bool sim_gpu_has_room(const sim_gpu *g, int n_tokens)
{
    int n = sim_gpu_n_requests(g), left = pages_free(g);
    for (size_t i = 0; i < g->n_inbox; i++)
        if (g->inbox[i].add)
            left -= kv_pool_pages_for(g->pool, g->inbox[i].what.n_tokens + 1);
    return n < g->is.max_batch && kv_pool_pages_for(g->pool, n_tokens + 1) + n <= left;
}
