/* tenants.c - see tenants.h */
#include "frontend/tenants.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/prometheus.h"
#include "frontend/rate.h"

struct tenant {
    tenants *in; /* borrowed */
    char *name;
    store_tenant now; /* without its name */
    model_view *view;
    bool gone;              /* not in the store any more: freed by its last keeper */
    int n_keepers;          /* its calls */
    int in_flight, waiting; /* here */
    int64_t in_flight_elsewhere, waiting_elsewhere;
    rate requests, tokens;
    int64_t spent_requests, spent_tokens;     /* not reported yet */
    int64_t all_requests, all_tokens;         /* what it said of all frontends; all_requests -1: nothing yet */
    int reported_in_flight, reported_waiting; /* reported_in_flight -1: not known */
    uint64_t n_requests, n_prompt, n_output, n_refused; /* for the metrics */
};

typedef struct {
    digest is;
    tenant *of;
    int64_t expires;
} key;

struct tenants {
    char *base;
    tenant **tenant; /* [n] sorted by name, none of them gone */
    size_t n;
    key *key;                 /* [n_keys] */
    map *by_mark;             /* indices into key, by mark_of() of its digest */
    unsigned char secret[32]; /* of this process */
    int n_calls, n_callers;   /* of all; tenants with any */
    uint64_t n_requests_gone, n_prompt_gone, n_output_gone, n_refused_gone; /* of those that are gone */
};

tenants *tenants_new(const char *base)
{
    tenants *all = XNEW(tenants);
    *all = (tenants){.base = xstrdup(base), .by_mark = map_new(16)};
    CHECK(RAND_bytes(all->secret, sizeof all->secret) == 1);
    return all;
}

static void tenant_free(tenant *t)
{
    model_view_release(t->view);
    free(t->name);
    free(t);
}

void tenants_free(tenants *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n; i++)
        tenant_free(all->tenant[i]);
    free(all->tenant);
    free(all->key);
    map_free(all->by_mark);
    free(all->base);
    free(all);
}

int tenants_count(const tenants *all)
{
    return (int)all->n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(tenant *const *)a)->name, (*(tenant *const *)b)->name);
}

static tenant *find_name(const tenants *all, const char *name)
{
    tenant wanted = {.name = (char *)name}, *p = &wanted;
    tenant **found = all->n ? bsearch(&p, all->tenant, all->n, sizeof *all->tenant, by_name) : NULL;
    return found ? *found : NULL;
}

/* Returns where each tenant's grants begin in a directory; they lie side by side. Owned by the caller. */
static map *first_grants(const store_directory *d)
{
    map *first = map_new(64);
    for (size_t i = 0; i < d->n_grants; i++)
        if (i == 0 || strcmp(d->grant[i].tenant, d->grant[i - 1].tenant) != 0)
            map_put(first, d->grant[i].tenant, strlen(d->grant[i].tenant), (int64_t)i);
    return first;
}

static void update(tenants *all, tenant *t, const store_directory *d, const store_tenant *s, const map *first_grant)
{
    int64_t first = 0;
    size_t n = 0;
    if (map_get(first_grant, s->name, strlen(s->name), &first))
        while ((size_t)first + n < d->n_grants && strcmp(d->grant[(size_t)first + n].tenant, s->name) == 0)
            n++;
    t->now = *s;
    t->now.name = NULL;
    if (t->view && model_view_is(t->view, s->base, d->grant + first, n))
        return;
    model_view_release(t->view);
    t->view = model_view_new(t->name, all->base, s->base, d->grant + first, n);
}

/* Makes a tenant. One that is not of the first directory may have been here before, with requests that the store still
 * counts: with reported_in_flight -1 it is reported that there are none. */
static tenant *new_tenant(tenants *all, const char *name)
{
    tenant *t = XNEW(tenant);
    *t = (tenant){.in = all, .name = xstrdup(name), .all_requests = -1, .reported_in_flight = all->tenant ? -1 : 0};
    return t;
}

static void lose(tenants *all, tenant *t)
{
    all->n_requests_gone += t->n_requests;
    all->n_prompt_gone += t->n_prompt;
    all->n_output_gone += t->n_output;
    all->n_refused_gone += t->n_refused;
    if (t->n_keepers == 0)
        tenant_free(t);
}

