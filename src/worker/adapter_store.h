/* adapter_store.h - where a worker finds its adapters
 *
 * Some are given one by one (NAME=DIR); others are the folders of one directory, or what has a name in the host's disk
 * cache. Each is opened when a request first wants it, so that what is put there is found without a restart, and one
 * that is bad fails nothing but its own requests. A request that says which content it began with finds that in the
 * cache whatever has become of the name. */
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
    digest_memo *digests;     /* borrowed: of what was read before */
} adapter_store;

/* For the engine; the store must not change while the engine lives. */
adapter_source adapter_store_source(adapter_store *s);

#endif
