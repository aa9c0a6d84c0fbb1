/* adapter_record.h - a name's versions, and which of them is served
 *
 * A plain value: no disk, no locks. registry.h stores records. */
#ifndef PUNICA_REGISTRY_ADAPTER_RECORD_H
#define PUNICA_REGISTRY_ADAPTER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "registry/adapter_files.h"

typedef struct {
    int number;          /* 1, 2, ... for each name, never used twice */
    char id[ADAPTER_ID]; /* its folder in a disk cache; begins with its digest */
    char *source;        /* without secrets */
    char *url;           /* the source with its secrets, from which other hosts fetch it; "": none */
    bool trusted;        /* registered by an operator: fetched with the cluster's credentials, and from files */
    char *revision;      /* of the hub: the commit; else "" */
    char *by;            /* who registered it */
    int64_t at;          /* when, in seconds since the epoch */
    int64_t bytes;
    int rank;
} adapter_version;

typedef struct {
    adapter_version *version; /* [n] by number */
    size_t n, cap;
    size_t current; /* index of the one that is served; n > 0 */
} adapter_record;

enum { RECORD_VERSIONS = 5 }; /* that a record keeps: the current one and the newest others */

enum { ADAPTER_MAX_NAME = 200 }; /* bytes */

/* Checks a name: at most ADAPTER_MAX_NAME bytes, no leading dot, no slashes or control characters. UTF-8 is for the
 * caller to check. 0, or -1 with e set. */
int adapter_name_check(const char *name, err *e);

/* Adds a version, which becomes the current one; strings are copied, the number is set here. If the current one has the
 * same id, it keeps its number and has the new source from now on. Beyond RECORD_VERSIONS, the oldest is forgotten. */
void adapter_record_add(adapter_record *r, const adapter_version *v);

/* Makes another version the current one; number 0: the one before it. -1 with e set: there is none. */
int adapter_record_rollback(adapter_record *r, int number, err *e);

/* Returns the bytes of all versions. */
int64_t adapter_record_bytes(const adapter_record *r);

/* Forgets the oldest version that is not the current one. False: there is none. */
bool adapter_record_forget(adapter_record *r);

/* Convert a record. to_keep: to be read again, with secrets; else to be shown. The caller owns the results. */
json_t *adapter_record_to_json(const adapter_record *r, bool to_keep);
int adapter_record_from_json(adapter_record *r, const json_t *o, err *e);
void adapter_record_deinit(adapter_record *r);

#endif