/* Returns what a key is looked up by: a keyed hash of its digest. Nobody outside can compute it, so the time of a
 * lookup reveals nothing of the digests that are there. */
static digest mark_of(const tenants *all, const digest *d)
{
    digest mark;
    digest_of_parts(&mark, (digest_part[]){{all->secret, sizeof all->secret}, {d->byte, sizeof d->byte}}, 2);
    return mark;
}

static void set_keys(tenants *all, const store_directory *d)
{
    free(all->key);
    map_free(all->by_mark);
    all->key = XNEW_ARRAY(key, d->n_keys + 1);
    all->by_mark = map_new(d->n_keys + 16);
    for (size_t i = 0; i < d->n_keys; i++) {
        all->key[i] = (key){.is = d->key[i].of, .of = find_name(all, d->key[i].tenant), .expires = d->key[i].expires};
        digest mark = mark_of(all, &d->key[i].of);
        if (all->key[i].of)
            map_put(all->by_mark, &mark, sizeof mark, (int64_t)i);
    }
}

void tenants_apply(tenants *all, const store_directory *d)
{
    tenant **now = XNEW_ARRAY(tenant *, d->n_tenants + 1);
    map *grants = first_grants(d);
    for (size_t i = 0; i < all->n; i++)
        all->tenant[i]->gone = true;
    for (size_t i = 0; i < d->n_tenants; i++) {
        tenant *t = find_name(all, d->tenant[i].name);
        now[i] = t ? t : new_tenant(all, d->tenant[i].name);
        now[i]->gone = false;
        update(all, now[i], d, &d->tenant[i], grants);
    }
    for (size_t i = 0; i < all->n; i++)
        if (all->tenant[i]->gone)
            lose(all, all->tenant[i]);
    map_free(grants);
    free(all->tenant);
    all->tenant = now;
    all->n = d->n_tenants;
    if (all->n)
        qsort(all->tenant, all->n, sizeof *all->tenant, by_name);
    set_keys(all, d);
}

tenant *tenants_find(tenants *all, const char *shown, double wall)
{
    digest d;
    int64_t i;
    digest_of_parts(&d, &(digest_part){shown, strlen(shown)}, 1);
    digest mark = mark_of(all, &d);
    if (!map_get(all->by_mark, &mark, sizeof mark, &i))
        return NULL;
    const key *k = &all->key[i];
    bool right = CRYPTO_memcmp(&k->is, &d, sizeof d) == 0, expired = k->expires && wall >= (double)k->expires;
    return right && !expired ? k->of : NULL;
}

tenant *tenant_keep(tenant *t)
{
    if (!t)
        return NULL;
    t->in->n_calls++;
    t->in->n_callers += t->n_keepers++ == 0;
    return t;
}

void tenant_release(tenant *t)
{
    if (!t)
        return;
    t->in->n_calls--;
    t->in->n_callers -= --t->n_keepers == 0;
    if (t->n_keepers == 0 && t->gone)
        tenant_free(t);
}

const char *tenant_name(const tenant *t)
{
    return t->name;
}

int64_t tenant_weight(const tenant *t)
{
    return t->now.weight;
}

model_view *tenant_view(const tenant *t)
{
    return t->view;
}

/* Limits. */

/* Writes a time as OpenAI does: "1s", "6m0s", "12ms"; rounded up. */
static void write_time(char *text, size_t n, double seconds)
{
    if (seconds <= 0.999)
        snprintf(text, n, "%.0fms", ceil(seconds * 1000 - 1e-6));
    else if (seconds <= 59.9)
        snprintf(text, n, "%.3gs", ceil(seconds * 10 - 1e-6) / 10);
    else
        snprintf(text, n, "%.0fm%.0fs", floor(ceil(seconds - 1e-6) / 60), fmod(ceil(seconds - 1e-6), 60));
}

