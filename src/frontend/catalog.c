/* catalog.c - see catalog.h */
#include "frontend/catalog.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/utf8.h"

struct catalog {
    char *base;
    char *dir[2];               /* [n_dirs] */
    int n_dirs;
    char **name, **given_dir;   /* [n] given one by one */
    int n;
};

static bool is_adapter_dir(const char *dir)
{
    char *path = path_join(dir, "adapter_config.json");
    bool is = file_exists(path);
    free(path);
    return is;
}

static int add_given(catalog *c, const char *arg, err *e)
{
    const char *equals = strchr(arg, '=');
    if (!equals || equals == arg || !equals[1])
        return err_set(e, "--adapter takes NAME=DIR, not \"%s\"", arg);
    if (!utf8_is_valid(arg, (size_t)(equals - arg)))
        return err_set(e, "--adapter %s: the name is not UTF-8", arg);
    if (!is_adapter_dir(equals + 1))
        return err_set(e, "--adapter %s: there is no adapter_config.json in that directory", arg);
    c->name[c->n] = xstrndup(arg, (size_t)(equals - arg));
    c->given_dir[c->n++] = xstrdup(equals + 1);
    return 0;
}

catalog *catalog_new(const char *base, const char *adapters_dir, const char *const *adapter, int n, err *e)
{
    catalog *c = XNEW(catalog);
    *c = (catalog){.base = xstrdup(base), .name = XNEW_ARRAY(char *, (size_t)n + 1), .given_dir = XNEW_ARRAY(char *, (size_t)n + 1)};
    int rc = 0;
    if (adapters_dir)
        catalog_add_dir(c, adapters_dir);
    if (adapters_dir && !file_is_dir(adapters_dir))
        rc = err_set(e, "--adapters %s: there is no such directory", adapters_dir);
    for (int i = 0; i < n && rc == 0; i++)
        rc = add_given(c, adapter[i], e);
    if (rc == 0)
        return c;
    catalog_free(c);
    return NULL;
}

void catalog_add_dir(catalog *c, const char *dir)
{
    CHECK(c->n_dirs < (int)(sizeof c->dir / sizeof c->dir[0]));
    c->dir[c->n_dirs++] = xstrdup(dir);
}

catalog *catalog_of_names(const char *base, const char *const *name, int n)
{
    catalog *c = XNEW(catalog);
    *c = (catalog){.base = xstrdup(base), .name = XNEW_ARRAY(char *, (size_t)n + 1), .given_dir = XNEW_ARRAY(char *, (size_t)n + 1)};
    for (; c->n < n; c->n++) {
        c->name[c->n] = xstrdup(name[c->n]);
        c->given_dir[c->n] = xstrdup("");
    }
    return c;
}

void catalog_free(catalog *c)
{
    if (!c)
        return;
    catalog_list_free(c->name, c->n);
    catalog_list_free(c->given_dir, c->n);
    for (int i = 0; i < c->n_dirs; i++)
        free(c->dir[i]);
    free(c->base);
    free(c);
}

const char *catalog_base(const catalog *c)
{
    return c->base;
}

/* The adapter's folder in a directory, links followed; NULL: there is none. */
static char *folder_in(const char *dir, const char *name)
{
    char *path = path_child(dir, name), *folder = path ? path_resolve(path) : NULL;
    free(path);
    if (folder && is_adapter_dir(folder))
        return folder;
    free(folder);
    return NULL;
}

static char *folder_of(const catalog *c, const char *name)
{
    char *folder = NULL;
    for (int i = 0; i < c->n_dirs && !folder && utf8_is_valid(name, strlen(name)); i++)
        folder = folder_in(c->dir[i], name);
    return folder;
}

static bool is_in_dir(const catalog *c, const char *name)
{
    char *path = folder_of(c, name);
    bool is = path != NULL;
    free(path);
    return is;
}

catalog_kind catalog_find(const catalog *c, const char *name)
{
    if (strcmp(name, c->base) == 0)
        return CATALOG_BASE;
    for (int i = 0; i < c->n; i++)
        if (strcmp(name, c->name[i]) == 0)
            return CATALOG_ADAPTER;
    return is_in_dir(c, name) ? CATALOG_ADAPTER : CATALOG_NOTHING;
}

char *catalog_dir(const catalog *c, const char *name)
{
    if (strcmp(name, c->base) == 0)
        return NULL;
    for (int i = 0; i < c->n; i++)
        if (strcmp(name, c->name[i]) == 0)
            return xstrdup(c->given_dir[i]);
    return folder_of(c, name);
}

typedef struct { char **name; int n; size_t cap; } name_list;

static void add_name(name_list *l, const char *name)
{
    l->name = xgrow(l->name, &l->cap, (size_t)l->n + 1, sizeof *l->name);
    l->name[l->n++] = xstrdup(name);
}

static void add_folders(const catalog *c, const char *dir, name_list *l)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (const struct dirent *f; (f = readdir(d));)
        if (is_in_dir(c, f->d_name))
            add_name(l, f->d_name);
    closedir(d);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **catalog_list(const catalog *c, int *n)
{
    name_list l = {0};
    for (int i = 0; i < c->n; i++)
        add_name(&l, c->name[i]);
    for (int i = 0; i < c->n_dirs; i++)
        add_folders(c, c->dir[i], &l);
    if (l.n > 0)
        qsort(l.name, (size_t)l.n, sizeof *l.name, compare);
    *n = 0;
    for (int i = 0; i < l.n; i++) {
        bool again = (*n > 0 && strcmp(l.name[i], l.name[*n - 1]) == 0) || strcmp(l.name[i], c->base) == 0;
        if (again)
            free(l.name[i]);
        else
            l.name[(*n)++] = l.name[i];
    }
    return l.name;
}

void catalog_list_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
