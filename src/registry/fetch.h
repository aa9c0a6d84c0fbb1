/* fetch.h - fetches an adapter from its source into the disk cache, checked
 *
 * An adapter enters the cache only if it was fetched whole, has the digest that was asked for, and fits the base. A
 * fetch that breaks off is continued by the next fetch of the same source. Calls block for as long as the limits allow:
 * never call them on an event loop. */
#ifndef PUNICA_REGISTRY_FETCH_H
#define PUNICA_REGISTRY_FETCH_H

#include <stdatomic.h>

#include "model/config.h"
#include "registry/adapter_files.h"
#include "registry/disk_cache.h"
#include "registry/networks.h"
#include "registry/source.h"

/* What may be fetched, from where, with whose credentials. Strings are borrowed. */
typedef struct {
    const ip_network *allowed; /* [n_allowed] networks beside the public one */
    int n_allowed;
    const char *files_under;       /* file: sources must lie in this folder, links followed; NULL: refused */
    size_t max_bytes;              /* of one adapter, packed or not */
    double seconds, stall_seconds; /* for all of it; without progress */
    const char *s3_endpoint;       /* NULL: AWS */
    const char *s3_region, *s3_key, *s3_secret, *s3_session; /* region NULL: AWS's first; key NULL: unsigned */
    const char *hub_endpoint, *hub_token;                    /* token: or NULL */
    const atomic_bool *stop;                                 /* or NULL; another thread sets it to end the fetch soon */
} fetch_options;

/* Returns 4 GiB, an hour, 30 s, and what the environment says: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION,
 * AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, HF_ENDPOINT, HF_TOKEN. No
 * file: sources. */
fetch_options fetch_options_default(void);

/* Returns the options for a source that is not the operator's: without the host's credentials, which would give access
 * to what is the operator's, and without file: sources. */
fetch_options fetch_options_of_strangers(const fetch_options *o);

typedef struct {
    char id[ADAPTER_ID], digest[DIGEST_HEX];
    char revision[64]; /* of the hub: the commit; else "" */
    size_t bytes;      /* of its files */
    int rank;          /* the largest of its ranks */
} fetched;

/* Fetches an adapter into the cache and pins it; the caller unpins. 0, or -1 with e set and nothing pinned. */
int fetch_adapter(disk_cache *c, const source *s, const fetch_options *o, const model_config *base, fetched *out,
                  disk_pin *pin, err *e);

/* Fetches an adapter that a registry knows, by its id, from the source that it came from; anything else from there is
 * refused. Does not look whether it is in the cache already. trusted: an operator registered it. */
int fetch_registered(disk_cache *c, const char *source_text, const char *id, bool trusted, const fetch_options *o,
                     const model_config *base, disk_pin *pin, err *e);

#endif
