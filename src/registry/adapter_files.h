/* adapter_files.h - the files an adapter consists of; nothing else is fetched, unpacked or kept */
#ifndef PUNICA_REGISTRY_ADAPTER_FILES_H
#define PUNICA_REGISTRY_ADAPTER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"

/* The first two are the adapter (model/adapter.h), the others are what text/chat.c reads of a chat template. */
enum { FILE_CONFIG, FILE_WEIGHTS, N_NEEDED, FILE_TEMPLATE = N_NEEDED, N_ADAPTER_FILES = N_NEEDED + 5 };

/* Their names, relative to the adapter's folder. */
extern const char *const adapter_file_name[N_ADAPTER_FILES];

/* Returns which of them a path relative to the adapter's folder is; -1: none. */
int adapter_file_find(const char *path);

/* Returns whether a folder is an adapter's: it has a configuration. */
bool adapter_files_are_in(const char *dir);

/* Finds the folder of the adapter of this name in a directory. Returns its real path, links resolved, owned by the
 * caller; NULL: there is none. */
char *adapter_files_find(const char *dir, const char *name);

/* Makes the folder that a file is in, if it is missing. path begins with the adapter's own folder, which must exist. 0,
 * or -1 with e set. */
int adapter_file_make_folder(const char *path, err *e);

/* Returns the most bytes that a file may have: of the weights as many as of the whole, of texts at most 4 MiB. */
size_t adapter_file_limit(int file, size_t whole);

/* An adapter's id, its folder's name in a cache: its digest (model/adapter.h) and, if it brings a chat template, "+"
 * and 16 digits of a digest of the template's files; the same weights with two templates are two adapters. */
enum { ADAPTER_ID = DIGEST_HEX + 1 + 16 };
int adapter_id_make(char id[ADAPTER_ID], const char *dir, const char *digest_hex, err *e);
bool adapter_id_is_valid(const char *id);

/* Returns the bytes of all of them in a folder. */
size_t adapter_files_bytes(const char *dir);

#endif
