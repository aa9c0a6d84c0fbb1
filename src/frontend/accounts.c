/* accounts.c - see accounts.h
 *
 * Every TICK the loop looks whether the thread is back from its last visit to the store, takes over what it brought,
 * and sends it on the next. */
#include "frontend/accounts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jobs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prometheus.h"

#define TICK 0.25         /* seconds */
#define SOON 0.005        /* seconds until the loop looks again where an operator waits for the visit */
#define AFTER_FAILURE 1.0 /* seconds before a store that failed is tried again */
#define HEARTBEAT 3.0     /* seconds after which an unchanged load is told again, for others not to forget it */
#define MAX_TASKS 16      /* of a visit */
#define MAX_ROWS 65536    /* of unwritten usage, told apart by adapter */

typedef struct {
    store_load *at;
    size_t n, cap;
} load_list;

/* One visit to the store. While it is under way only the thread changes it. */
typedef struct {
    job j; /* first */
    store *s;
    const char *frontend;   /* borrowed */
    bool flush, listen;     /* there is a batch to write; others' loads are wanted */
    store_batch batch;      /* what is to be written; kept over visits that fail. Owned */
    int64_t change;         /* of the last directory that was read */
    store_directory *later; /* one read since, or NULL */
    load_list loads;        /* of all frontends together; names are owned */
    account_task *tasks;    /* in order */
    bool failed;
    err why;
} visit;

struct accounts {
    net_loop *on;
    jobs *thread;
    store *s;
    loop_timer *timer;
    char frontend[33]; /* this process's id */
    tenants *all;
    accounts_news news;
    ledger *used;
    visit v;
    bool out;  /* the visit is under way */
    bool down; /* the last one failed */
    double last_flush, failed_at;
    account_task *tasks, **last_task; /* that wait for the next visit */
    uint64_t n_failures;
};

/* On the thread. */

static void add_load(void *ctx, const store_load *l)
{
    load_list *to = ctx;
    to->at = xgrow(to->at, &to->cap, to->n + 1, sizeof *to->at);
    to->at[to->n] = *l;
    to->at[to->n++].tenant = xstrdup(l->tenant);
}

static int read_directory(visit *v)
{
    int64_t change;
    if (store_read_change(v->s, &change, &v->why))
        return -1;
    v->later = change == v->change ? NULL : store_read_directory(v->s, &v->why);
    return change == v->change || v->later ? 0 : -1;
}

static void run_visit(job *j)
{
    visit *v = (visit *)j;
    v->failed = v->flush && store_flush(v->s, &v->batch, &v->why);
    for (account_task *t = v->tasks; t; t = t->next)
        t->run(t, v->s);
    v->failed = v->failed || read_directory(v) ||
                (v->listen && store_read_load(v->s, v->frontend, v->batch.now, add_load, &v->loads, &v->why));
}

/* On the loop: the batch. */

static void free_batch(store_batch *b)
{
    ledger_rows_free((store_usage *)b->usage, b->n_usage);
    for (size_t i = 0; i < b->n_load; i++)
        free((char *)b->load[i].tenant);
    free((store_load *)b->load);
    b->usage = NULL;
    b->load = NULL;
    b->n_usage = b->n_load = 0;
}

/* Makes the next batch of what there is to write, unless one still waits to be written. */
static void fill_batch(accounts *a)
{
    visit *v = &a->v;
    double now = loop_now(a->on);
    v->batch.now = (int64_t)loop_wall(a->on);
    if (v->flush)
        return;
    size_t n;
    store_load *loads = tenants_report_loads(a->all, &n);
    for (size_t i = 0; i < n; i++)
        loads[i].tenant = xstrdup(loads[i].tenant);
    v->batch.load = loads;
    v->batch.n_load = n;
    v->batch.usage = ledger_take(a->used, &v->batch.n_usage);
    v->flush = v->batch.n_usage || n || (now - a->last_flush > HEARTBEAT && tenants_are_busy(a->all));
    if (!v->flush) {
        free_batch(&v->batch);
        return;
    }
    v->batch.number++;
    a->last_flush = now;
}

/* Takes at most MAX_TASKS of the waiting tasks along, so that usage is written in between, however many there are. */
static void take_tasks(accounts *a)
{
    account_task **end = &a->tasks;
    for (int i = 0; i < MAX_TASKS && *end; i++)
        end = &(*end)->next;
    a->v.tasks = a->tasks;
    a->tasks = *end;
    *end = NULL;
    if (!a->tasks)
        a->last_task = &a->tasks;
}

static void send(accounts *a)
{
    visit *v = &a->v;
    fill_batch(a);
    v->listen = tenants_have_limits(a->all);
    take_tasks(a);
    a->out = true;
    jobs_start(a->thread, &v->j);
}

static int by_tenant(const void *a, const void *b)
{
    return strcmp(((const store_load *)a)->tenant, ((const store_load *)b)->tenant);
}

static const store_load *own_load(const store_batch *b, const store_load *all)
{
    return b->n_load ? bsearch(all, b->load, b->n_load, sizeof *b->load, by_tenant) : NULL;
}

static void apply_loads(accounts *a)
{
    visit *v = &a->v;
    for (size_t i = 0; i < v->loads.n; i++) {
        const store_load *own = v->flush ? own_load(&v->batch, &v->loads.at[i]) : NULL;
        if (!v->failed)
            tenants_apply_load(a->all, loop_now(a->on), &v->loads.at[i], own ? own->requests : 0,
                               own ? own->tokens : 0);
        free((char *)v->loads.at[i].tenant);
    }
    v->loads.n = 0;
}

