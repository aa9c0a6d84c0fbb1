/* adapter_api.h - adapters by HTTP, while all goes on: what `punica adapter` does
 *
 *   POST         /v1/load_lora_adapter    {"lora_name": ..., "lora_path": SOURCE, "load_inplace": false}, as in vLLM
 *   POST         /v1/unload_lora_adapter  {"lora_name": ...}
 *   GET          /v1/adapters             all names, and what they are
 *   GET, DELETE  /v1/adapters/NAME
 *   PUT          /v1/adapters/NAME        {"source": ...}: the next version; {"version": N}: back to an earlier one
 *
 * On the registry of the store, where there is one, else on that of the host's disk cache. A tenant has names of its
 * own and knows of no others; operators call these TENANT/NAME. Whoever calls has looked at the key already. Fetching
 * takes its time on threads of its own, what the store is asked goes by accounts.h. */
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
typedef struct adapter_wish adapter_wish;

/* models: no name of theirs is taken, but those of the registry. NULL with e set. */
adapter_api *adapter_api_new(struct event_base *loop, const adapter_api_options *o, const catalog *models, err *e);
void adapter_api_free(adapter_api *a); /* all wishes are told or forgotten; a may be NULL */

/* Who asks. */
typedef struct {
    const char *tenant;  /* NULL: an operator, or anybody where there are no tenants */
    const char *address; /* for the record */
} adapter_asker;

/* All is borrowed during the call. tell is called once, from the loop and not from within. */
adapter_wish *adapter_api_ask(adapter_api *a, const http_head *head, const buf *body, const adapter_asker *who,
                              void (*tell)(void *ctx, int status, const buf *json), void *ctx);

/* tell will not be called; a fetch ends, and the next one for the same source continues it. */
void adapter_api_forget(adapter_api *a, adapter_wish *w);

#endif
