/* catalog.h - what a client may name as "model": the base model and its adapters
 *
 * Adapters are given one by one (NAME=DIR), or are the folders with an adapter_config.json in a directory. The
 * directory is read anew each time: an adapter put there is served from then on. Where the registry is in a store, its
 * names come from there (catalog_register()), each with the version that the store said last, whether its files are on
 * this host or not. Any thread may ask. */
#ifndef PUNICA_FRONTEND_CATALOG_H
#define PUNICA_FRONTEND_CATALOG_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/err.h"
#include "registry/adapter_files.h"
#include "store/store.h"

typedef struct catalog catalog;

/* A name of the store's registry, and its version at one moment. */
typedef struct {
    char *name; /* "NAME", or "TENANT/NAME" of a tenant's own */
    char id[ADAPTER_ID];
    digest version; /* the digest in id */
    char *source;   /* where its files may be fetched from */
    bool trusted;
    char *dir; /* their folder on this host, once they are there */
} registered;
void registered_deinit(registered *r);

typedef enum { CATALOG_NOTHING, CATALOG_BASE, CATALOG_ADAPTER } catalog_kind;

/* Returns a new catalog. adapters_dir: may be NULL. adapter: [n] "NAME=DIR". NULL with e set when one of these is not
 * there. */
catalog *catalog_new(const char *base, const char *adapters_dir, const char *const *adapter, int n, err *e);

/* Adds another directory, looked into after the first; it need not be there yet. To be called before anybody asks. */
void catalog_add_dir(catalog *c, const char *dir);

/* Replaces the names of the store's registry, whose files are in the disk cache `cache`. The loop's thread. */
void catalog_register(catalog *c, const char *cache, const store_adapter *a, size_t n);

/* Finds the registry's adapter that a client means by a name: a tenant's (owner not NULL) its own before any other.
 * True: *out, which the caller deinits, is what it is at this moment. False: the name is not the registry's. */
bool catalog_lookup(const catalog *c, const char *owner, const char *name, registered *out);

/* Returns whether this whole name (TENANT/NAME) is the registry's, and not given on this host as well. */
bool catalog_is_registered(const catalog *c, const char *name);

/* Returns a catalog of names alone, which looks at no directory. */
catalog *catalog_of_names(const char *base, const char *const *name, int n);
void catalog_free(catalog *c);

const char *catalog_base(const catalog *c);
catalog_kind catalog_find(const catalog *c, const char *name);

/* Returns an adapter's folder, owned by the caller; NULL: there is no such adapter, or its files are not on this host.
 * Links are followed: one that is changed later leads to the old or the new folder, never to files of both. */
char *catalog_dir(const catalog *c, const char *name);

/* Returns the names of all adapters, sorted, each once. The caller frees them: catalog_list_free(). */
char **catalog_list(const catalog *c, int *n);
void catalog_list_free(char **names, int n);

#endif
