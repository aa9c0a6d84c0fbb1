/* source.h - where an adapter comes from, parsed from text
 *
 *   file:PATH, or an absolute PATH   a directory or an archive on this host
 *   http://... or https://...        an archive, or a folder with an adapter's config and weights under PEFT's names
 *   s3://BUCKET/KEY                  the same in any store that speaks S3
 *   hf://OWNER/NAME[@REVISION]       a repository of Hugging Face's hub
 *
 * PATH and KEY are taken as they are, without percent-encoding. Each may end with #sha256=HEX: the adapter's digest,
 * as `punica adapter check` shows it, must be this. */
#ifndef PUNICA_REGISTRY_SOURCE_H
#define PUNICA_REGISTRY_SOURCE_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/err.h"

typedef enum { SOURCE_FILE, SOURCE_HTTP, SOURCE_S3, SOURCE_HUB } source_kind;

typedef struct {
    source_kind kind;
    char *url;   /* without the digest; a path if it is a file */
    char *shown; /* without password and query, which may be secrets: for messages and lists */
    bool is_archive;
    char *bucket, *key;          /* of S3; key without slashes around it, perhaps "" */
    char *repository, *revision; /* of the hub */
    char want[DIGEST_HEX];       /* the digest it must have; "": any */
} source;

/* Parses a source. 0, then free with source_deinit(); or -1 with e set. */
int source_parse(source *s, const char *text, err *e);
void source_deinit(source *s);

#endif
