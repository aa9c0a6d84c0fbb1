/* templates.c - see templates.h */
#include "frontend/templates.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

enum { MAX_KEPT = 64 }; /* adapters' templates, an LRU cache */

enum { N_FILES = N_ADAPTER_FILES - FILE_TEMPLATE };

/* What tells that a folder's files are still the same. */
typedef struct { file_stamp file[N_FILES]; } fingerprint;

typedef struct {
    char *name; /* of the adapter; NULL: this place is free */
    fingerprint print;
    chat_template *own; /* NULL: it has none, the base's is used */
    char *problem;      /* its files are bad; else NULL */
    int n_takers;
    long asked; /* when, in calls of templates_take() */
} kept_template;

struct templates {
    const catalog *models;
    chat_template *base;
    bool only_base;
    pthread_mutex_t lock; /* guards all below */
    kept_template kept[MAX_KEPT];
    kept_template *leaving; /* [n_leaving] replaced while somebody had them */
    size_t n_leaving, cap_leaving;
    long n_asked;
};

static fingerprint print_of(const char *dir)
{
    fingerprint p;
    for (int i = 0; i < N_FILES; i++) {
        char *path = path_join(dir, adapter_file_name[FILE_TEMPLATE + i]);
        p.file[i] = file_stamp_of(path);
        free(path);
    }
    return p;
}

static bool has_files(const fingerprint *p)
{
    for (int i = 0; i < N_FILES; i++)
        if (p->file[i].inode)
            return true;
    return false;
}

static void kept_free(kept_template *x)
{
    free(x->name);
    free(x->problem);
    chat_template_free(x->own);
    *x = (kept_template){0};
}

/* Frees the place. What somebody has taken is put aside until it is given back. */
static void clear(templates *t, kept_template *x)
{
    if (x->n_takers == 0) {
        kept_free(x);
        return;
    }
    t->leaving = xgrow(t->leaving, &t->cap_leaving, t->n_leaving + 1, sizeof *t->leaving);
    t->leaving[t->n_leaving++] = *x;
    *x = (kept_template){0};
}

templates *templates_new(const catalog *models, const char *dir, const char *file, err *e)
{
    templates *t = XNEW(templates);
    *t = (templates){.models = models, .base = chat_template_load(dir, file, e), .only_base = file != NULL};
    if (!t->base) {
        free(t);
        return NULL;
    }
    CHECK(pthread_mutex_init(&t->lock, NULL) == 0);
    const char *problem = chat_template_problem(t->base);
    if (problem)
        log_info("frontend: chat completions are refused: %s", problem);
    return t;
}

void templates_free(templates *t)
{
    if (!t)
        return;
    CHECK(t->n_leaving == 0);
    for (int i = 0; i < MAX_KEPT; i++) {
        CHECK(t->kept[i].n_takers == 0);
        kept_free(&t->kept[i]);
    }
    pthread_mutex_destroy(&t->lock);
    chat_template_free(t->base);
    free(t->leaving);
    free(t);
}

static kept_template *place_for(templates *t, const char *name)
{
    kept_template *oldest = &t->kept[0];
    for (int i = 0; i < MAX_KEPT; i++) {
        kept_template *x = &t->kept[i];
        if (x->name && strcmp(x->name, name) == 0)
            return x;
        if (x->asked < oldest->asked)
            oldest = x;
    }
    return oldest;
}

/* Returns the adapter's entry, loaded anew if its files have changed. */
static kept_template *find_kept(templates *t, const char *name, const char *dir, const fingerprint *now)
{
    kept_template *x = place_for(t, name);
    bool same = x->name && strcmp(x->name, name) == 0 && memcmp(&x->print, now, sizeof *now) == 0;
    if (!same) {
        err e;
        clear(t, x);
        *x = (kept_template){.name = xstrdup(name), .print = *now, .own = chat_template_load_over(dir, t->base, &e)};
        if (!x->own && e.msg[0]) {
            log_warn("adapter %s: %s", name, e.msg);
            err_hide_folder(&e, dir);
            x->problem = xasprintf("adapter \"%s\": %s", name, e.msg);
        }
    }
    x->asked = ++t->n_asked;
    return x;
}

/* Returns the folder where the model's own template may be, and the stamps of its files; NULL: there are none. Owned by
 * the caller. */
static char *own_folder(const templates *t, const char *model, const char *known, fingerprint *now)
{
    char *dir = t->only_base ? NULL : known ? xstrdup(known) : catalog_dir(t->models, model);
    if (!dir)
        return NULL;
    *now = print_of(dir);
    if (has_files(now))
        return dir;
    free(dir);
    return NULL;
}

bool templates_may_be_own(const templates *t, const char *model, const char *known)
{
    fingerprint now;
    char *dir = own_folder(t, model, known, &now);
    free(dir);
    return dir != NULL;
}

/* The lock is held while a template is loaded; a model without one of its own does not wait for that. */
const chat_template *templates_take(templates *t, const char *model, const char *known, err *e)
{
    fingerprint now;
    char *dir = own_folder(t, model, known, &now);
    const chat_template *c = t->base;
    if (dir) {
        pthread_mutex_lock(&t->lock);
        kept_template *x = find_kept(t, model, dir, &now);
        if (x->problem) {
            err_set(e, "%s", x->problem);
            c = NULL;
        } else if (x->own) {
            c = x->own;
            x->n_takers++;
        }
        pthread_mutex_unlock(&t->lock);
    }
    free(dir);
    return c;
}

void templates_give(templates *t, const chat_template *c)
{
    if (c == t->base)
        return;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < MAX_KEPT; i++)
        if (t->kept[i].own == c)
            t->kept[i].n_takers--;
    for (size_t i = 0; i < t->n_leaving; i++)
        if (t->leaving[i].own == c && --t->leaving[i].n_takers == 0) {
            kept_free(&t->leaving[i]);
            t->leaving[i] = t->leaving[--t->n_leaving];
            break;
        }
    pthread_mutex_unlock(&t->lock);
}
