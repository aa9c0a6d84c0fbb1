/* catalog.h - what a client may name as "model": the base model and its adapters
 *
 * Adapters are given one by one (NAME=DIR), or are the folders with an adapter_config.json in a directory, which is looked into
 * anew each time: an adapter put there is served from then on. Immutable once it is set up: any thread may ask. */
#ifndef PUNICA_FRONTEND_CATALOG_H
#define PUNICA_FRONTEND_CATALOG_H

#include "base/err.h"

typedef struct catalog catalog;

typedef enum { CATALOG_NOTHING, CATALOG_BASE, CATALOG_ADAPTER } catalog_kind;

/* adapters_dir: may be NULL. adapter: [n] "NAME=DIR". NULL with e set when one of these is not there. */
catalog *catalog_new(const char *base, const char *adapters_dir, const char *const *adapter, int n, err *e);

/* Another directory, behind the first; it need not be there yet. Before anybody asks. */
void catalog_add_dir(catalog *c, const char *dir);

/* The same of names alone, without looking at any directory. */
catalog *catalog_of_names(const char *base, const char *const *name, int n);
void catalog_free(catalog *c);

const char *catalog_base(const catalog *c);
catalog_kind catalog_find(const catalog *c, const char *name);

/* Of an adapter, owned by the caller; NULL: it is none. Links are followed: one that is changed later leads to the old or the new
 * folder, never to files of both. */
char *catalog_dir(const catalog *c, const char *name);

/* All adapters' names now, sorted, each once. Owned by the caller: catalog_list_free(). */
char **catalog_list(const catalog *c, int *n);
void catalog_list_free(char **names, int n);

#endif
