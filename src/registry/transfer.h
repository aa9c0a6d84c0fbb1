/* transfer.h - one file over HTTP, into a file: bounded in size and time, continued where it broke off
 *
 * What has come is in PATH.part, and PATH.etag says of which version of the resource; both outlive the process. Who
 * asks again gets the rest (Range, If-Range), or everything anew where the resource is another by now or has no strong
 * ETag. A try that breaks off is repeated as long as tries bring more; PATH is there when all of it is. Calls block:
 * never on a loop. */
#ifndef PUNICA_REGISTRY_TRANSFER_H
#define PUNICA_REGISTRY_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "registry/networks.h"

/* AWS Signature Version 4. session: NULL if there is none. */
typedef struct { const char *key, *secret, *session, *region; } transfer_signing;

/* All borrowed, during a call. */
typedef struct {
    const ip_network *allowed; /* [n_allowed] networks beside the public one */
    int n_allowed;
    double deadline;                 /* of clock_now(); all must be done by then */
    double stall_s;                  /* so long less than 1 KB/s, and a try is given up */
    const atomic_bool *stop;         /* NULL, or set by another thread: end soon */
    const char *bearer;              /* token for the URL's host, or NULL */
    const transfer_signing *signing; /* or NULL; then redirects are not followed */
} transfer_rules;

typedef enum { TRANSFER_DONE, TRANSFER_ABSENT, TRANSFER_FAILED } transfer_result;

/* Fetch url into path, shown: what messages call it. ABSENT, with e set as for FAILED: the server says that it has no
 * such thing, or not for us (403, 404, 410). A host that may not be asked, more than max_bytes, a server that lies or
 * stalls: FAILED. */
transfer_result transfer_file(const transfer_rules *r, const char *url, const char *shown, size_t max_bytes,
                              const char *path, err *e);

#endif
