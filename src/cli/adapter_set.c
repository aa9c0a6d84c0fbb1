/* adapter_set.c - see adapter_set.h */
#include "cli/adapter_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "registry/adapter_arg.h"

static int find_named(const adapter_set *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return i;
    return -1;
}

static int open_one(adapter_set *s, const char *arg, const model_config *base, err *e)
{
    size_t n_name;
    const char *dir = adapter_arg_split(arg, &n_name, e);
    if (!dir)
        return -1;
    char *name = xstrndup(arg, n_name);
    adapter *a = NULL;
    if (find_named(s, name) >= 0)
        err_set(e, "adapter %s is given twice", name);
    else if (!(a = adapter_open(dir, base, e)))
        err_wrap(e, "adapter %s", name);
    if (!a) {
        free(name);
        return -1;
    }
    s->name[s->n] = name;
    s->dir[s->n] = dir;
    s->adapter[s->n++] = a;
    return 0;
}

int adapter_set_open(adapter_set *s, const option_list *args, const model_config *base, backend *be, err *e)
{
    size_t n = (size_t)args->n;
    *s = (adapter_set){.name = XNEW_ARRAY(char *, n),
                       .dir = XNEW_ARRAY(const char *, n),
                       .adapter = XNEW_ARRAY(adapter *, n),
                       .be = be};
    for (int i = 0; i < args->n; i++)
        if (open_one(s, args->items[i], base, e)) {
            adapter_set_close(s);
            return -1;
        }
    return 0;
}

void adapter_set_close(adapter_set *s)
{
    for (int i = 0; i < s->n; i++) {
        adapter_close(s->adapter[i]);
        free(s->name[i]);
    }
    free(s->adapter);
    free(s->dir);
    free(s->name);
    *s = (adapter_set){0};
}

bool adapter_set_has(const adapter_set *s, const char *name)
{
    return find_named(s, name) >= 0;
}

/* Called on the engine's loader threads; the set does not change while the engine lives. */
static lora *load(void *ctx, const char *name, err *e)
{
    (void)e;
    const adapter_set *s = ctx;
    int i = find_named(s, name);
    CHECK(i >= 0);
    return adapter_to_lora(s->adapter[i], s->be);
}

adapter_source adapter_set_source(adapter_set *s)
{
    return (adapter_source){.load = load, .ctx = s};
}
