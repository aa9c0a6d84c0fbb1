/* admin.h - the admin API: what `punica tenant` does, over HTTP, for operators; and a tenant's own usage
 *
 *   GET, POST           /admin/v1/tenants                       all; a new one {"name": ..., "tokens_per_minute": ...}
 *   GET, PATCH, DELETE  /admin/v1/tenants/TENANT
 *   POST                /admin/v1/tenants/TENANT/keys           {"name": ..., "expires": TIME}; the answer has the key
 *   PATCH, DELETE       /admin/v1/tenants/TENANT/keys/KEY       {"expires": TIME}; null: never
 *   PUT, DELETE         /admin/v1/tenants/TENANT/adapters/NAME
 *   GET                 /admin/v1/usage?tenant=&from=&to=
 *   GET                 /admin/v1/audit?tenant=&last=
 *   GET                 /v1/usage?from=&to=                     of the tenant that asks
 *
 * Times are seconds since the epoch. Usage is that of every hour that overlaps the time asked for.
 *
 * The caller has checked the key already. The store is asked on its thread (accounts.h). */
#ifndef PUNICA_FRONTEND_ADMIN_H
#define PUNICA_FRONTEND_ADMIN_H

#include "frontend/accounts.h"
#include "net/http_parser.h"

#define ADMIN_PATH "/admin/v1/"

typedef struct admin_call admin_call;

typedef struct {
    const http_head *head;
    const buf *body;
    const char *client;   /* its address, for the audit log */
    const char *usage_of; /* the tenant, where one asks for its own usage, whatever the path; NULL: an operator */
} admin_request;          /* all borrowed, during admin_ask() */

/* Starts what a request asks for. done is called once, later from the loop; then the call is freed. */
admin_call *admin_ask(accounts *a, const admin_request *r, void (*done)(void *ctx, int status, const buf *json),
                      void *ctx);

/* Writes the methods that the call's path takes, and NULL: what the Allow header of a 405 names. Literals. */
enum { ADMIN_METHODS = 5 };
void admin_call_methods(const admin_call *c, const char *method[ADMIN_METHODS + 1]);
void admin_forget(admin_call *c); /* done will not be called; what was asked for is done all the same */

#endif
