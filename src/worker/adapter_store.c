/* adapter_store.c - see adapter_store.h; all on the engine's loader threads */
#include "worker/adapter_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "worker/adapter_key.h"

/* The directory of an adapter, owned by the caller; NULL: nobody knows one of this name. */
static char *find(const adapter_store *s, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < s->n_named; i++)
        if (strncmp(s->named[i], name, n) == 0 && s->named[i][n] == '=')
            return xstrdup(s->named[i] + n + 1);
    char *dir = s->dir ? path_child(s->dir, name) : NULL;
    if (!dir)
        return NULL;
    char *config = path_join(dir, "adapter_config.json");
    bool there = file_exists(config);
    free(config);
    if (there)
        return dir;
    free(dir);
    return NULL;
}

/* The adapter of a folder, if it has the content that is asked for; hex NULL: whatever it has. */
static adapter *open_version(const adapter_store *s, const char *dir, const char *hex, err *e)
{
    adapter *a = adapter_open(dir, s->base, e);
    if (!a || !hex || strcmp(adapter_describe(a)->digest, hex) == 0)
        return a;
    err_set(e, "it was replaced since the request began: the weights the request was begun with (%.12s) are not on this host any "
            "more, those of now are %.12s", hex, adapter_describe(a)->digest);
    adapter_close(a);
    return NULL;
}

static lora *load_from(const adapter_store *s, const char *name, const char *hex, err *e)
{
    char *dir = find(s, name);
    if (!dir) {
        err_set(e, "there is no adapter \"%s\"", name);
        return NULL;
    }
    adapter *a = open_version(s, dir, hex, e);
    if (!a) {
        log_warn("adapter %s: %s", name, e->msg);
        err_hide_folder(e, dir);        /* it is told to clients */
        err_wrap(e, "adapter %s", name);
    }
    free(dir);
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
