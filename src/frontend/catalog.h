/* catalog.h - what a client may name as "model": the base model and its adapters
 *
 * Adapters are given one by one (NAME=DIR), or are the folders with an adapter_config.json in a directory, which is
 * looked into anew each time: an adapter put there is served from then on. Where the registry is in a store, its names
 * come from there (catalog_register()), and each is what the store said last, whether its files are on this host or
 * not. Any thread may ask. */
#ifndef PUNICA_FRONTEND_CATALOG_H
#define PUNICA_FRONTEND_CATALOG_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/err.h"
#include "registry/adapter_files.h"
#include "store/store.h"

typedef struct catalog catalog;

/* A name of the store's registry, and the version that is served by it at one moment. */
typedef struct {
    char *name; /* "NAME", or "TENANT/NAME" of a tenant's own */
    char id[ADAPTER_ID];
    digest version; /* the digest in it */
    char *source;   /* where its files may be fetched from */
    bool trusted;
    char *dir; /* where they are on this host, once they are there */
} registered;
void registered_deinit(registered *r);

typedef enum { CATALOG_NOTHING, CATALOG_BASE, CATALOG_ADAPTER } catalog_kind;

/* adapters_dir: may be NULL. adapter: [n] "NAME=DIR". NULL with e set when one of these is not there. */
catalog *catalog_new(const char *base, const char *adapters_dir, const char *const *adapter, int n, err *e);

/* Another directory, behind the first; it need not be there yet. Before anybody asks. */
void catalog_add_dir(catalog *c, const char *dir);

/* These are the names of the store's registry from now on, whose files are in the disk cache `cache`. The loop's
 * thread. */
void catalog_register(catalog *c, const char *cache, const store_adapter *a, size_t n);

/* What somebody means by a name: a tenant (owner not NULL) its own adapter of this name before any other. True: it is
 * the registry's, and *out, which the caller deinits, is what it is at this moment. */
bool catalog_lookup(const catalog *c, const char *owner, const char *name, registered *out);

/* Whether this whole name is the registry's. */
bool catalog_is_registered(const catalog *c, const char *name);

/* The same of names alone, without looking at any directory. */
catalog *catalog_of_names(const char *base, const char *const *name, int n);
void catalog_free(catalog *c);

const char *catalog_base(const catalog *c);
catalog_kind catalog_find(const catalog *c, const char *name);

/* Of an adapter, owned by the caller; NULL: it is none, or is not on this host. Links are followed: one that is changed
 * later leads to the old or the new folder, never to files of both. */
char *catalog_dir(const catalog *c, const char *name);

/* All adapters' names now, sorted, each once. Owned by the caller: catalog_list_free(). */
char **catalog_list(const catalog *c, int *n);
void catalog_list_free(char **names, int n);

#endif
