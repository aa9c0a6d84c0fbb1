/* model_view.c - see model_view.h */
#include "frontend/model_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/sort.h"

struct model_view {
    int n_keepers;
    char *owner;
    char *base;
    bool may_base;
    char *given; /* all grants, each with its NUL, in the order they came in */
    size_t given_len;
    char **name;    /* [n_names] sorted, whole */
    char **pattern; /* [n_patterns] that end with a star */
    size_t n_names, n_patterns;
};

model_view *model_view_new(const char *owner, const char *base, bool may, const store_grant *grant, size_t n)
{
    model_view *v = XNEW(model_view);
    *v = (model_view){.n_keepers = 1,
                      .owner = xstrdup(owner),
                      .base = xstrdup(base),
                      .may_base = may,
                      .name = XNEW_ARRAY(char *, n + 1),
                      .pattern = XNEW_ARRAY(char *, n + 1)};
    buf given = {0};
    for (size_t i = 0; i < n; i++) {
        const char *text = grant[i].adapter;
        buf_add(&given, text, strlen(text) + 1);
        if (strchr(text, '*'))
            v->pattern[v->n_patterns++] = xstrdup(text);
        else
            v->name[v->n_names++] = xstrdup(text);
    }
    if (v->n_names)
        qsort(v->name, v->n_names, sizeof *v->name, sort_by_text);
    v->given_len = given.len;
    v->given = buf_take(&given);
    return v;
}

bool model_view_is(const model_view *v, bool may, const store_grant *grant, size_t n)
{
    size_t at = 0;
    bool same = v->may_base == may;
    for (size_t i = 0; i < n && same; i++) {
        size_t len = strlen(grant[i].adapter) + 1;
        same = len <= v->given_len - at && memcmp(v->given + at, grant[i].adapter, len) == 0;
        at += len;
    }
    return same && at == v->given_len;
}

model_view *model_view_keep(model_view *v)
{
    if (v)
        v->n_keepers++;
    return v;
}

void model_view_release(model_view *v)
{
    if (!v || --v->n_keepers > 0)
        return;
    for (size_t i = 0; i < v->n_names; i++)
        free(v->name[i]);
    for (size_t i = 0; i < v->n_patterns; i++)
        free(v->pattern[i]);
    free(v->name);
    free(v->pattern);
    free(v->given);
    free(v->owner);
    free(v->base);
    free(v);
}

const char *model_view_owner(const model_view *v)
{
    return v ? v->owner : NULL;
}

bool model_view_has_base(const model_view *v)
{
    return !v || v->may_base;
}

bool model_view_has(const model_view *v, const char *name)
{
    if (!v || strcmp(name, v->base) == 0)
        return model_view_has_base(v);
    size_t n = strlen(v->owner);
    if (n && strncmp(name, v->owner, n) == 0 && name[n] == '/')
        return true;
    bool has = bsearch(&name, v->name, v->n_names, sizeof *v->name, sort_by_text);
    for (size_t i = 0; i < v->n_patterns && !has; i++)
        has = store_grant_covers(v->pattern[i], name);
    return has;
}
