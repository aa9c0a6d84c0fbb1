/* cors.c - see cors.h */
#include "frontend/cors.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

void cors_init(cors *c, const char *const *origin, int n)
{
    *c = (cors){XNEW_ARRAY(char *, (size_t)n + 1), n};
    for (int i = 0; i < n; i++)
        c->origin[i] = xstrdup(origin[i]);
}

void cors_deinit(cors *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->origin[i]);
    free(c->origin);
}

static bool is_known(const cors *c, const char *origin)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->origin[i], "*") == 0 || strcasecmp(c->origin[i], origin) == 0)
            return true;
    return false;
}

/* Allows every header that the page asks for: clients send headers of their own, and none of them opens anything. */
static void add_preflight(const http_head *h, http_exchange *x, const char *methods)
{
    const char *headers = http_field_of(h, "Access-Control-Request-Headers");
    if (!http_field_of(h, "Access-Control-Request-Method"))
        return;
    http_exchange_add_header(x, "Access-Control-Allow-Methods", methods);
    http_exchange_add_header(x, "Access-Control-Allow-Headers",
                             headers ? headers : "Authorization, Content-Type, x-api-key");
    http_exchange_add_header(x, "Access-Control-Max-Age", "600");
}

void cors_add(const cors *c, http_exchange *x, const char *methods)
{
    const http_head *h = http_exchange_head(x);
    const char *origin = c->n && h->text ? http_field_of(h, "Origin") : NULL;
    if (c->n)
        http_exchange_add_header(x, "Vary", "Origin");
    if (!origin || !is_known(c, origin))
        return;
    http_exchange_add_header(x, "Access-Control-Allow-Origin", origin);
    /* "*" is every header, since nothing here allows credentials (cookies), with which it would be a name. */
    http_exchange_add_header(x, "Access-Control-Expose-Headers", "*");
    if (strcmp(h->method, "OPTIONS") == 0)
        add_preflight(h, x, methods);
}