static int too_many(tenant *t, api_error *e, double wait, const char *what, int64_t limit)
{
    char when[32];
    t->n_refused++;
    write_time(when, sizeof when, wait);
    api_error_set(e, 429, NULL, "rate_limit_exceeded", "Rate limit reached: %" PRId64 " %s. Please try again in %s",
                  limit, what, when);
    e->retry_after = ceil(wait < 1 ? 1 : wait);
    return -1;
}

int tenant_check_calls(tenant *t, int most, api_error *e)
{
    int64_t calls = t->in->n_calls, callers = t->in->n_callers;
    if (most <= 0 || 4 * calls <= 3 * (int64_t)most || t->n_keepers * (callers + 1) <= most)
        return 0;
    t->n_refused++;
    api_error_set(
        e, 429, NULL, "too_many_calls",
        "%d calls of yours are being answered, which is more than your part while there are so many; try again later",
        t->n_keepers - 1);
    e->retry_after = 1;
    return -1;
}

static int check_requests(tenant *t, double now, int n, api_error *e)
{
    int64_t limit = t->now.requests_per_minute;
    double wait = limit ? rate_wait(&t->requests, (double)limit, now, n) : 0;
    return wait > 0 ? too_many(t, e, wait, "requests per minute", limit) : 0;
}

int tenant_check(tenant *t, double now, int n, int64_t prompt, api_error *e)
{
    const store_tenant *l = &t->now;
    int64_t at_once = l->in_flight && (!l->waiting || l->in_flight < l->waiting) ? l->in_flight : l->waiting;
    if (at_once && n > at_once)
        return api_error_set(e, 400, "n", "too_many_choices",
                             "this call makes %d requests; %" PRId64 " at once are allowed", n, at_once);
    if (l->in_flight && t->in_flight + t->in_flight_elsewhere + n > l->in_flight)
        return too_many(t, e, 1, "requests at once", l->in_flight);
    if (l->waiting && t->waiting + t->waiting_elsewhere + n > l->waiting)
        return too_many(t, e, 1, "waiting requests", l->waiting);
    if (check_requests(t, now, n, e))
        return -1;
    double wait = l->tokens_per_minute
                      ? rate_wait(&t->tokens, (double)l->tokens_per_minute, now, prompt > 1 ? (double)prompt : 1)
                      : 0;
    return wait > 0 ? too_many(t, e, wait, "tokens per minute", l->tokens_per_minute) : 0;
}

static void spend(tenant *t, double now, int64_t requests, int64_t tokens)
{
    if (t->now.requests_per_minute)
        rate_use(&t->requests, (double)t->now.requests_per_minute, now, (double)requests);
    if (t->now.tokens_per_minute)
        rate_use(&t->tokens, (double)t->now.tokens_per_minute, now, (double)tokens);
}

int tenant_count_call(tenant *t, double now, api_error *e)
{
    if (check_requests(t, now, 1, e))
        return -1;
    t->n_requests++;
    t->spent_requests++;
    spend(t, now, 1, 0);
    return 0;
}

void tenant_begin(tenant *t, double now, int n, int64_t prompt)
{
    t->in_flight += n;
    t->waiting += n;
    t->n_requests += (uint64_t)n;
    t->spent_requests += n;
    t->spent_tokens += prompt;
    spend(t, now, n, prompt);
}

void tenant_use(tenant *t, double now, int64_t prompt, int64_t output)
{
    t->n_prompt += (uint64_t)prompt;
    t->n_output += (uint64_t)output;
    t->spent_tokens += output;
    spend(t, now, 0, output);
}

void tenant_first_token(tenant *t)
{
    t->waiting--;
}

void tenant_end(tenant *t, bool waited)
{
    t->in_flight--;
    t->waiting -= waited;
}

typedef struct {
    void (*add)(void *ctx, const char *name, const char *value);
    void *ctx;
} header_taker;

static void add_headers(const header_taker *to, const char *of, rate *r, int64_t limit, double now)
{
    char name[48], value[32];
    if (!limit)
        return;
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", of);
    snprintf(value, sizeof value, "%" PRId64, limit);
    to->add(to->ctx, name, value);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", of);
    snprintf(value, sizeof value, "%.0f", floor(rate_left(r, (double)limit, now)));
    to->add(to->ctx, name, value);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", of);
    write_time(value, sizeof value, rate_reset(r, (double)limit, now));
    to->add(to->ctx, name, value);
}

