/* sim_gpu.c - see sim_gpu.h */
#include "bench/sim_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

typedef struct { bool add; sim_row row; } sim_command;

struct sim_gpu {
    sim_gpu_setup is;
    sim_row *row;               /* [n_rows] by request */
    size_t n_rows, row_cap;
    sim_command *inbox;         /* [n_inbox] */
    size_t n_inbox, inbox_cap;
    int n_coming;               /* adds less cancels of the inbox */
    uint64_t n_seen;
    int pages_used, n_active;
    bool running;
    bool *loaded;               /* [n_adapters] */
    int *last_step;             /* [n_adapters] when it was last counted */
    int n_steps;
    report_tokens *tokens;      /* of the report */
    report_end *ends;
    size_t tokens_cap, ends_cap;
    gpu_report report;
};

sim_gpu *sim_gpu_new(const sim_gpu_setup *s)
{
    sim_gpu *g = XNEW(sim_gpu);
    g->is = *s;
    g->loaded = XNEW_ARRAY(bool, (size_t)s->n_adapters + 1);
    g->last_step = XNEW_ARRAY(int, (size_t)s->n_adapters + 1);
    return g;
}

void sim_gpu_free(sim_gpu *g)
{
    free(g->row);
    free(g->inbox);
    free(g->loaded);
    free(g->last_step);
    free(g->tokens);
    free(g->ends);
    free(g);
}

static int pages_for(const sim_gpu *g, int n_tokens)
{
    return (n_tokens + g->is.page_len - 1) / g->is.page_len;
}

static void send(sim_gpu *g, sim_command c)
{
    if (!g->running && g->n_inbox == 0)
        g->is.wakeups->gpu[g->is.wakeups->n++] = g->is.number;
    g->inbox = xgrow(g->inbox, &g->inbox_cap, g->n_inbox + 1, sizeof *g->inbox);
    g->inbox[g->n_inbox++] = c;
    g->n_coming += c.add ? 1 : -1;
}

void sim_gpu_add(sim_gpu *g, const sim_row *row)
{
    send(g, (sim_command){true, *row});
}

void sim_gpu_cancel(sim_gpu *g, int request, uint32_t attempt)
{
    send(g, (sim_command){false, {.request = request, .attempt = attempt}});
}

static void insert(sim_gpu *g, sim_row row, double now)
{
    g->row = xgrow(g->row, &g->row_cap, g->n_rows + 1, sizeof *g->row);
    size_t at = g->n_rows++;
    for (; at > 0 && g->row[at - 1].request > row.request; at--)
        g->row[at] = g->row[at - 1];
    row.ready = g->loaded[row.adapter] ? now : now + g->is.model->adapter_load_time;
    g->loaded[row.adapter] = true;
    g->row[at] = row;
}

static void remove_at(sim_gpu *g, size_t at)
{
    if (g->row[at].active) {
        g->pages_used -= pages_for(g, g->row[at].n_tokens);
        g->n_active--;
    }
    g->n_rows--;
    memmove(&g->row[at], &g->row[at + 1], (g->n_rows - at) * sizeof *g->row);
}

static void take_in(sim_gpu *g, double now)
{
    for (size_t i = 0; i < g->n_inbox; i++) {
        const sim_command *c = &g->inbox[i];
        size_t at = 0;
        if (c->add)
            insert(g, c->row, now);
        while (!c->add && at < g->n_rows && (g->row[at].request != c->row.request || g->row[at].attempt != c->row.attempt))
            at++;
        if (!c->add && at < g->n_rows)
            remove_at(g, at);
    }
    g->n_seen += g->n_inbox;
    g->n_inbox = 0;
    g->n_coming = 0;
}

/* The oldest whose adapter is there starts, if there is room. One prompt at a time. */
static sim_row *admit(sim_gpu *g, double now)
{
    for (size_t i = 0; i < g->n_rows; i++) {
        sim_row *r = &g->row[i];
        if (r->active || r->ready > now)
            continue;
        if (g->n_active >= g->is.max_batch || pages_for(g, r->n_tokens + 1) + g->n_active > g->is.n_pages - g->pages_used)
            return NULL;
        r->active = true;
        g->n_active++;
        g->pages_used += pages_for(g, r->n_tokens);
        return r;
    }
    return NULL;
}

