/* versions.c - see versions.h */
#include "frontend/versions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"

static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
enum { N_FILES = sizeof files / sizeof files[0] };

/* What tells that both are still the same. */
typedef struct { file_stamp file[N_FILES]; } stamp;

typedef struct { stamp is; digest d; bool fixed; } version;

struct versions {
    const catalog *models;
    pthread_mutex_t lock;       /* guards all below */
    map *by_name;               /* of places in known */
    version *known;             /* [n] */
    size_t n, cap;
};

versions *versions_new(const catalog *models)
{
    versions *v = XNEW(versions);
    *v = (versions){.models = models, .by_name = map_new(64)};
    CHECK(pthread_mutex_init(&v->lock, NULL) == 0);
    return v;
}

void versions_free(versions *v)
{
    if (!v)
        return;
    pthread_mutex_destroy(&v->lock);
    map_free(v->by_name);
    free(v->known);
    free(v);
}

/* -1: some file is not there. */
static int stamp_of(const char *dir, stamp *is)
{
    for (int i = 0; i < N_FILES; i++) {
        char *path = path_join(dir, files[i]);
        is->file[i] = file_stamp_of(path);
        free(path);
        if (!is->file[i].inode)
            return -1;
    }
    return 0;
}

/* Of the lock's holder: where the adapter is remembered; NULL: nowhere. */
static version *find(const versions *v, const char *adapter)
{
    int64_t at;
    return map_get(v->by_name, adapter, strlen(adapter), &at) ? &v->known[at] : NULL;
}

static void remember(versions *v, const char *adapter, const version *what)
{
    pthread_mutex_lock(&v->lock);
    version *old = find(v, adapter);
    if (!old) {
        v->known = xgrow(v->known, &v->cap, v->n + 1, sizeof *v->known);
        map_put(v->by_name, adapter, strlen(adapter), (int64_t)v->n);
        old = &v->known[v->n++];
    }
    *old = *what;
    pthread_mutex_unlock(&v->lock);
}

/* Whether it is remembered with this stamp, or fixed (is NULL). */
static bool recall(versions *v, const char *adapter, const stamp *is, digest *d)
{
    pthread_mutex_lock(&v->lock);
    const version *known = find(v, adapter);
    bool same = known && (is ? memcmp(&known->is, is, sizeof *is) == 0 : known->fixed);
    if (same)
        *d = known->d;
    pthread_mutex_unlock(&v->lock);
    return same;
}

bool versions_know(versions *v, const char *adapter, digest *d)
{
    stamp is;
    if (recall(v, adapter, NULL, d))
        return true;
    char *dir = catalog_dir(v->models, adapter);
    bool known = dir && stamp_of(dir, &is) == 0 && recall(v, adapter, &is, d);
    free(dir);
    return known;
}

struct version_reading {
    versions *of;               /* borrowed: until version_reading_free() */
    char *adapter, *dir;        /* dir NULL: there is no such adapter */
    stamp before;
    bool has_stamp;
    digest_reader *files;
};

static digest_reader *read_folder(const char *dir)
{
    char *path[N_FILES];
    for (int i = 0; i < N_FILES; i++)
        path[i] = path_join(dir, files[i]);
    digest_reader *r = digest_reader_new((const char *const *)path, N_FILES);
    for (int i = 0; i < N_FILES; i++)
        free(path[i]);
    return r;
}

version_reading *versions_begin(versions *v, const char *adapter)
{
    version_reading *r = XNEW(version_reading);
    *r = (version_reading){.of = v, .adapter = xstrdup(adapter), .dir = catalog_dir(v->models, adapter)};
    r->has_stamp = r->dir && stamp_of(r->dir, &r->before) == 0;
    r->files = r->dir ? read_folder(r->dir) : NULL;
    return r;
}

void version_reading_free(version_reading *r)
{
    if (!r)
        return;
    digest_reader_free(r->files);
    free(r->adapter);
    free(r->dir);
    free(r);
}

/* Files that changed while they were read are read again, later: nothing is remembered of them. */
static void remember_if_same(const version_reading *r, const digest *d)
{
    stamp after;
    if (r->has_stamp && stamp_of(r->dir, &after) == 0 && memcmp(&r->before, &after, sizeof after) == 0)
        remember(r->of, r->adapter, &(version){.is = after, .d = *d});
}

int versions_read(version_reading *r, size_t most, digest *d, err *e)
{
    if (!r->dir)
        return err_set(e, "there is no such adapter any more");
    if (versions_know(r->of, r->adapter, d))
        return 0;               /* another has found it out meanwhile */
    int status = digest_reader_go_on(r->files, most, d, e);
    if (status == 0)
        remember_if_same(r, d);
    return status;
}

void versions_set(versions *v, const char *adapter, const digest *d)
{
    remember(v, adapter, &(version){.d = *d, .fixed = true});
}
