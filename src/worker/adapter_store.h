/* adapter_store.h - where a worker finds its adapters
 *
 * Some are given one by one (NAME=DIR); others are the folders of one directory, or those with a name in the host's
 * disk cache. Each is opened when a request first needs it, so new ones are found without a restart, and a bad one
 * fails only its own requests. A request with a digest finds that version in the cache, whatever the name stands for by
 * then. */
#ifndef PUNICA_WORKER_ADAPTER_STORE_H
#define PUNICA_WORKER_ADAPTER_STORE_H

#include "base/digest_memo.h"
#include "engine/adapter_slots.h"
#include "model/config.h"

typedef struct {
    const char *dir;          /* borrowed; NULL: none */
    const char *cache;        /* borrowed: the disk cache's folder; NULL: none */
    const char *const *named; /* [n_named] borrowed: "NAME=DIR" */
    int n_named;
    const model_config *base; /* borrowed */
    const backend *be;        /* borrowed */
    digest_memo *digests;     /* borrowed */
} adapter_store;

/* Makes the engine's source of adapters, which borrows s: it must not change while the engine lives. */
adapter_source adapter_store_source(adapter_store *s);

#endif
