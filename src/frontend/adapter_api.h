/* adapter_api.h - what `punica adapter` does, over HTTP and while requests are served
 *
 *   POST         /v1/load_lora_adapter    {"lora_name": ..., "lora_path": SOURCE, "load_inplace": false}, as in vLLM
 *   POST         /v1/unload_lora_adapter  {"lora_name": ...}
 *   GET          /v1/adapters             all names, and what they are
 *   GET, DELETE  /v1/adapters/NAME
 *   PUT          /v1/adapters/NAME        {"source": ...}: the next version; {"version": N}: back to an earlier one
 *
 * Uses the store's registry where there is one, else that of the host's disk cache. A tenant has names of its own and
 * sees no others; operators call these TENANT/NAME. The caller has checked the key already. Fetching runs on threads of
 * this module; the store is asked through accounts.h. */
#ifndef PUNICA_FRONTEND_ADAPTER_API_H
#define PUNICA_FRONTEND_ADAPTER_API_H

#include <event2/event.h>

#include "base/buf.h"
#include "frontend/catalog.h"
#include "frontend/tiers.h"
#include "net/http_parser.h"
#include "registry/fetch.h"

#define ADAPTERS_PATH "/v1/adapters/"
#define LOAD_PATH "/v1/load_lora_adapter"
#define UNLOAD_PATH "/v1/unload_lora_adapter"

typedef struct accounts accounts; /* accounts.h */

/* All borrowed: until adapter_api_free(). */
typedef struct {
    disk_cache *cache;
    const char *dir; /* of the cache */
    const fetch_options *fetch;
    const model_config *base;
    accounts *accounts; /* NULL: the registry is the disk's */
    tiers *tiers;       /* where adapters are at present */
} adapter_api_options;

typedef struct adapter_api adapter_api;
typedef struct adapter_op adapter_op;

/* Opens the registry. models: a name that they have from elsewhere cannot be added. NULL with e set when the disk's
 * registry cannot be opened. */
adapter_api *adapter_api_new(struct event_base *loop, const adapter_api_options *o, const catalog *models, err *e);
void adapter_api_free(adapter_api *a); /* every operation must be answered or forgotten; a may be NULL */

/* Who asks. */
typedef struct {
    const char *tenant;  /* NULL: an operator, or anybody where there are no tenants */
    const char *address; /* recorded with what is changed */
} adapter_asker;

/* Starts what a request asks for. Arguments are borrowed during the call. done is called once, later from the loop;
 * then the operation is freed. */
adapter_op *adapter_api_ask(adapter_api *a, const http_head *head, const buf *body, const adapter_asker *who,
                            void (*done)(void *ctx, int status, const buf *json), void *ctx);

/* Drops an operation: done will not be called. A fetch under way stops, and the next one for the same source
 * continues it. */
void adapter_api_forget(adapter_api *a, adapter_op *op);

#endif
