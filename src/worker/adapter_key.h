/* adapter_key.h - the engine's key of an adapter: its name, and perhaps a version
 *
 * "sql" is the adapter of this name, whatever its content is; "sql@DIGEST", in hexadecimal, only with this content. The
 * engine tells adapters apart by their keys, so weights loaded for one version are never used for another. */
#ifndef PUNICA_WORKER_ADAPTER_KEY_H
#define PUNICA_WORKER_ADAPTER_KEY_H

#include "base/buf.h"
#include "base/digest.h"

/* Sets key to a name and a digest's bytes. n_digest is DIGEST_BYTES, or 0: no digest. */
void adapter_key_make(buf *key, const char *name, const unsigned char *bytes, size_t n_digest);

/* Returns the length of the name in key. *hex: the digest, borrowed from key, or NULL. */
size_t adapter_key_split(const char *key, const char **hex);

#endif
