/* call.c - see call.h: the way of a call from its body to the scheduler
 *
 *   call_start ─ read_body ─▶ on_prepared ─▶ on_version ─▶ call_submit()
 *                    ▲             │
 *                    └ on_fetched ◀┘ the adapter's files are not on this host: fetched, then prepared again
 *
 * Each arrow may be a wait for a thread beside the loop. Whatever refuses the call ends it with call_fail(). */
#include "frontend/call.h"

#include <stdio.h>

#include "base/mem.h"
#include "frontend/call_state.h"

#define MAX_PREPARED_AT_ONCE (16 << 10) /* bytes of a body: some 2 ms */
#define MAX_PARSED_FIRST (2 << 10)      /* bytes of one that is parsed even if its tenant is over a limit */

/* Finds out what the call names: the base model, an adapter, or nothing, which is an error. */
static int find_model(call *c, api_error *e)
{
    bool is_unnamed = c->p->asked.only_prompt && !*c->p->asked.model;
    c->kind = is_unnamed            ? CATALOG_BASE
              : c->p->is_registered ? CATALOG_ADAPTER
                                    : catalog_find(c->s->models, c->p->asked.model);
    return c->kind == CATALOG_NOTHING ? api_error_no_model(e, c->p->asked.model) : 0;
}

/* Sets the error of an adapter that cannot be served. Returns -1. */
static int refuse_adapter(const call *c, const err *why, api_error *e)
{
    return api_error_set(e, 400, "model", "invalid_adapter", "the adapter \"%s\" cannot be served: %s",
                         c->p->asked.model, why->msg);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    reply_add_header(ctx, name, value);
}

/* Refuses a call for which the tenant's limits have no room, all choices counted: 0, or -1 with e set. */
static int check_limits(call *c, api_error *e)
{
    double now = loop_now(c->s->on);
    int64_t prompts = 0;
    if (!c->who)
        return 0;
    for (int i = 0; i < c->p->n_prompts; i++)
        prompts += (int64_t)c->p->prompt[i].n;
    return tenant_check(c->who, now, c->p->n_prompts * c->p->asked.best_of, prompts, e);
}

static void tell_limits(call *c)
{
    if (c->who)
        tenant_headers(c->who, loop_now(c->s->on), add_header, c->to);
}

/* Submits the call to the scheduler: the request is checked and tokenized, and the adapter's version is known. */
static void on_version(void *ctx, prepared *p)
{
    call *c = ctx;
    api_error e;
    c->preparing = NULL;
    c->p = p;
    int refused = (p->is_bad ? refuse_adapter(c, &p->error.what, &e) : 0) || check_limits(c, &e) || call_submit(c, &e);
    tell_limits(c);
    if (refused) {
        call_fail(c, &e);
        return;
    }
    prepared_drop_prompts(p);
    c->head = (api_head){.chat = c->shape->chat,
                         .id = c->name,
                         .model = p->asked.model,
                         .created = (int64_t)loop_wall(c->s->on),
                         .include_usage = p->asked.include_usage,
                         .repeated = p->asked.repeated};
    call_keep_alive(c);
}

/* Refuses a call of a tenant that is over its limits before the body costs anything: 0, or -1 with e set. A short body
 * is parsed first and refused by check_limits(): its choices and its prompt say how long the client has to wait. */
static int check_tenant(call *c, size_t n, api_error *e)
{
    if (!c->who)
        return 0;
    if (tenant_check_calls(c->who, c->s->max_calls, e))
        return -1;
    return n > MAX_PARSED_FIRST || c->shape->prompt_only ? tenant_check(c->who, loop_now(c->s->on), 1, 0, e) : 0;
}

static void read_body(call *c, charged_buf *body);

/* Goes on with a call whose adapter has been fetched to this host; why: NULL, or why it could not be. */
static void on_fetched(void *ctx, const err *why)
{
    call *c = ctx;
    api_error e;
    c->fetching = NULL;
    if (why) {
        api_error_set(&e, 503, "model", "adapter_unavailable", "the adapter cannot be fetched to this host: %s",
                      why->msg);
        call_fail(c, &e);
        return;
    }
    charged_buf body = c->body;
    c->body = (charged_buf){0};
    read_body(c, &body);
}

