/* adapter_key.h - what the engine calls an adapter: its name, and which content it is to have
 *
 * "sql" is whatever the adapter is, "sql@" and a digest in hexadecimal is this content and no other. The engine keeps
 * adapters apart by their keys, so that what was loaded for one content is never used for another. */
#ifndef PUNICA_WORKER_ADAPTER_KEY_H
#define PUNICA_WORKER_ADAPTER_KEY_H

#include "base/buf.h"
#include "base/digest.h"

/* Set key. n_digest is DIGEST_BYTES, or 0: no digest. */
void adapter_key_make(buf *key, const char *name, const unsigned char *bytes, size_t n_digest);

/* The length of its name. *hex: its digest, or NULL. */
size_t adapter_key_split(const char *key, const char **hex);

#endif
