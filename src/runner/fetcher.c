/* fetcher.c - see fetcher.h */
#include "runner/fetcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/fair_places.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/pack.h"

typedef struct wanted {
    fetcher *of;
    Want want;  /* its strings are owned */
    process *p; /* NULL: it waits for its turn */
    bool told;  /* the process has reported the result: */
    char error[sizeof(err)];
    TAILQ_ENTRY(wanted) entry;
} wanted;

struct fetcher {
    fetcher_options o;
    TAILQ_HEAD(, wanted) all; /* in the order they were wanted */
    int n_running;
};

fetcher *fetcher_new(const fetcher_options *o)
{
    fetcher *f = XNEW(fetcher);
    f->o = *o;
    TAILQ_INIT(&f->all);
    return f;
}

static void free_want(Want *w)
{
    free(w->id);
    free(w->adapter);
    free(w->source);
}

static void free_wanted(wanted *w)
{
    TAILQ_REMOVE(&w->of->all, w, entry);
    process_free(w->p);
    free_want(&w->want);
    free(w);
}

void fetcher_free(fetcher *f)
{
    if (!f)
        return;
    for (wanted *w; (w = TAILQ_FIRST(&f->all));)
        free_wanted(w);
    free(f);
}

/* Returns the length of the tenant's name in TENANT/NAME; 0: the adapter is not a tenant's. */
static size_t owner_len(const wanted *w)
{
    const char *end = strchr(w->want.adapter, '/');
    return end ? (size_t)(end - w->want.adapter) : 0;
}

static bool is_same_owner(const wanted *a, const wanted *b)
{
    size_t n = owner_len(a);
    return n == owner_len(b) && strncmp(a->want.adapter, b->want.adapter, n) == 0;
}

static int n_of_owner(const wanted *w)
{
    const wanted *other;
    int n = 0;
    TAILQ_FOREACH(other, &w->of->all, entry)
    n += other->p && is_same_owner(w, other);
    return n;
}

static void start_next(fetcher *f);

static void tell(const fetcher *f, const Want *of, const char *error)
{
    Fetched told = FETCHED__INIT;
    told.id = of->id;
    told.error = (char *)error;
    told.adapter = of->adapter;
    told.source = of->source;
    f->o.done(f->o.ctx, &told);
}

static void finish(wanted *w)
{
    const fetcher *f = w->of;
    Want was = w->want;
    char error[sizeof w->error];
    memcpy(error, w->error, sizeof error);
    if (*error)
        log_warn("adapter %s, %.12s: %s", was.adapter, was.id, error);
    else
        log_info("adapter %s, %.12s, was fetched", was.adapter, was.id);
    w->want.id = w->want.adapter = w->want.source = NULL; /* ours now */
    free_wanted(w);
    tell(f, &was, error);
    free_want(&was);
}

static bool on_message(void *ctx, const void *bytes, size_t n)
{
    wanted *w = ctx;
    Message *m = message__unpack(NULL, n, bytes);
    bool good = m && m->what_case == MESSAGE__WHAT_FETCHED && !w->told;
    if (good) {
        w->told = true;
        snprintf(w->error, sizeof w->error, "%s", m->fetched->error);
    }
    message__free_unpacked(m, NULL);
    return good;
}

static void on_ended(void *ctx, const char *why, bool from_outside)
{
    (void)from_outside;
    wanted *w = ctx;
    fetcher *f = w->of;
    f->n_running--;
    if (!w->told)
        snprintf(w->error, sizeof w->error, "the process that was to fetch it ended: %.200s", why);
    finish(w);
    start_next(f);
}

static int start(wanted *w, err *e)
{
    const fetcher_options *o = &w->of->o;
    char **argv = XNEW_ARRAY(char *, (size_t)o->n_args + 3);
    int n = 0;
    argv[n++] = (char *)"punica";
    argv[n++] = (char *)"fetcher";
    for (int i = 0; i < o->n_args; i++)
        argv[n++] = (char *)o->args[i];
    process_events events = {on_message, on_ended, w};
    w->p = o->processes.start(o->processes.ctx, argv, &events, e);
    free(argv);
    if (!w->p)
        return -1;
    Message m = MESSAGE__INIT;
    buf packed = {0};
    m.what_case = MESSAGE__WHAT_WANT;
    m.want = &w->want;
    pack_message(&packed, &m);
    process_send(w->p, packed.data, packed.len);
    buf_free(&packed);
    w->of->n_running++;
    return 0;
}

static void start_next(fetcher *f)
{
    wanted *w, *next;
    for (w = TAILQ_FIRST(&f->all); w; w = next) {
        next = TAILQ_NEXT(w, entry);
        err e;
        if (w->p || !fair_places_has(f->n_running, n_of_owner(w), owner_len(w) > 0))
            continue;
        if (start(w, &e)) {
            snprintf(w->error, sizeof w->error, "%s", e.msg);
            finish(w);
        }
    }
}

static bool is_same(const Want *a, const Want *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->adapter, b->adapter) == 0 && strcmp(a->source, b->source) == 0 &&
           !a->trusted == !b->trusted;
}

void fetcher_want(fetcher *f, const Want *want)
{
    wanted *w;
    TAILQ_FOREACH(w, &f->all, entry)
    if (is_same(&w->want, want))
        return;
    if (f->o.n_args == 0) {
        tell(f, want, "that host has no disk cache of adapters (--cache)");
        return;
    }
    w = XNEW(wanted);
    *w = (wanted){.of = f, .want = WANT__INIT};
    w->want.id = xstrdup(want->id);
    w->want.adapter = xstrdup(want->adapter);
    w->want.source = xstrdup(want->source);
    w->want.trusted = want->trusted;
    TAILQ_INSERT_TAIL(&f->all, w, entry);
    start_next(f);
}
