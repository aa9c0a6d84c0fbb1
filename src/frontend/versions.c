/* versions.c - see versions.h */
#include "frontend/versions.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest_memo.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

_Static_assert((int)MEMO_FILES == (int)N_NEEDED, "a digest covers the files that are the adapter");

struct versions {
    const catalog *models;
    digest_memo *known; /* by the adapters' names */
};

versions *versions_new(const catalog *models)
{
    versions *v = XNEW(versions);
    *v = (versions){.models = models, .known = digest_memo_new()};
    return v;
}

void versions_free(versions *v)
{
    if (!v)
        return;
    digest_memo_free(v->known);
    free(v);
}

bool versions_know(versions *v, const char *adapter, digest *d)
{
    memo_stamp is;
    if (digest_memo_find(v->known, adapter, NULL, d))
        return true;
    char *dir = catalog_dir(v->models, adapter);
    bool known = dir && memo_stamp_of(&is, dir, adapter_file_name) == 0 && digest_memo_find(v->known, adapter, &is, d);
    free(dir);
    return known;
}

struct version_reading {
    versions *of;        /* borrowed: until version_reading_free() */
    char *adapter, *dir; /* dir NULL: there is no such adapter */
    memo_stamp before;
    bool has_stamp;
    digest_reader *files;
};

static digest_reader *read_folder(const char *dir)
{
    char *path[MEMO_FILES];
    for (int i = 0; i < MEMO_FILES; i++)
        path[i] = path_join(dir, adapter_file_name[i]);
    digest_reader *r = digest_reader_new((const char *const *)path, MEMO_FILES);
    for (int i = 0; i < MEMO_FILES; i++)
        free(path[i]);
    return r;
}

version_reading *versions_begin(versions *v, const char *adapter)
{
    version_reading *r = XNEW(version_reading);
    *r = (version_reading){.of = v, .adapter = xstrdup(adapter), .dir = catalog_dir(v->models, adapter)};
    r->has_stamp = r->dir && memo_stamp_of(&r->before, r->dir, adapter_file_name) == 0;
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

/* Remembers the digest, unless the files changed while they were read. */
static void remember_if_same(const version_reading *r, const digest *d)
{
    memo_stamp after;
    if (r->has_stamp && memo_stamp_of(&after, r->dir, adapter_file_name) == 0 &&
        memcmp(&r->before, &after, sizeof after) == 0)
        digest_memo_keep(r->of->known, r->adapter, &after, d);
}

int versions_read(version_reading *r, size_t most, digest *d, err *e)
{
    if (!r->dir)
        return err_set(e, "there is no such adapter any more");
    if (versions_know(r->of, r->adapter, d))
        return 0; /* another has found it out meanwhile */
    int status = digest_reader_go_on(r->files, most, d, e);
    if (status == 0)
        remember_if_same(r, d);
    return status;
}

void versions_set(versions *v, const char *adapter, const digest *d)
{
    digest_memo_keep(v->known, adapter, NULL, d);
}