void tenant_headers(tenant *t, double now, void (*add)(void *ctx, const char *name, const char *value), void *ctx)
{
    const header_taker to = {add, ctx};
    add_headers(&to, "requests", &t->requests, t->now.requests_per_minute, now);
    add_headers(&to, "tokens", &t->tokens, t->now.tokens_per_minute, now);
}

/* With the store. */

static bool has_limits(const tenant *t)
{
    return t->now.in_flight || t->now.waiting || t->now.requests_per_minute || t->now.tokens_per_minute;
}

bool tenants_have_limits(const tenants *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (has_limits(all->tenant[i]))
            return true;
    return false;
}

bool tenants_are_busy(const tenants *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (has_limits(all->tenant[i]) && all->tenant[i]->in_flight)
            return true;
    return false;
}

store_load *tenants_report_loads(tenants *all, size_t *n)
{
    store_load *loads = XNEW_ARRAY(store_load, all->n + 1);
    *n = 0;
    for (size_t i = 0; i < all->n; i++) {
        tenant *t = all->tenant[i];
        if (has_limits(t) && (t->spent_requests || t->spent_tokens || t->in_flight != t->reported_in_flight ||
                              t->waiting != t->reported_waiting)) {
            loads[(*n)++] = (store_load){.tenant = t->name,
                                         .requests = t->spent_requests,
                                         .tokens = t->spent_tokens,
                                         .in_flight = t->in_flight,
                                         .waiting = t->waiting};
            t->reported_in_flight = t->in_flight;
            t->reported_waiting = t->waiting;
        }
        t->spent_requests = t->spent_tokens = 0;
    }
    return loads;
}

void tenants_apply_load(tenants *all, double now, const store_load *l, int64_t own_requests, int64_t own_tokens)
{
    tenant *t = find_name(all, l->tenant);
    if (!t)
        return;
    int64_t requests = l->requests - t->all_requests - own_requests, tokens = l->tokens - t->all_tokens - own_tokens;
    if (t->all_requests >= 0)
        spend(t, now, requests > 0 ? requests : 0, tokens > 0 ? tokens : 0);
    t->all_requests = l->requests;
    t->all_tokens = l->tokens;
    t->in_flight_elsewhere = l->in_flight;
    t->waiting_elsewhere = l->waiting;
}

/* Metrics. */

static int by_use(const void *pa, const void *pb)
{
    const tenant *a = *(tenant *const *)pa, *b = *(tenant *const *)pb;
    uint64_t x = a->n_prompt + a->n_output, y = b->n_prompt + b->n_output;
    return x < y ? 1 : x > y ? -1 : strcmp(a->name, b->name);
}

static void write_metric(buf *out, const char *name, const char *help, tenant *const *t, size_t n, size_t offset,
                         uint64_t rest)
{
    prometheus_item *item = XNEW_ARRAY(prometheus_item, n + 1);
    for (size_t i = 0; i < n; i++)
        item[i] = (prometheus_item){t[i]->name, *(const uint64_t *)((const char *)t[i] + offset)};
    prometheus_add_top(out, name, help, "tenant", item, n, rest);
    free(item);
}

void tenants_write_metrics(tenants *all, buf *out)
{
    tenant **t = XNEW_ARRAY(tenant *, all->n + 1);
    memcpy(t, all->tenant, all->n * sizeof *t);
    if (all->n)
        qsort(t, all->n, sizeof *t, by_use);
    write_metric(out, "tenant_requests_total", "Requests taken in.", t, all->n, offsetof(tenant, n_requests),
                 all->n_requests_gone);
    write_metric(out, "tenant_prompt_tokens_total", "Tokens of prompts computed.", t, all->n,
                 offsetof(tenant, n_prompt), all->n_prompt_gone);
    write_metric(out, "tenant_output_tokens_total", "Tokens of output received.", t, all->n, offsetof(tenant, n_output),
                 all->n_output_gone);
    write_metric(out, "tenant_refused_total", "Calls refused for a limit.", t, all->n, offsetof(tenant, n_refused),
                 all->n_refused_gone);
    free(t);
}
