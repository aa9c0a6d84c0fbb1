/* adapter_checks.c - see adapter_checks.h */
#include "frontend/adapter_checks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

/* A file that is not there is all zeros. */
typedef struct { file_stamp file[N_NEEDED]; } stamp;

typedef struct {
    stamp is;
    char *why;
} finding; /* why: NULL: it can be served */

struct adapter_checks {
    const catalog *models; /* borrowed */
    adapter_checker by;
    pthread_mutex_t lock; /* guards all below */
    map *by_name;         /* from name to index in known */
    finding *known;       /* [n] */
    size_t n, cap;
};

adapter_checks *adapter_checks_new(const catalog *models, adapter_checker by)
{
    adapter_checks *c = XNEW(adapter_checks);
    *c = (adapter_checks){.models = models, .by = by, .by_name = map_new(64)};
    CHECK(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void adapter_checks_free(adapter_checks *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        free(c->known[i].why);
    pthread_mutex_destroy(&c->lock);
    map_free(c->by_name);
    free(c->known);
    free(c);
}

static stamp stamp_of(const char *dir)
{
    stamp is;
    memset(&is, 0, sizeof is);
    for (int i = 0; i < N_NEEDED; i++) {
        char *path = path_join(dir, adapter_file_name[i]);
        is.file[i] = file_stamp_of(path);
        free(path);
    }
    return is;
}

static check_state recall(adapter_checks *c, const char *adapter, const stamp *is, err *e)
{
    int64_t at;
    check_state found = CHECK_UNKNOWN;
    pthread_mutex_lock(&c->lock);
    if (map_get(c->by_name, adapter, strlen(adapter), &at) && memcmp(&c->known[at].is, is, sizeof *is) == 0) {
        found = c->known[at].why ? CHECK_BAD : CHECK_GOOD;
        if (c->known[at].why)
            err_set(e, "%s", c->known[at].why);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void remember(adapter_checks *c, const char *adapter, const stamp *is, const char *why)
{
    int64_t at;
    pthread_mutex_lock(&c->lock);
    if (!map_get(c->by_name, adapter, strlen(adapter), &at)) {
        c->known = xgrow(c->known, &c->cap, c->n + 1, sizeof *c->known);
        at = (int64_t)c->n++;
        c->known[at] = (finding){.why = NULL};
        map_put(c->by_name, adapter, strlen(adapter), at);
    }
    free(c->known[at].why);
    c->known[at] = (finding){*is, why ? xstrdup(why) : NULL};
    pthread_mutex_unlock(&c->lock);
}

/* Checks the files, and remembers the result with the stamp they had before. Files that change meanwhile have another
 * stamp, and are read again. */
static check_state read_headers(adapter_checks *c, const char *adapter, const char *dir, const stamp *is, err *e)
{
    bool bad = c->by.check(c->by.ctx, dir, e) != 0;
    if (bad) {
        log_warn("adapter %s cannot be served: %s", adapter, e->msg);
        err_hide_folder(e, dir);
    }
    remember(c, adapter, is, bad ? e->msg : NULL);
    return bad ? CHECK_BAD : CHECK_GOOD;
}

static check_state ask(adapter_checks *c, const char *adapter, bool reads, err *e)
{
    bool was_checked = c && catalog_is_registered(c->models, adapter); /* before it was registered */
    char *dir = c && c->by.check && !was_checked ? catalog_dir(c->models, adapter) : NULL;
    if (!dir)
        return CHECK_GOOD; /* whoever loads it will find out */
    stamp is = stamp_of(dir);
    check_state found = recall(c, adapter, &is, e);
    if (found == CHECK_UNKNOWN && reads)
        found = read_headers(c, adapter, dir, &is, e);
    free(dir);
    return found;
}

check_state adapter_checks_know(adapter_checks *c, const char *adapter, err *e)
{
    return ask(c, adapter, false, e);
}

check_state adapter_checks_look(adapter_checks *c, const char *adapter, err *e)
{
    return ask(c, adapter, true, e);
}

int adapter_checks_sort(adapter_checks *c, char **names, int n)
{
    char **bad = XNEW_ARRAY(char *, (size_t)n + 1);
    int n_good = 0, n_bad = 0;
    err e;
    for (int i = 0; i < n; i++)
        if (adapter_checks_look(c, names[i], &e) == CHECK_GOOD)
            names[n_good++] = names[i];
        else
            bad[n_bad++] = names[i];
    for (int i = 0; i < n_bad; i++)
        names[n_good + i] = bad[i];
    free(bad);
    return n_good;
}

int adapter_checks_filter(adapter_checks *c, char **names, int n)
{
    int n_good = adapter_checks_sort(c, names, n);
    for (int i = n_good; i < n; i++)
        free(names[i]);
    return n_good;
}