static void apply_directory(accounts *a)
{
    visit *v = &a->v;
    if (v->later && !v->failed) {
        tenants_apply(a->all, v->later);
        if (a->news.changed)
            a->news.changed(a->news.ctx, v->later);
        v->change = v->later->change;
    }
    store_directory_free(v->later);
    v->later = NULL;
}

static void note(accounts *a)
{
    const visit *v = &a->v;
    if (v->failed && !a->down)
        log_error("%s; known keys go on, and usage is kept until it can be written", v->why.msg);
    else if (!v->failed && a->down)
        log_info("the store is back");
    a->down = v->failed;
    a->n_failures += v->failed;
    a->failed_at = v->failed ? loop_now(a->on) : 0;
}

/* Takes over the results of the visit. After a failure the batch stays as it is: it may or may not have been
 * written. */
static void take_back(accounts *a)
{
    visit *v = &a->v;
    a->out = false;
    note(a);
    apply_loads(a);
    apply_directory(a);
    if (!v->failed) {
        free_batch(&v->batch);
        v->flush = false;
    }
    account_task *t = v->tasks;
    v->tasks = NULL;
    for (account_task *next; t; t = next) {
        next = t->next;
        t->done(t);
    }
}

static void on_tick(void *ctx)
{
    accounts *a = ctx;
    if (a->out && jobs_finished(a->thread, false))
        take_back(a);
    bool wait = a->down && !a->tasks && loop_now(a->on) - a->failed_at < AFTER_FAILURE;
    if (!a->out && !wait)
        send(a);
    loop_timer_set(a->timer, a->out && (a->v.tasks || a->tasks) ? SOON : TICK);
}

accounts *accounts_new(net_loop *on, const char *url, const char *base, accounts_news news, err *e)
{
    store *s = store_open(url, e);
    store_directory *d = s ? store_read_directory(s, e) : NULL;
    if (!d) {
        store_close(s);
        return NULL;
    }
    accounts *a = XNEW(accounts);
    *a = (accounts){.on = on,
                    .s = s,
                    .news = news,
                    .all = tenants_new(base),
                    .used = ledger_new(MAX_ROWS),
                    .thread = jobs_threads_new(1),
                    .last_task = &a->tasks};
    snprintf(a->frontend, sizeof a->frontend, "%016" PRIx64 "%016" PRIx64, loop_random_id(on), loop_random_id(on));
    a->v = (visit){
        .j.run = run_visit, .s = s, .frontend = a->frontend, .change = d->change, .batch.frontend = a->frontend};
    tenants_apply(a->all, d);
    if (news.changed)
        news.changed(news.ctx, d);
    store_directory_free(d);
    a->timer = loop_timer_new(on, on_tick, a);
    loop_timer_set(a->timer, TICK);
    return a;
}

static void log_lost(const store_batch *b)
{
    for (size_t i = 0; i < b->n_usage; i++) {
        const store_usage *u = &b->usage[i];
        log_error("usage that is not in the store: tenant %s adapter %s digest %s hour %" PRId64 " requests %" PRId64
                  " prompt %" PRId64 " cached %" PRId64 " output %" PRId64,
                  u->tenant, u->adapter, u->digest[0] ? u->digest : "-", u->hour, u->requests, u->prompt, u->cached,
                  u->output);
    }
}

/* Writes what is left, twice: a batch that was not written yet, and what has been used since. */
static void write_rest(accounts *a)
{
    for (int i = 0; i < 2; i++) {
        fill_batch(a);
        if (a->v.flush && store_flush(a->s, &a->v.batch, &a->v.why)) {
            log_error("%s", a->v.why.msg);
            log_lost(&a->v.batch);
        }
        a->v.flush = false;
        free_batch(&a->v.batch);
    }
}

static void drop_tasks(account_task *t)
{
    for (account_task *next; t; t = next) {
        next = t->next;
        t->drop(t);
    }
}

void accounts_free(accounts *a)
{
    if (!a)
        return;
    loop_timer_free(a->timer);
    if (a->out) {
        CHECK(jobs_finished(a->thread, true));
        drop_tasks(a->v.tasks);
        a->v.tasks = NULL;
        take_back(a);
    }
    drop_tasks(a->tasks);
    jobs_free(a->thread);
    write_rest(a);
    store_close(a->s);
    free(a->v.loads.at);
    ledger_free(a->used);
    tenants_free(a->all);
    free(a);
}

tenants *accounts_tenants(accounts *a)
{
    return a->all;
}

void accounts_count(accounts *a, account_entry *of, int64_t requests, int64_t prompt, int64_t cached, int64_t output)
{
    const ledger_key k = {.tenant = tenant_name(of->who),
                          .adapter = of->model,
                          .version = of->version,
                          .hour = (int64_t)loop_wall(a->on) / 3600};
    ledger_add(a->used, &of->place, &k, requests, prompt, cached, output);
    tenant_use(of->who, loop_now(a->on), prompt, output);
}

void accounts_ask(accounts *a, account_task *t)
{
    t->next = NULL;
    *a->last_task = t;
    a->last_task = &t->next;
    loop_timer_set(a->timer, 0);
}

void accounts_write_metrics(accounts *a, buf *out)
{
    prometheus_add(out, "store_up", "gauge", "Whether the store answers.", !a->down);
    prometheus_add(out, "store_failures_total", "counter", "Times it did not.", a->n_failures);
    prometheus_add(out, "usage_unwritten_rows", "gauge", "Rows of usage that are not in the store yet.",
                   ledger_n_rows(a->used) + a->v.batch.n_usage);
}
