/* places.h - which URLs a source's files have */
#ifndef PUNICA_REGISTRY_PLACES_H
#define PUNICA_REGISTRY_PLACES_H

#include "registry/adapter_files.h"
#include "registry/source.h"

/* url[i]: of the file i, NULL: the source has none. Owned. */
typedef struct {
    char *archive; /* or NULL, then: */
    char *url[N_ADAPTER_FILES];
} places;

/* Of http(s): the source is a folder, or an archive. A query stays behind the path. */
int places_of_http(places *p, const source *s, err *e);

/* endpoint NULL: AWS, where the bucket is in the host's name; everywhere else it is in the path. */
int places_of_s3(places *p, const source *s, const char *endpoint, const char *region, err *e);

/* The hub's two calls: which files a revision has, and where they are. */
char *places_hub_listing(const char *endpoint, const source *s); /* URL, owned by the caller */
int places_of_hub(places *p, const source *s, const char *endpoint, const char *listing, size_t n, char revision[64],
                  err *e);

void places_deinit(places *p);

#endif
