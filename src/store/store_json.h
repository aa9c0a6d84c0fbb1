/* store_json.h - the contents of a store as JSON, for the command line and the admin API */
#ifndef PUNICA_STORE_STORE_JSON_H
#define PUNICA_STORE_STORE_JSON_H

#include <jansson.h>

#include "store/store.h"

/* Make JSON, owned by the caller. */
json_t *store_key_json(const store_key *k);                                 /* without its digest */
json_t *store_tenant_json(const store_directory *d, const store_tenant *t); /* with its grants and keys */
json_t *store_usage_json(const store_usage *u);
json_t *store_audit_json(const store_audit *a);

/* Returns the tenant of that name, borrowed from d, or NULL. */
const store_tenant *store_find_tenant(const store_directory *d, const char *name);

#endif
