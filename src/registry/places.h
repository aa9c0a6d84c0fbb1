/* places.h - the URLs of a source's files */
#ifndef PUNICA_REGISTRY_PLACES_H
#define PUNICA_REGISTRY_PLACES_H

#include "registry/adapter_files.h"
#include "registry/source.h"

/* Owned strings. url[i]: of file i; NULL: the source has none. */
typedef struct {
    char *archive; /* or NULL: then there is a URL for each file */
    char *url[N_ADAPTER_FILES];
} places;

/* Finds the places of an http(s) source, a folder or an archive. A query stays behind the path. These three return 0,
 * or -1 with e set; free with places_deinit() in both cases. */
int places_of_http(places *p, const source *s, err *e);

/* Finds the places of an S3 source. endpoint NULL: AWS, where the bucket is in the host's name; else it is in the path.
 */
int places_of_s3(places *p, const source *s, const char *endpoint, const char *region, err *e);

/* The hub's two steps: the first returns the URL that lists a revision's files; the second reads the listing, and sets
 * revision to the commit. */
char *places_hub_listing(const char *endpoint, const source *s); /* URL, owned by the caller */
int places_of_hub(places *p, const source *s, const char *endpoint, const char *listing, size_t n, char revision[64],
                  err *e);

void places_deinit(places *p);

#endif
