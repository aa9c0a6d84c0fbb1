/* adapter_files.h - the files an adapter consists of; nothing else is fetched, unpacked or kept */
#ifndef PUNICA_REGISTRY_ADAPTER_FILES_H
#define PUNICA_REGISTRY_ADAPTER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"

/* The first two are the adapter; the others are what frontend/templates.c reads for its chat template. */
enum { FILE_CONFIG, FILE_WEIGHTS, N_NEEDED, FILE_TEMPLATE = N_NEEDED, N_ADAPTER_FILES = N_NEEDED + 5 };

/* Their names; some are in a folder of the adapter's. */
extern const char *const adapter_file_name[N_ADAPTER_FILES];

/* Which of them a path relative to the adapter's folder is; -1: none. */
int adapter_file_find(const char *path);

/* Make the folder that one of them is in, if it is not there: path has the adapter's own folder, which must be. */
int adapter_file_make_folder(const char *path, err *e);

/* No text is larger; of the weights at most so much as of the whole. */
size_t adapter_file_limit(int file, size_t whole);

/* An adapter's folder among others of a cache: its digest (as model/adapter.h has it) and, if it brings a chat
 * template, "+" and a digest of the files of that; the same weights with two templates are two adapters. */
enum { ADAPTER_ID = DIGEST_HEX + 1 + 16 };
int adapter_id_make(char id[ADAPTER_ID], const char *dir, const char *digest_hex, err *e);
bool adapter_id_is_valid(const char *id);

/* The bytes of all of them in a folder. */
size_t adapter_files_bytes(const char *dir);

#endif
