/* store_json.c - see store_json.h */
#include "store/store_json.h"

#include <string.h>

const store_tenant *store_find_tenant(const store_directory *d, const char *name)
{
    for (size_t i = 0; i < d->n_tenants; i++)
        if (strcmp(d->tenant[i].name, name) == 0)
            return &d->tenant[i];
    return NULL;
}

static json_t *key_json(const store_key *k)
{
    return json_pack("{s:s, s:I, s:o}", "name", k->name, "created", (json_int_t)k->created, "expires",
                     k->expires ? json_integer(k->expires) : json_null());
}

json_t *store_tenant_json(const store_directory *d, const store_tenant *t)
{
    json_t *keys = json_array(), *grants = json_array();
    for (size_t i = 0; i < d->n_keys; i++)
        if (strcmp(d->key[i].tenant, t->name) == 0)
            json_array_append_new(keys, key_json(&d->key[i]));
    for (size_t i = 0; i < d->n_grants; i++)
        if (strcmp(d->grant[i].tenant, t->name) == 0)
            json_array_append_new(grants, json_string(d->grant[i].adapter));
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name", t->name, "base", t->base,
                     "weight", (json_int_t)t->weight, "in_flight", (json_int_t)t->in_flight, "waiting",
                     (json_int_t)t->waiting, "requests_per_minute", (json_int_t)t->requests_per_minute,
                     "tokens_per_minute", (json_int_t)t->tokens_per_minute, "max_adapters", (json_int_t)t->max_adapters,
                     "max_adapter_bytes", (json_int_t)t->max_adapter_bytes, "created", (json_int_t)t->created,
                     "adapters", grants, "keys", keys);
}

json_t *store_usage_json(const store_usage *u)
{
    return json_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I}", "tenant", u->tenant, "adapter", u->adapter, "digest",
                     u->digest[0] ? u->digest : NULL, "hour", (json_int_t)(u->hour * 3600), "requests",
                     (json_int_t)u->requests, "prompt_tokens", (json_int_t)u->prompt, "cached_tokens",
                     (json_int_t)u->cached, "completion_tokens", (json_int_t)u->output);
}

json_t *store_audit_json(const store_audit *a)
{
    return json_pack("{s:I, s:I, s:s, s:s, s:s, s:s}", "number", (json_int_t)a->number, "at", (json_int_t)a->at, "who",
                     a->who, "action", a->action, "tenant", a->tenant, "detail", a->detail);
}
