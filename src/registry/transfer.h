/* transfer.h - one file over HTTP, into a file: bounded in size and time, continued where it broke off
 *
 * PATH.part has the bytes so far, and PATH.etag the version of the resource that they are of; both outlive the process.
 * The next call fetches only the rest (Range, If-Range), or everything if the resource has changed or has no strong
 * ETag. A try that breaks off is repeated as long as tries bring more. PATH appears when the file is complete. Calls
 * block: never call them on an event loop. */
#ifndef PUNICA_REGISTRY_TRANSFER_H
#define PUNICA_REGISTRY_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "registry/disk_cache.h"
#include "registry/networks.h"

/* AWS Signature Version 4. session: NULL if there is none. */
typedef struct { const char *key, *secret, *session, *region; } transfer_signing;

/* All pointers are borrowed during a call. */
typedef struct {
    const ip_network *allowed; /* [n_allowed] networks beside the public one */
    int n_allowed;
    double deadline;                 /* of clock_now(); all must be done by then */
    double stall_s;                  /* a try is given up after so long below 1 KB/s */
    const atomic_bool *stop;         /* or NULL; another thread sets it to end the call soon */
    const char *bearer;              /* token for the URL's host, or NULL */
    const transfer_signing *signing; /* or NULL; then redirects are not followed */
    const disk_cache *cache;         /* makes room when the disk is full; or NULL */
} transfer_rules;

typedef enum { TRANSFER_DONE, TRANSFER_ABSENT, TRANSFER_FAILED } transfer_result;

/* Fetches url into path; shown: what messages call it. ABSENT: the server has no such thing, or not for us (403, 404,
 * 410). FAILED: anything else, as an address that is not permitted, more than max_bytes, a server that lies or stalls.
 * Both set e. */
transfer_result transfer_file(const transfer_rules *r, const char *url, const char *shown, size_t max_bytes,
                              const char *path, err *e);

#endif