/* Has the adapter's files fetched to this host. The body is kept and prepared again when they are here. */
static void wait_for_files(call *c, prepared *p)
{
    enum { TRIES = 3 }; /* a small cache may have evicted the adapter again before it was used */
    api_error e;
    c->p = NULL;
    c->body = p->body;
    p->body = (charged_buf){0};
    if (!c->s->fetches || ++c->n_fetches > TRIES) {
        api_error_set(&e, 503, "model", "adapter_unavailable",
                      c->s->fetches ? "the disk cache of this host is too small to keep the adapter"
                                    : "this frontend has no disk cache (--cache), which registered adapters need");
        prepared_free(p);
        call_fail(c, &e);
        return;
    }
    c->fetching = fetches_ask(c->s->fetches, &p->what, on_fetched, c);
    prepared_free(p);
}

/* Goes on with a call that is checked and tokenized: finds its model and the version of it. A version that is not known
 * yet is found out beside the loop (on_version()). */
static void on_prepared(void *ctx, prepared *p)
{
    call *c = ctx;
    api_error e;
    c->preparing = NULL;
    c->p = p;
    if (!p->failed && p->is_missing) {
        wait_for_files(c, p);
        return;
    }
    if (p->failed || find_model(c, &e)) {
        tell_limits(c);
        call_fail(c, p->failed ? &p->error : &e);
        return;
    }
    if (c->shape->prompt_only) {
        tell_limits(c);
        call_send_prompt_tokens(c);
        return;
    }
    check_state files = c->kind == CATALOG_ADAPTER && !p->is_registered
                            ? adapter_checks_know(c->s->tools.checks, p->asked.model, &p->error.what)
                            : CHECK_GOOD;
    p->is_bad = files == CHECK_BAD;
    if (p->is_registered)
        p->version = p->what.version;
    p->has_version = p->is_registered || (c->kind == CATALOG_ADAPTER && files == CHECK_GOOD &&
                                          versions_know(c->s->tools.adapters, p->asked.model, &p->version));
    if (c->kind == CATALOG_BASE || p->has_version || p->is_bad) {
        on_version(c, p);
        return;
    }
    c->p = NULL;
    c->preparing = preparer_find_version(c->s->preparer, p, on_version, c);
}

/* Checks whether this frontend serves calls now: 0, or -1 with e set. */
static int check_call(const service *s, api_error *e)
{
    if (s->draining)
        return api_error_set(e, 503, NULL, "shutting_down", "this server is shutting down");
    if (!dispatch_is_patient(s->at_scheduler))
        return api_error_set(e, 503, NULL, "no_scheduler", "the scheduler cannot be reached; try again later");
    return 0;
}

/* Has the body prepared: at once if that is soon done, else on a thread. Takes body. */
static void read_body(call *c, charged_buf *body)
{
    api_error e;
    size_t n = body->bytes.len;
    const char *text = n ? body->bytes.data : "";
    model_view *seen = c->who ? tenant_view(c->who) : NULL;
    prepared *p = NULL;
    if (check_call(c->s, &e)) {
        call_fail(c, &e);
    } else if (check_tenant(c, n, &e)) {
        tell_limits(c);
        call_fail(c, &e);
    } else if (n <= MAX_PREPARED_AT_ONCE &&
               (p = c->s->preparer ? prepare_at_once(&c->s->tools, seen, c->shape, text, n)
                                   : prepare(&c->s->tools, seen, c->shape, text, n, NULL))) {
        if (p->is_missing) {
            p->body = *body;
            *body = (charged_buf){0};
        }
        on_prepared(c, p);
    } else {
        c->preparing = preparer_start(c->s->preparer, seen, c->shape, body, on_prepared, c);
    }
    charged_buf_free(body);
}

void call_start(service *s, tenant *who, reply *to, charged_buf *body, const api_shape *shape, const char *route,
                const char *request_id)
{
    call *c = XNEW(call);
    *c = (call){.s = s,
                .who = tenant_keep(who),
                .to = to,
                .shape = shape,
                .route = route,
                .start = loop_now(s->on),
                .memory = shared_budget_part(s->memory, who ? tenant_name(who) : NULL)};
    snprintf(c->client, sizeof c->client, "%s", to->client && *to->client ? to->client : "-");
    snprintf(c->name, sizeof c->name, "%s%016llx", shape->id_prefix, (unsigned long long)loop_random_id(s->on));
    s->counts->live_calls++;
    to->gone = call_on_client_gone;
    to->ctx = c;
    reply_add_header(c->to, "x-request-id", request_id[0] ? request_id : c->name);
    read_body(c, body);
}
