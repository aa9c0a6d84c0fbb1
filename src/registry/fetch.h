/* fetch.h - an adapter from its source into the disk cache, checked
 *
 * Nothing is in the cache that was not fetched whole, has the digest that was asked for, and fits the base. What breaks
 * off is continued by whoever asks for the same source next. Calls block, for as long as the limits say: never on a
 * loop. */
#ifndef PUNICA_REGISTRY_FETCH_H
#define PUNICA_REGISTRY_FETCH_H

#include <stdatomic.h>

#include "model/config.h"
#include "registry/adapter_files.h"
#include "registry/disk_cache.h"
#include "registry/networks.h"
#include "registry/source.h"

/* What may be fetched, from where, as whom. Strings: borrowed. */
typedef struct {
    const ip_network *allowed; /* [n_allowed] networks beside the public one */
    int n_allowed;
    const char *files_under;       /* file: sources must lie in this folder, links followed; NULL: there are none */
    size_t max_bytes;              /* of one adapter, packed or not */
    double seconds, stall_seconds; /* for all of it, and without progress */
    const char *s3_endpoint;       /* NULL: AWS */
    const char *s3_region, *s3_key, *s3_secret, *s3_session; /* region NULL: AWS's first; key NULL: unsigned */
    const char *hub_endpoint, *hub_token;                    /* token: or NULL */
    const atomic_bool *stop;                                 /* or NULL: set by another thread, the fetch ends soon */
} fetch_options;

/* 4 GiB, an hour, 30 s; and what the environment says: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION,
 * AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, HF_ENDPOINT, HF_TOKEN. No file:
 * sources. */
fetch_options fetch_options_default(void);

/* The same for a stranger's source: without the host's credentials, which would open to it what is the operator's, and
 * without files. */
fetch_options fetch_options_of_strangers(const fetch_options *o);

typedef struct {
    char id[ADAPTER_ID], digest[DIGEST_HEX];
    char revision[64]; /* of the hub: the commit; else "" */
    size_t bytes;      /* of its files */
    int rank;          /* its largest */
} fetched;

/* The adapter is in the cache, and pinned. */
int fetch_adapter(disk_cache *c, const source *s, const fetch_options *o, const model_config *base, fetched *out,
                  disk_pin *pin, err *e);

/* The same of what a registry knows: the adapter of this id, from the source that it came from. Whether it is there
 * already is not looked at. trusted: an operator brought it. */
int fetch_registered(disk_cache *c, const char *source_text, const char *id, bool trusted, const fetch_options *o,
                     const model_config *base, disk_pin *pin, err *e);

#endif
