/* fetches.c - see fetches.h */
#include "frontend/fetches.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/fair_places.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prometheus.h"
#include "frontend/adapter_names.h"
#include "frontend/background.h"
#include "frontend/metrics.h"

struct fetch_wait {
    void (*done)(void *ctx, const err *why);
    void *ctx;
    struct fetch_list *of; /* the list that it is in */
    TAILQ_ENTRY(fetch_wait) entry;
};

typedef TAILQ_HEAD(fetch_list, fetch_wait) fetch_list;

/* One adapter on its way. While it runs, the fields below the line are its thread's. */
typedef struct fetching {
    task t; /* first */
    fetches *of;
    char owner[ADAPTER_OWNER];
    bool runs;
    fetch_list waiting;
    TAILQ_ENTRY(fetching) entry;
    /* ---- */
    char *name, *source, id[ADAPTER_ID];
    bool trusted;
    int status;
    double seconds;
    disk_pin pin;
    err why;
} fetching;

struct fetches {
    fetches_options o;
    background *threads;
    TAILQ_HEAD(, fetching) all; /* in the order they were asked for */
    int n_running;
    uint64_t n_failed;
    histogram times; /* of those that succeeded */
};

static void free_fetching(fetching *g)
{
    free(g->name);
    free(g->source);
    free(g);
}

static void run(task *t)
{
    fetching *g = (fetching *)t;
    fetch_options o = *g->of->o.fetch;
    double begun = clock_now();
    o.stop = &t->abandoned;
    g->status = fetch_registered(g->of->o.cache, g->source, g->id, g->trusted, &o, g->of->o.base, &g->pin, &g->why);
    g->seconds = clock_now() - begun;
}

static int n_of_owner(const fetches *f, const char *owner)
{
    const fetching *g;
    int n = 0;
    TAILQ_FOREACH(g, &f->all, entry)
    n += g->runs && strcmp(g->owner, owner) == 0;
    return n;
}

static void start_next(fetches *f)
{
    fetching *g;
    TAILQ_FOREACH(g, &f->all, entry)
    {
        if (f->n_running >= FAIR_PLACES_MOST)
            return;
        if (g->runs || !fair_places_has(f->n_running, n_of_owner(f, g->owner), *g->owner))
            continue;
        g->runs = true;
        f->n_running++;
        background_start(f->threads, &g->t);
    }
}

static void answer_waiting(fetching *g)
{
    for (fetch_wait *w; (w = TAILQ_FIRST(&g->waiting));) {
        TAILQ_REMOVE(&g->waiting, w, entry);
        w->done(w->ctx, g->status ? &g->why : NULL);
        free(w);
    }
}

static void done(task *t)
{
    fetching *g = (fetching *)t;
    fetches *f = g->of;
    TAILQ_REMOVE(&f->all, g, entry);
    f->n_running--;
    if (g->status) {
        f->n_failed++;
        log_warn("adapter %s: %s", g->name, g->why.msg);
    } else {
        histogram_add(&f->times, g->seconds);
        log_info("adapter %s, %.12s, was fetched in %.3f s", g->name, g->id, g->seconds);
    }
    answer_waiting(g);
    if (g->status == 0)
        disk_cache_unpin(&g->pin);
    free_fetching(g);
    start_next(f);
}

/* Called at the end only: nobody abandons a fetch before. */
static void drop(task *t)
{
    fetching *g = (fetching *)t;
    TAILQ_REMOVE(&g->of->all, g, entry);
    if (g->pin.dir)
        disk_cache_unpin(&g->pin);
    free_fetching(g);
}

fetches *fetches_new(struct event_base *loop, const fetches_options *o)
{
    fetches *f = XNEW(fetches);
    *f = (fetches){.o = *o, .threads = background_new(loop, FAIR_PLACES_MOST + 1)};
    TAILQ_INIT(&f->all);
    return f;
}

void fetches_free(fetches *f)
{
    fetching *g, *next;
    if (!f)
        return;
    for (g = TAILQ_FIRST(&f->all); g; g = next) {
        next = TAILQ_NEXT(g, entry);
        if (g->runs)
            background_abandon(f->threads, &g->t);
        else
            drop(&g->t);
    }
    background_free(f->threads);
    free(f);
}

/* Finds one of the same name and source: no tenant waits for a source that another has chosen, even for the same
 * content. */
static fetching *find_fetching(const fetches *f, const registered *what)
{
    fetching *g;
    TAILQ_FOREACH(g, &f->all, entry)
    if (strcmp(g->id, what->id) == 0 && strcmp(g->name, what->name) == 0 && strcmp(g->source, what->source) == 0 &&
        g->trusted == what->trusted)
        return g;
    return NULL;
}

static fetching *add(fetches *f, const registered *what)
{
    fetching *g = XNEW(fetching);
    *g = (fetching){.t = {.turn.size = FAIR_SHORT + 1, .run = run, .done = done, .drop = drop},
                    .of = f,
                    .name = xstrdup(what->name),
                    .source = xstrdup(what->source),
                    .trusted = what->trusted};
    memcpy(g->id, what->id, sizeof g->id);
    adapter_name_split(what->name, g->owner);
    TAILQ_INIT(&g->waiting);
    TAILQ_INSERT_TAIL(&f->all, g, entry);
    return g;
}

fetch_wait *fetches_ask(fetches *f, const registered *what, void (*told)(void *ctx, const err *why), void *ctx)
{
    fetching *g = find_fetching(f, what);
    g = g ? g : add(f, what);
    fetch_wait *w = XNEW(fetch_wait);
    *w = (fetch_wait){.done = told, .ctx = ctx, .of = &g->waiting};
    TAILQ_INSERT_TAIL(&g->waiting, w, entry);
    start_next(f);
    return w;
}

void fetches_forget(fetch_wait *w)
{
    TAILQ_REMOVE(w->of, w, entry);
    free(w);
}

void fetches_write_metrics(const fetches *f, buf *out)
{
    metrics_write_histogram(out, "adapter_fetch_seconds",
                            "Time to fetch a registered adapter from its source to this host's disk.", &f->times);
    prometheus_add(out, "adapter_fetch_failures_total", "counter", "Fetches that failed.", f->n_failed);
}
