/* adapter_record.h - what a name is and was: its versions, and which of them is served
 *
 * A plain value: no disk, no locks. registry.h keeps records. */
#ifndef PUNICA_REGISTRY_ADAPTER_RECORD_H
#define PUNICA_REGISTRY_ADAPTER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "registry/adapter_files.h"

typedef struct {
    int number;          /* 1, 2, ... of this name, never used twice */
    char id[ADAPTER_ID]; /* its folder in a disk cache; the digest is its beginning */
    char *source;        /* without secrets */
    char *url;           /* the source with its secrets, for other hosts to fetch it from; "": there are none */
    bool trusted;        /* brought by an operator: fetched with the cluster's credentials, and from files */
    char *revision;      /* of the hub: the commit; else "" */
    char *by;            /* who brought it */
    int64_t at;          /* when, in seconds since the epoch */
    int64_t bytes;
    int rank;
} adapter_version;

typedef struct {
    adapter_version *version; /* [n] by number */
    size_t n, cap;
    size_t current; /* place of the one that is served; n > 0 */
} adapter_record;

enum { RECORD_VERSIONS = 5 }; /* are kept: the current one and the newest others */

/* Letters, digits and what else may stand in a file's name, no longer than 200 bytes: valid UTF-8 or not is the asker's
 * business. */
int adapter_name_check(const char *name, err *e);

/* A new version is the current one from now on; strings are copied. If the current one has the same id, it keeps its number,
 * and comes from the new source from now on. What is too old is forgotten. */
void adapter_record_add(adapter_record *r, const adapter_version *v);

/* An earlier version, or a later one again, is the current one; number 0: the one before the current one. */
int adapter_record_rollback(adapter_record *r, int number, err *e);

/* Bytes of all versions. */
int64_t adapter_record_bytes(const adapter_record *r);

/* Forget the oldest version but the current one. False: there is none. */
bool adapter_record_forget(adapter_record *r);

/* to_keep: to be read again, with secrets; else to be shown. Owned by the caller. */
json_t *adapter_record_to_json(const adapter_record *r, bool to_keep);
int adapter_record_from_json(adapter_record *r, const json_t *o, err *e);
void adapter_record_deinit(adapter_record *r);

#endif
