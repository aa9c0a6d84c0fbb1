/* component.c - see component.h */
#include "text/component.h"

#include <string.h>

static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL && n > 0; at += n)
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

int component_keys(const json_t *spec, const char *names, err *e)
{
    json_t *iterated = (json_t *)spec; /* jansson's iterators take no const */
    for (void *it = json_object_iter(iterated); it; it = json_object_iter_next(iterated, it))
        if (!is_listed(names, json_object_iter_key(it)))
            return err_set(e, "unknown member \"%s\"", json_object_iter_key(it));
    return 0;
}

int component_text(const json_t *spec, const char *key, const char **text, size_t *n, err *e)
{
    const json_t *v = json_object_get(spec, key);
    if (!json_is_string(v))
        return err_set(e, "\"%s\" must be a string", key);
    *text = json_string_value(v);
    *n = json_string_length(v);
    return 0;
}

typedef struct {
    const char *kind, *list_key;
    component_add add;
    void *self;
    int n_steps;
} walk;

static int visit(walk *w, const json_t *spec, int depth, err *e)
{
    if (json_is_null(spec) || !spec)
        return 0;
    const char *type = json_string_value(json_object_get(spec, "type"));
    if (!type)
        return err_set(e, "%s: must be null or an object with a \"type\"", w->kind);
    if (strcmp(type, "Sequence") != 0) {
        if (++w->n_steps > COMPONENT_MAX_STEPS)
            return err_set(e, "%s: more than %d steps", w->kind, COMPONENT_MAX_STEPS);
        return w->add(w->self, type, spec, e) ? err_wrap(e, "%s %s", w->kind, type) : 0;
    }
    const json_t *list = json_object_get(spec, w->list_key);
    if (depth > COMPONENT_MAX_STEPS)
        return err_set(e, "%s Sequence: nested more than %d deep", w->kind, COMPONENT_MAX_STEPS);
    if (!json_is_array(list))
        return err_set(e, "%s Sequence: needs an array \"%s\"", w->kind, w->list_key);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (visit(w, json_array_get(list, i), depth + 1, e))
            return -1;
    return 0;
}

int component_each(const json_t *spec, const char *kind, const char *list_key, component_add add, void *self, err *e)
{
    walk w = {.kind = kind, .list_key = list_key, .add = add, .self = self};
    return visit(&w, spec, 0, e);
}
