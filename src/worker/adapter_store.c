/* adapter_store.c - see adapter_store.h; all on the engine's loader threads */
#include "worker/adapter_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "registry/adapter_arg.h"
#include "registry/adapter_files.h"
#include "registry/disk_cache.h"
#include "registry/registry.h"
#include "worker/adapter_key.h"

/* Returns the directory of the adapter of this name, owned by the caller; NULL: there is none. */
static char *find_dir(const adapter_store *s, const char *name)
{
    size_t n = strlen(name), n_name;
    err e;
    for (int i = 0; i < s->n_named; i++) {
        const char *dir = adapter_arg_split(s->named[i], &n_name, &e);
        if (dir && n_name == n && memcmp(s->named[i], name, n) == 0)
            return xstrdup(dir);
    }
    char *folder = s->dir ? adapter_files_find(s->dir, name) : NULL;
    if (!folder && s->cache) {
        char *names = registry_names_dir(s->cache);
        folder = adapter_files_find(names, name);
        free(names);
    }
    return folder;
}

/* Opens the adapter of a folder. NULL with e set, also when its digest is not hex (hex NULL: any will do). */
static adapter *open_version(const adapter_store *s, const char *dir, const char *hex, err *e)
{
    adapter *a = adapter_open_again(dir, s->base, s->digests, e);
    if (!a || !hex || strcmp(adapter_describe(a)->digest, hex) == 0)
        return a;
    err_set(e,
            "it was replaced since the request began: the weights the request was begun with (%.12s) are not on this "
            "host any "
            "more, those of now are %.12s",
            hex, adapter_describe(a)->digest);
    adapter_close(a);
    return NULL;
}

/* Opens an adapter by its digest; NULL: the disk cache does not have it, or it is damaged. */
static adapter *open_cached(const adapter_store *s, const char *hex)
{
    char *dir = s->cache && hex ? disk_cache_find(s->cache, hex) : NULL;
    err e;
    adapter *a = dir ? open_version(s, dir, hex, &e) : NULL;
    if (dir && !a)
        log_warn("%s", e.msg);
    if (a)
        disk_cache_use(dir);
    free(dir);
    return a;
}

static adapter *open_named(const adapter_store *s, const char *name, const char *hex, err *e)
{
    char *dir = find_dir(s, name);
    if (!dir) {
        err_set(e, "there is no adapter \"%s\"", name);
        return NULL;
    }
    adapter *a = open_version(s, dir, hex, e);
    if (!a) {
        log_warn("adapter %s: %s", name, e->msg);
        err_hide_folder(e, dir); /* clients see the message */
        err_wrap(e, "adapter %s", name);
    }
    free(dir);
    return a;
}

static lora *load_from(const adapter_store *s, const char *name, const char *hex, err *e)
{
    adapter *a = open_cached(s, hex);
    a = a ? a : open_named(s, name, hex, e);
    if (!a)
        return NULL;
    lora *l = adapter_to_lora(a, s->be);
    adapter_close(a);
    return l;
}

static lora *load(void *ctx, const char *key, err *e)
{
    const char *hex;
    char *name = xstrndup(key, adapter_key_split(key, &hex));
    lora *l = load_from(ctx, name, hex, e);
    free(name);
    return l;
}

adapter_source adapter_store_source(adapter_store *s)
{
    return (adapter_source){.load = load, .ctx = s};
}
