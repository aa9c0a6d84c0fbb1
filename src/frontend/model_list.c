/* model_list.c - see model_list.h */
#include "frontend/model_list.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/mem.h"
#include "base/sort.h"
#include "frontend/api_reply.h"

#define SIZE (1u << 20) /* its size in the fair queue, among bodies that are prepared */

struct model_asker {
    void (*done)(void *ctx, const buf *json);
    void *ctx;
    model_view *seen; /* kept; NULL: everything */
    TAILQ_ENTRY(model_asker) entry;
    bool is_next; /* in next */
};

typedef TAILQ_HEAD(asker_list, model_asker) asker_list;

struct model_list {
    task t; /* first */
    background *threads;
    const catalog *models;
    adapter_checks *checks;
    int64_t created;
    const atomic_int *context;
    bool running;
    buf json;     /* of everything. The thread's while it runs, as are */
    char **names; /* [n_names] the adapters' */
    int n_names;
    asker_list now, next; /* who is told after this search; after the next */
};

static void run(task *t)
{
    model_list *l = (model_list *)t;
    l->names = catalog_list(l->models, &l->n_names);
    l->n_names = adapter_checks_filter(l->checks, l->names, l->n_names);
    api_write_models(&l->json, catalog_base(l->models), true, l->names, l->n_names, l->created,
                     atomic_load(l->context));
}

/* Returns a name as the view's tenant knows it: its own without TENANT/. */
static char *name_for(const model_view *seen, char *name)
{
    const char *owner = model_view_owner(seen);
    size_t n = strlen(owner);
    return n && strncmp(name, owner, n) == 0 && name[n] == '/' ? name + n + 1 : name;
}

/* Writes the list for a view. A name is listed once: where a tenant's own adapter has the name of another, its own is
 * meant. */
static void write_seen(const model_list *l, const model_view *seen, buf *out)
{
    char **names = XNEW_ARRAY(char *, (size_t)l->n_names + 1);
    int n = 0, n_seen = 0;
    for (int i = 0; i < l->n_names; i++)
        if (model_view_has(seen, l->names[i]))
            names[n_seen++] = name_for(seen, l->names[i]);
    if (n_seen)
        qsort(names, (size_t)n_seen, sizeof *names, sort_by_text);
    for (int i = 0; i < n_seen; i++)
        if (n == 0 || strcmp(names[i], names[n - 1]) != 0)
            names[n++] = names[i];
    api_write_models(out, catalog_base(l->models), model_view_has_base(seen), names, n, l->created,
                     atomic_load(l->context));
    free(names);
}

static void asker_free(model_asker *a)
{
    model_view_release(a->seen);
    free(a);
}

static void answer(const model_list *l, model_asker *a)
{
    buf some = {0};
    if (a->seen)
        write_seen(l, a->seen, &some);
    a->done(a->ctx, a->seen ? &some : &l->json);
    buf_free(&some);
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

static void clear(model_list *l)
{
    buf_free(&l->json);
    catalog_list_free(l->names, l->n_names);
    l->names = NULL;
    l->n_names = 0;
}

static void list_done(task *t)
{
    model_list *l = (model_list *)t;
    for (model_asker *a; (a = TAILQ_FIRST(&l->now));) {
        TAILQ_REMOVE(&l->now, a, entry);
        answer(l, a);
        asker_free(a);
    }
    clear(l);
    l->running = false;
    if (!TAILQ_EMPTY(&l->next))
        start(l);
}

static void drop(task *t)
{
    (void)t;
}

model_list *model_list_new(background *threads, const catalog *models, adapter_checks *checks, int64_t created,
                           const atomic_int *context)
{
    model_list *l = XNEW(model_list);
    l->t.turn.size = SIZE;
    l->t.run = run;
    l->t.done = list_done;
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
    clear(l);
    free(l);
}

void model_list_look(model_list *l)
{
    if (!l->running)
        start(l);
}

model_asker *model_list_ask(model_list *l, model_view *seen, void (*done)(void *ctx, const buf *json), void *ctx)
{
    model_asker *a = XNEW(model_asker);
    *a = (model_asker){.done = done, .ctx = ctx, .seen = model_view_keep(seen), .is_next = true};
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
    asker_free(a);
}