static double first_ready(const sim_gpu *g)
{
    double first = g->row[0].ready;
    for (size_t i = 1; i < g->n_rows; i++)
        first = g->row[i].ready < first ? g->row[i].ready : first;
    return first;
}

double sim_gpu_start(sim_gpu *g, double now)
{
    CHECK(!g->running);
    take_in(g, now);
    if (g->n_rows == 0)
        return 0;
    if (g->n_active == 0 && first_ready(g) > now)
        now = first_ready(g);
    sim_row *prompt = admit(g, now);
    int n_adapters = 0;
    double positions = 0;
    g->n_steps++;
    for (size_t i = 0; i < g->n_rows; i++) {
        const sim_row *r = &g->row[i];
        if (!r->active)
            continue;
        n_adapters += g->last_step[r->adapter] != g->n_steps;
        g->last_step[r->adapter] = g->n_steps;
        positions += r->n_tokens;
    }
    g->running = true;
    return now + step_model_time(g->is.model, g->n_active, n_adapters, positions, prompt ? prompt->n_tokens : 0);
}

bool sim_gpu_is_running(const sim_gpu *g)
{
    return g->running;
}

static void add_end(sim_gpu *g, const sim_row *r, outcome why)
{
    g->ends = xgrow(g->ends, &g->ends_cap, (size_t)g->report.n_ends + 1, sizeof *g->ends);
    g->ends[g->report.n_ends++] = (report_end){.id = (uint64_t)r->request, .attempt = r->attempt, .why = why};
}

/* Every active row has made a token. */
static void make_tokens(sim_gpu *g)
{
    static const int token = 0;
    for (size_t i = 0; i < g->n_rows; i++) {
        sim_row *r = &g->row[i];
        if (!r->active)
            continue;
        g->tokens = xgrow(g->tokens, &g->tokens_cap, (size_t)g->report.n_tokens + 1, sizeof *g->tokens);
        g->tokens[g->report.n_tokens++] = (report_tokens){.id = (uint64_t)r->request, .attempt = r->attempt, .index = r->n_output, .n = 1,
                                                          .token = &token};
        g->pages_used += pages_for(g, r->n_tokens + 1) - pages_for(g, r->n_tokens);
        r->n_tokens++;
        r->n_output++;
    }
}

static void end_finished(sim_gpu *g)
{
    for (size_t i = g->n_rows; i-- > 0;)
        if (g->row[i].active && g->row[i].n_output == g->row[i].n_total) {
            add_end(g, &g->row[i], OUTCOME_LENGTH);
            remove_at(g, i);
        }
}

/* The newest active ones go until the next step's tokens have pages. */
static void evict(sim_gpu *g)
{
    while (g->pages_used > g->is.n_pages) {
        size_t newest = g->n_rows - 1;
        while (!g->row[newest].active)
            newest--;
        add_end(g, &g->row[newest], OUTCOME_EVICTED);
        remove_at(g, newest);
    }
}

/* Pages left, with those off that rows without any will need. */
static int pages_free(const sim_gpu *g)
{
    int n = g->is.n_pages - g->pages_used;
    for (size_t i = 0; i < g->n_rows; i++)
        if (!g->row[i].active)
            n -= pages_for(g, g->row[i].n_tokens + 1);
    return n;
}

const gpu_report *sim_gpu_end(sim_gpu *g)
{
    CHECK(g->running);
    g->running = false;
    g->report = (gpu_report){0};
    make_tokens(g);
    end_finished(g);
    evict(g);
    g->report.n_seen = g->n_seen;
    g->report.pages_free = pages_free(g);
    g->report.tokens = g->tokens;
    g->report.ends = g->ends;
    return &g->report;
}

int sim_gpu_n_requests(const sim_gpu *g)
{
    return (int)g->n_rows + g->n_coming;
}

bool sim_gpu_has_room(const sim_gpu *g, int n_tokens)
{
    int n = sim_gpu_n_requests(g), free_pages = pages_free(g);
    for (size_t i = 0; i < g->n_inbox; i++)
        if (g->inbox[i].add)
            free_pages -= pages_for(g, g->inbox[i].row.n_tokens + 1);
    return n < g->is.max_batch && pages_for(g, n_tokens + 1) + n <= free_pages;
}
