/* model_list.c - see model_list.h */
#include "frontend/model_list.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "base/mem.h"
#include "frontend/api_reply.h"

#define SIZE (1u << 20)                 /* what it counts as among bodies that are prepared */

struct model_asker {
    void (*tell)(void *ctx, const buf *json);
    void *ctx;
    TAILQ_ENTRY(model_asker) entry;
    bool is_next;               /* in next */
};

typedef TAILQ_HEAD(asker_list, model_asker) asker_list;

struct model_list {
    task t;                     /* first */
    background *threads;
    const catalog *models;
    adapter_checks *checks;
    int64_t created;
    const atomic_int *context;
    bool running;
    buf json;                   /* while it runs, its thread's */
    asker_list now, next;       /* who is told when it is done, and when it has been done once more */
};

static void run(task *t)
{
    model_list *l = (model_list *)t;
    int n;
    char **names = catalog_list(l->models, &n);
    n = adapter_checks_filter(l->checks, names, n);
    api_write_models(&l->json, catalog_base(l->models), names, n, l->created, atomic_load(l->context));
    catalog_list_free(names, n);
}

static void start(model_list *l)
{
    model_asker *a;
    TAILQ_CONCAT(&l->now, &l->next, entry);
    TAILQ_FOREACH(a, &l->now, entry)
        a->is_next = false;
    l->running = true;
    background_start(l->threads, &l->t);
}

static void done(task *t)
{
    model_list *l = (model_list *)t;
    buf json = l->json;
    l->json = (buf){0};
    l->running = false;
    for (model_asker *a; (a = TAILQ_FIRST(&l->now));) {
        TAILQ_REMOVE(&l->now, a, entry);
        a->tell(a->ctx, &json);
        free(a);
    }
    buf_free(&json);
    if (!TAILQ_EMPTY(&l->next))
        start(l);
}

static void drop(task *t)
{
    (void)t;
}

model_list *model_list_new(background *threads, const catalog *models, adapter_checks *checks, int64_t created, const atomic_int *context)
{
    model_list *l = XNEW(model_list);
    l->t.turn.size = SIZE;
    l->t.run = run;
    l->t.done = done;
    l->t.drop = drop;
    l->threads = threads;
    l->models = models;
    l->checks = checks;
    l->created = created;
    l->context = context;
    TAILQ_INIT(&l->now);
    TAILQ_INIT(&l->next);
    return l;
}

void model_list_free(model_list *l)
{
    if (!l)
        return;
    buf_free(&l->json);
    free(l);
}

void model_list_look(model_list *l)
{
    if (!l->running)
        start(l);
}

model_asker *model_list_ask(model_list *l, void (*tell)(void *ctx, const buf *json), void *ctx)
{
    model_asker *a = XNEW(model_asker);
    *a = (model_asker){.tell = tell, .ctx = ctx, .is_next = true};
    TAILQ_INSERT_TAIL(&l->next, a, entry);
    if (!l->running)
        start(l);
    return a;
}

void model_list_forget(model_list *l, model_asker *a)
{
    if (a->is_next)
        TAILQ_REMOVE(&l->next, a, entry);
    else
        TAILQ_REMOVE(&l->now, a, entry);
    free(a);
}
