/* catalog.c - see catalog.h */
#include "frontend/catalog.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sort.h"
#include "registry/adapter_arg.h"
#include "text/utf8.h"

struct catalog {
    char *base;
    char *dir[2]; /* [n_dirs] */
    int n_dirs;
    char **name, **given_dir; /* [n] given one by one */
    int n;
    pthread_mutex_t lock; /* guards all below: the store's registry */
    char *cache;          /* NULL: there is none */
    registered *all;      /* [n_all] without dir */
    size_t n_all;
    map *by_name; /* from name to index in all */
};

void registered_deinit(registered *r)
{
    free(r->name);
    free(r->source);
    free(r->dir);
    *r = (registered){0};
}

static void forget_registered(catalog *c)
{
    for (size_t i = 0; i < c->n_all; i++)
        registered_deinit(&c->all[i]);
    free(c->all);
    map_free(c->by_name);
    c->all = NULL;
    c->by_name = NULL;
    c->n_all = 0;
}

static catalog *new_catalog(const char *base, int n)
{
    catalog *c = XNEW(catalog);
    *c = (catalog){.base = xstrdup(base),
                   .name = XNEW_ARRAY(char *, (size_t)n + 1),
                   .given_dir = XNEW_ARRAY(char *, (size_t)n + 1)};
    CHECK(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

static int add_given(catalog *c, const char *arg, err *e)
{
    size_t n_name;
    const char *dir = adapter_arg_split(arg, &n_name, e);
    if (!dir)
        return -1;
    if (!utf8_is_valid(arg, n_name))
        return err_set(e, "--adapter %s: the name is not UTF-8", arg);
    if (!adapter_files_are_in(dir))
        return err_set(e, "--adapter %s: there is no %s in that directory", arg, adapter_file_name[FILE_CONFIG]);
    c->name[c->n] = xstrndup(arg, n_name);
    c->given_dir[c->n++] = xstrdup(dir);
    return 0;
}

catalog *catalog_new(const char *base, const char *adapters_dir, const char *const *adapter, int n, err *e)
{
    catalog *c = new_catalog(base, n);
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
    catalog *c = new_catalog(base, n);
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
    forget_registered(c);
    pthread_mutex_destroy(&c->lock);
    free(c->cache);
    free(c->base);
    free(c);
}

const char *catalog_base(const catalog *c)
{
    return c->base;
}

static char *folder_of(const catalog *c, const char *name)
{
    char *folder = NULL;
    for (int i = 0; i < c->n_dirs && !folder && utf8_is_valid(name, strlen(name)); i++)
        folder = adapter_files_find(c->dir[i], name);
    return folder;
}

static bool is_in_dir(const catalog *c, const char *name)
{
    char *path = folder_of(c, name);
    bool is = path != NULL;
    free(path);
    return is;
}

static bool is_given(const catalog *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(name, c->name[i]) == 0)
            return true;
    return is_in_dir(c, name);
}

/* Entries whose id is not valid are left out: nobody can be served with them. */
void catalog_register(catalog *c, const char *cache, const store_adapter *a, size_t n)
{
    registered *all = XNEW_ARRAY(registered, n + 1);
    map *by_name = map_new(n + 16);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        registered r = {0};
        char hex[DIGEST_HEX] = {0};
        if (!adapter_id_is_valid(a[i].id))
            continue;
        memcpy(hex, a[i].id, DIGEST_HEX - 1);
        if (digest_from_hex(&r.version, hex))
            continue;
        memcpy(r.id, a[i].id, strlen(a[i].id) + 1);
        r.name = *a[i].owner ? xasprintf("%s/%s", a[i].owner, a[i].name) : xstrdup(a[i].name);
        r.source = xstrdup(a[i].source);
        r.trusted = a[i].trusted;
        map_put(by_name, r.name, strlen(r.name), (int64_t)kept);
        all[kept++] = r;
    }
    pthread_mutex_lock(&c->lock);
    forget_registered(c);
    c->all = all;
    c->n_all = kept;
    c->by_name = by_name;
    if (!c->cache)
        c->cache = xstrdup(cache);
    pthread_mutex_unlock(&c->lock);
}

/* Copies what is registered under the whole name, unless out is NULL. False: nothing is. */
static bool copy_registered(const catalog *c, const char *full, registered *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock; /* whoever only asks takes it too */
    int64_t at;
    pthread_mutex_lock(lock);
    bool found = c->by_name && map_get(c->by_name, full, strlen(full), &at);
    if (found && out) {
        *out = c->all[at];
        out->name = xstrdup(out->name);
        out->source = xstrdup(out->source);
        out->dir = path_join(c->cache, out->id);
    }
    pthread_mutex_unlock(lock);
    return found;
}

bool catalog_is_registered(const catalog *c, const char *name)
{
    return copy_registered(c, name, NULL) && !is_given(c, name);
}

/* Adapters given on this host come before the operators' registered ones: the host's own operator put them there. */
bool catalog_lookup(const catalog *c, const char *owner, const char *name, registered *out)
{
    char *own = owner ? xasprintf("%s/%s", owner, name) : NULL;
    bool found = own && copy_registered(c, own, out);
    free(own);
    return found || (strcmp(name, c->base) != 0 && !is_given(c, name) && copy_registered(c, name, out));
}

catalog_kind catalog_find(const catalog *c, const char *name)
{
    if (strcmp(name, c->base) == 0)
        return CATALOG_BASE;
    return is_given(c, name) || copy_registered(c, name, NULL) ? CATALOG_ADAPTER : CATALOG_NOTHING;
}

char *catalog_dir(const catalog *c, const char *name)
{
    if (strcmp(name, c->base) == 0)
        return NULL;
    for (int i = 0; i < c->n; i++)
        if (strcmp(name, c->name[i]) == 0)
            return xstrdup(c->given_dir[i]);
    char *folder = folder_of(c, name);
    registered r;
    if (folder || !copy_registered(c, name, &r))
        return folder;
    if (adapter_files_are_in(r.dir))
        folder = xstrdup(r.dir);
    registered_deinit(&r);
    return folder;
}

typedef struct {
    char **name;
    int n;
    size_t cap;
} name_list;

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

static void add_registered(const catalog *c, name_list *l)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock;
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < c->n_all; i++)
        add_name(l, c->all[i].name);
    pthread_mutex_unlock(lock);
}

char **catalog_list(const catalog *c, int *n)
{
    name_list l = {0};
    for (int i = 0; i < c->n; i++)
        add_name(&l, c->name[i]);
    for (int i = 0; i < c->n_dirs; i++)
        add_folders(c, c->dir[i], &l);
    add_registered(c, &l);
    if (l.n > 0)
        qsort(l.name, (size_t)l.n, sizeof *l.name, sort_by_text);
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
