/* naive_scheduler.c - see naive_scheduler.h */
#include "sim/naive_scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "sim/command_words.h"

static bool naive_before(const naive_request *a, const naive_request *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a->id < b->id;
}

static naive_request *naive_find(naive *s, uint64_t id)
{
    for (int i = 0; i < NAIVE_REQUESTS; i++)
        if (id && s->request[i].id == id)
            return &s->request[i];
    return NULL;
}

int naive_running(const naive *s, int gpu)
{
    int n = 0;
    for (int i = 0; i < NAIVE_REQUESTS; i++)
        n += s->request[i].id && s->request[i].gpu == gpu;
    return n;
}

/* Returns whether a GPU takes requests: a slow one does only while no other does. */
static bool naive_open(const naive *s, int gpu)
{
    bool others = false;
    for (int g = 0; g < NAIVE_GPUS; g++)
        others |= s->gpu[g].up && !s->gpu[g].draining && !s->gpu[g].slow;
    return s->gpu[gpu].up && !s->gpu[gpu].draining && !(s->gpu[gpu].slow && others);
}

static bool naive_has_suspect(const naive *s, int gpu)
{
    for (int i = 0; i < NAIVE_REQUESTS; i++)
        if (s->request[i].id && s->request[i].gpu == gpu && s->request[i].suspect)
            return true;
    return false;
}

int naive_waiting(const naive *s)
{
    return naive_running(s, -1);
}

/* Returns the tokens that have been reported: the scored ones of the prompt, and output. */
static int naive_told(const naive_request *r)
{
    return r->n_scored + r->n_tokens - r->n_prompt;
}

static int naive_pages(const naive_gpu *g, int n_tokens)
{
    int pages = 0;
    while (pages * g->info.page_len < n_tokens + 1)
        pages++;
    return pages;
}

/* Returns the pages of adds on their way that are still wanted. */
static int naive_coming(naive *s, int gpu)
{
    naive_gpu *g = &s->gpu[gpu];
    int pages = 0;
    for (uint64_t i = g->n_seen; i < g->n_sent; i++) {
        naive_request *r = naive_find(s, g->sent[i].id);
        if (g->sent[i].add && r && r->gpu == gpu && r->attempt == g->sent[i].attempt)
            pages += g->sent[i].pages;
    }
    return pages;
}

/* Returns the pages that cancels on their way will free: of requests whose add was taken in. */
static int naive_going(const naive_gpu *g)
{
    int pages = 0;
    for (uint64_t i = g->n_seen; i < g->n_sent; i++)
        for (uint64_t k = 0; !g->sent[i].add && k < g->n_seen; k++)
            if (g->sent[k].add && g->sent[k].id == g->sent[i].id && g->sent[k].attempt == g->sent[i].attempt)
                pages += g->sent[i].pages;
    return pages;
}

static bool naive_has_confined(const naive *s, int gpu)
{
    for (int i = 0; i < NAIVE_REQUESTS; i++)
        if (s->request[i].id && s->request[i].gpu == gpu && s->request[i].confined)
            return true;
    return false;
}

static bool naive_fits(naive *s, const naive_request *r, int gpu, bool minding_suspects)
{
    naive_gpu *g = &s->gpu[gpu];
    int n = naive_running(s, gpu);
    if (!naive_open(s, gpu) || n >= g->info.max_batch || r->n_tokens + 1 > g->info.max_tokens)
        return false;
    if (r->confined ? n > 0 : s->reserved == gpu + 1 || naive_has_confined(s, gpu))
        return false;
    if (minding_suspects && r->suspect && naive_has_suspect(s, gpu))
        return false;
    return naive_pages(g, r->n_tokens) + n <= g->pages_free - naive_coming(s, gpu);
}

/* Returns whether GPU a stands above b: larger working set, higher uuid. */
static bool naive_above(const naive *s, int a, int b)
{
    int x = naive_running(s, a), y = naive_running(s, b), c = strcmp(s->gpu[a].uuid, s->gpu[b].uuid);
    return x != y ? x > y : c ? c > 0 : a > b;
}

static int naive_choose(naive *s, const naive_request *r, bool minding_suspects)
{
    int best = -1;
    for (int g = 0; g < NAIVE_GPUS; g++)
        if (naive_fits(s, r, g, minding_suspects) && (best < 0 || naive_above(s, g, best)))
            best = g;
    return best;
}

/* Hashes the beginning of a request: so many units of 16 tokens, its tenant and its adapter. */
static uint64_t naive_mark(const naive_request *r, int units)
{
    uint64_t hash = (uint64_t)r->tenant;
    for (const char *c = r->adapter; *c; c++)
        hash = rng_u64(hash, (uint64_t)*c);
    for (size_t i = 0; i < r->digest_bytes; i++)
        hash = rng_u64(hash, 256 + (uint64_t)r->digest[i]);
    for (int i = 0; i < units * 16; i++)
        hash = rng_u64(hash, 512 + (uint64_t)r->token[i]);
    return hash;
}

static naive_prefix *naive_find_prefix(naive *s, uint64_t mark)
{
    for (int i = 0; i < s->n_prefixes; i++)
        if (s->prefix[i].mark == mark)
            return &s->prefix[i];
    return NULL;
}

/* Remembers that a GPU was given the first 1, 2, 4, ... units of a request, and all it has. */
static void naive_remember(naive *s, const naive_request *r, int gpu)
{
    int n = s->opt.max_prefixes ? r->n_tokens / 16 : 0;
    for (int units = 1; units <= n; units++) {
        if (units != n && units != 1 && units != 2 && units != 4)
            continue;
        uint64_t mark = naive_mark(r, units);
        naive_prefix *p = naive_find_prefix(s, mark);
        if (!p) {
            CHECK(s->n_prefixes < NAIVE_PREFIXES && n <= 8);
            p = &s->prefix[s->n_prefixes++];
        }
        *p = (naive_prefix){mark, s->gpu[gpu].life, gpu};
    }
}

/* Like naive_choose(), but prefers the GPU that was last given a request with the same beginning, if it is as good: it
 * has as many requests, or is not lightly loaded. */
static int naive_choose_known(naive *s, const naive_request *r)
{
    int best = naive_choose(s, r, true);
    for (int units = r->n_tokens / 16; best >= 0 && units > 0; units--) {
        const naive_prefix *p = naive_find_prefix(s, naive_mark(r, units));
        if (!p || !s->gpu[p->gpu].up || s->gpu[p->gpu].life != p->life || !naive_fits(s, r, p->gpu, true))
            continue;
        int n = naive_running(s, p->gpu);
        if (n == naive_running(s, best) || (n > 0 && n >= s->opt.light_share * s->gpu[p->gpu].info.max_batch))
            return p->gpu;
    }
    return best;
}

static void naive_send(naive *s, int gpu, bool add, naive_request *r)
{
    naive_gpu *g = &s->gpu[gpu];
    CHECK(g->n_sent < NAIVE_SENT);
    g->sent[g->n_sent++] = (naive_sent){add, r->id, r->attempt, naive_pages(g, r->n_tokens)};
    if (add)
        command_words_add(&s->said, r->id, gpu, r->attempt, r->token, r->n_tokens, r->n_prompt, r->max_tokens,
                          r->n_scored);
    else
        buf_printf(&s->said, "cancel %llu on %d, #%u\n", (unsigned long long)r->id, gpu, r->attempt);
}

/* Returns whether a request stands in its tenant's line of newcomers. */
static bool naive_is_newcomer(const naive_request *r)
{
    return r->id && !r->taken_on && r->gpu < 0 && r->aside < 0;
}

static void naive_leave_line(naive *s, const naive_request *r)
{
    if (naive_is_newcomer(r))
        s->last = r->tenant + 1;
}

/* Lifts a newcomer's tenant as it joins the line: if it had nobody there, to the smallest counter of tenants that have,
 * or if none has, to that of the tenant whose newcomer left last. */
static void naive_join_line(naive *s, naive_request *r)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        const naive_request *o = &s->request[i];
        if (o == r || !naive_is_newcomer(o))
            continue;
        if (o->tenant == r->tenant)
            return;
        least = s->tenant[o->tenant].counter < least ? s->tenant[o->tenant].counter : least;
    }
    if (least == UINT64_MAX)
        least = s->last ? s->tenant[s->last - 1].counter : 0;
    if (s->tenant[r->tenant].counter < least)
        s->tenant[r->tenant].counter = least;
}

static void naive_charge(naive *s, int tenant, uint64_t cost)
{
    s->tenant[tenant].counter += cost * ((1 << 20) / s->tenant[tenant].weight);
}

static void naive_take_on(naive *s, double now, naive_request *r)
{
    naive_leave_line(s, r);
    s->last_turn = now > s->last_turn + 1e-6 ? now : s->last_turn + 1e-6;
    r->arrival = s->last_turn;
    r->priority = 0;
    r->taken_on = true;
    naive_charge(s, r->tenant, (uint64_t)r->n_prompt);
}

static void naive_place(naive *s, double now, naive_request *r, int gpu)
{
    if (r->gpu >= 0)
        naive_send(s, r->gpu, false, r);
    if (r->taken_on)
        r->moved = now;
    else
        naive_take_on(s, now, r);
    r->aside = -1;
    r->was_confined = false;
    r->attempt = ++s->n_attempts;
    naive_remember(s, r, gpu);
    r->gpu = gpu;
    naive_send(s, gpu, true, r);
}

static void naive_end(naive *s, naive_request *r, end_reason why)
{
    if (r->gpu >= 0)
        naive_send(s, r->gpu, false, r);
    naive_leave_line(s, r);
    command_words_end(&s->said, r->id, r->frontend, why);
    r->id = 0;
}

static bool naive_too_large(const naive *s, const naive_request *r)
{
    bool any = false;
    for (int i = 0; i < NAIVE_GPUS; i++) {
        const naive_gpu *g = &s->gpu[i];
        if (!naive_open(s, i))
            continue;
        any = true;
        if (naive_pages(g, r->n_tokens) <= g->info.n_pages && r->n_tokens + 1 <= g->info.max_tokens)
            return false;
    }
    return any;
}

static bool naive_is_hopeless(const naive *s, const naive_request *r)
{
    return naive_too_large(s, r) && !r->taken_on && r->n_tokens >= s->most_tokens;
}

/* Updates none_since after a change of open GPUs, and gives up the reserved GPU if it is not open any more. */
static void naive_count_open(naive *s, double now)
{
    bool any = false;
    for (int g = 0; g < NAIVE_GPUS; g++)
        any |= naive_open(s, g);
    if (any)
        s->none_since = -1;
    else if (s->none_since < 0)
        s->none_since = now;
    if (s->reserved && !naive_open(s, s->reserved - 1))
        s->reserved = 0;
}

/* Returns whether a request is to leave its GPU. */
static bool naive_leaves(const naive *s, const naive_request *r)
{
    return r->gpu >= 0 && (!naive_open(s, r->gpu) || (s->reserved == r->gpu + 1 && !r->confined && !r->was_confined));
}

/* Returns the first in a tenant's line of newcomers, or NULL. */
static const naive_request *naive_first_of(const naive *s, int tenant)
{
    const naive_request *first = NULL;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        const naive_request *r = &s->request[i];
        if (naive_is_newcomer(r) && r->tenant == tenant && (!first || naive_before(r, first)))
            first = r;
    }
    return first;
}

/* Returns whether tenant a is before b: by counter, then by arrival of the first newcomer; tenants without one come
 * last. */
static bool naive_tenant_is_next(const naive *s, int a, int b)
{
    if (s->tenant[a].counter != s->tenant[b].counter)
        return s->tenant[a].counter < s->tenant[b].counter;
    const naive_request *x = naive_first_of(s, a), *y = naive_first_of(s, b);
    if (!x || !y)
        return x || (!y && a < b);
    return x->arrival != y->arrival ? x->arrival < y->arrival : x->id < y->id;
}

/* Returns whether a is before b: those that have been on a GPU come before newcomers, which go by tenant. */
static bool naive_is_next(const naive *s, const naive_request *a, const naive_request *b)
{
    if (a->taken_on != b->taken_on)
        return a->taken_on;
    return a->taken_on || a->tenant == b->tenant ? naive_before(a, b) : naive_tenant_is_next(s, a->tenant, b->tenant);
}

/* Lists the requests that wait or are to leave their GPU, in order, except confined ones that wait. */
static int naive_line(naive *s, naive_request **line)
{
    int n = 0;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        naive_request *r = &s->request[i];
        if (!r->id || (r->gpu >= 0 ? !naive_leaves(s, r) : r->confined))
            continue;
        int at = n++;
        for (; at > 0 && naive_is_next(s, r, line[at - 1]); at--)
            line[at] = line[at - 1];
        line[at] = r;
    }
    return n;
}

static void naive_step_aside(naive *s, double now, naive_request *r)
{
    naive_leave_line(s, r);
    r->aside = now;
    r->aside_serial = ++s->n_asides;
}

/* Serves the first request that can be served; false if none can. */
static bool naive_serve(naive *s, double now)
{
    naive_request *line[NAIVE_REQUESTS];
    bool suspect_waits = false, leaver_waits = false;
    int n = naive_line(s, line);
    for (int i = 0; i < n; i++) {
        naive_request *r = line[i];
        bool leaves = r->gpu >= 0;
        if (r->aside >= 0)
            continue;
        if ((leaves && leaver_waits) || (!leaves && r->suspect && suspect_waits))
            continue;
        int gpu = naive_choose_known(s, r);
        if (naive_told(r) >= r->n_to_score + r->max_tokens) {
            naive_end(s, r, END_LENGTH);
            return true;
        }
        if (gpu >= 0) {
            naive_place(s, now, r, gpu);
            return true;
        }
        if (naive_is_hopeless(s, r)) {
            naive_end(s, r, END_TOO_LARGE);
            return true;
        }
        if (naive_too_large(s, r)) {
            naive_step_aside(s, now, r);
            return true; /* its tenant may have nobody else in line */
        }
        if (leaves)
            leaver_waits = true;
        else if (r->suspect && naive_choose(s, r, false) >= 0)
            suspect_waits = true;
        else
            return false;
    }
    return false;
}

/* Returns the first confined request that waits, or NULL. */
static naive_request *naive_first_confined(naive *s)
{
    naive_request *first = NULL;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        naive_request *r = &s->request[i];
        if (r->id && r->gpu < 0 && r->confined && r->aside < 0 && (!first || naive_before(r, first)))
            first = r;
    }
    return first;
}

/* Returns whether an empty GPU could hold a request. */
static bool naive_fits_empty(const naive_gpu *g, const naive_request *r)
{
    return naive_pages(g, r->n_tokens) <= g->info.n_pages && r->n_tokens + 1 <= g->info.max_tokens;
}

static void naive_reserve(naive *s, const naive_request *r)
{
    for (int g = 0; g < NAIVE_GPUS; g++) {
        bool fits = naive_open(s, g) && naive_fits_empty(&s->gpu[g], r);
        if (fits && (!s->reserved || naive_above(s, s->reserved - 1, g)))
            s->reserved = g + 1;
    }
    for (int i = 0; i < NAIVE_REQUESTS && s->reserved; i++)
        if (s->request[i].id && s->request[i].gpu == s->reserved - 1)
            s->request[i].was_confined = false;
}

static void naive_serve_confined(naive *s, double now)
{
    for (naive_request *r; (r = naive_first_confined(s));) {
        int gpu = naive_choose(s, r, true);
        if (gpu >= 0) {
            naive_place(s, now, r, gpu);
        } else if (naive_too_large(s, r)) {
            naive_step_aside(s, now, r);
        } else {
            if (s->reserved && !naive_fits_empty(&s->gpu[s->reserved - 1], r))
                s->reserved = 0;
            if (!s->reserved)
                naive_reserve(s, r);
            return;
        }
    }
    s->reserved = 0;
}

/* Returns the request aside that is not too large any more, and stepped aside first; or NULL. */
static naive_request *naive_to_call_back(naive *s)
{
    naive_request *first = NULL;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        naive_request *r = &s->request[i];
        if (r->id && r->aside >= 0 && !naive_too_large(s, r) && (!first || r->aside_serial < first->aside_serial))
            first = r;
    }
    return first;
}

static void naive_fill(naive *s, double now)
{
    for (naive_request *r; (r = naive_to_call_back(s)); r->aside = -1)
        if (!r->taken_on)
            naive_join_line(s, r);
    do {
        naive_serve_confined(s, now);
        while (naive_serve(s, now))
            ;
    } while (naive_first_confined(s) && naive_choose(s, naive_first_confined(s), true) >= 0);
}

/* Puts a request that is on no GPU any more back in line, or ends it if it has all its tokens. */
static void naive_put_back(naive *s, naive_request *r)
{
    r->gpu = -1;
    r->aside = -1;
    if (naive_told(r) >= r->n_to_score + r->max_tokens)
        naive_end(s, r, END_LENGTH);
}

static void naive_drop(naive *s, naive_request *r)
{
    if (r->gpu >= 0)
        naive_send(s, r->gpu, false, r);
    naive_leave_line(s, r);
    r->id = 0;
}

/* Returns whether a request of this prompt, adapter and version of it was ended for killing workers in the last ten
 * minutes. */
static bool naive_knows(const naive *s, double now, const submission *w)
{
    for (int i = 0; i < s->n_killers; i++) {
        const naive_killer *k = &s->killer[i];
        if (now < k->until && k->n == w->n_prompt && memcmp(k->token, w->token, (size_t)k->n * sizeof *k->token) == 0 &&
            strcmp(k->adapter, w->adapter ? w->adapter : "") == 0 && k->digest_bytes == w->digest_bytes &&
            (k->digest_bytes == 0 || memcmp(k->digest, w->digest, k->digest_bytes) == 0))
            return true;
    }
    return false;
}

static int naive_tenant_of(naive *s, const submission *w)
{
    const char *name = w->tenant ? w->tenant : "";
    int t = 0;
    while (t < s->n_tenants && strcmp(s->tenant[t].name, name) != 0)
        t++;
    if (t == s->n_tenants) {
        CHECK(s->n_tenants++ < NAIVE_TENANTS);
        snprintf(s->tenant[t].name, sizeof s->tenant[t].name, "%s", name);
    }
    s->tenant[t].weight = w->weight ? w->weight : 1;
    return t;
}

/* Returns whether the queue is full, and the request's tenant has more than an equal part of it. */
static bool naive_one_too_many(const naive *s, const naive_request *r)
{
    int tenants = 0, newcomers = 0, n[NAIVE_TENANTS] = {0};
    for (int i = 0; i < NAIVE_REQUESTS; i++)
        if (naive_is_newcomer(&s->request[i])) {
            tenants += n[s->request[i].tenant]++ == 0;
            newcomers++;
        }
    return naive_waiting(s) > s->opt.max_queue &&
           n[r->tenant] * tenants + naive_waiting(s) - newcomers > s->opt.max_queue;
}

void naive_submit(naive *s, double now, int frontend, const submission *w)
{
    naive_request *same = naive_find(s, w->id), *r = NULL;
    if (same || w->n_prompt < 1 || w->n_tokens < w->n_prompt || w->max_tokens < (w->n_to_score ? 0 : 1) ||
        w->n_to_score >= w->n_prompt || w->n_scored > w->n_to_score ||
        (w->n_tokens > w->n_prompt && w->n_scored < w->n_to_score)) {
        command_words_end(&s->said, w->id, frontend, END_FAILED);
        if (same && same->frontend == frontend)
            naive_drop(s, same);
        naive_fill(s, now);
        return;
    }
    if (naive_knows(s, now, w)) {
        command_words_end(&s->said, w->id, frontend, END_KILLS_WORKERS);
        naive_fill(s, now);
        return;
    }
    for (int i = 0; i < NAIVE_REQUESTS && !r; i++)
        if (!s->request[i].id)
            r = &s->request[i];
    CHECK(r != NULL && w->n_tokens + w->max_tokens <= NAIVE_TOKENS);
    bool taken_on = w->again || w->n_tokens > w->n_prompt || w->n_scored;
    *r = (naive_request){.id = w->id,
                         .arrival = w->arrival,
                         .since = now,
                         .moved = -1e9,
                         .frontend = frontend,
                         .n_tokens = w->n_tokens,
                         .n_prompt = w->n_prompt,
                         .max_tokens = w->max_tokens,
                         .n_to_score = w->n_to_score,
                         .n_scored = w->n_scored,
                         .gpu = -1,
                         .taken_on = taken_on,
                         .tenant = naive_tenant_of(s, w),
                         .priority = taken_on ? 0 : w->priority,
                         .aside = 0,
                         .serial = ++s->n_submitted};
    memcpy(r->token, w->token, (size_t)w->n_tokens * sizeof *r->token);
    snprintf(r->adapter, sizeof r->adapter, "%s", w->adapter ? w->adapter : "");
    CHECK(w->digest_bytes <= sizeof r->digest);
    r->digest_bytes = w->digest_bytes;
    if (w->digest_bytes)
        memcpy(r->digest, w->digest, w->digest_bytes);
    if (naive_told(r) < r->n_to_score + r->max_tokens && naive_is_hopeless(s, r)) {
        naive_end(s, r, END_TOO_LARGE);
        return;
    }
    if (!taken_on)
        naive_join_line(s, r);
    naive_put_back(s, r);
    naive_fill(s, now);
    if (r->id && r->gpu < 0 && !taken_on && naive_one_too_many(s, r))
        naive_end(s, r, END_QUEUE_FULL);
}

void naive_cancel(naive *s, double now, int frontend, uint64_t id)
{
    naive_request *r = naive_find(s, id);
    if (r && r->frontend == frontend) {
        naive_drop(s, r);
        naive_fill(s, now);
    }
}

void naive_frontend_gone(naive *s, double now, int frontend)
{
    for (uint64_t serial = 1; serial <= s->n_submitted; serial++)
        for (int i = 0; i < NAIVE_REQUESTS; i++)
            if (s->request[i].id && s->request[i].frontend == frontend && s->request[i].serial == serial)
                naive_drop(s, &s->request[i]);
    naive_fill(s, now);
}

/* Returns the oldest or the newest request on a GPU, or NULL. */
static naive_request *naive_extreme(naive *s, int gpu, bool oldest)
{
    naive_request *best = NULL;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        naive_request *r = &s->request[i];
        if (r->id && r->gpu == gpu && (!best || naive_before(r, best) == oldest))
            best = r;
    }
    return best;
}

static bool naive_was_taken_in(const naive_gpu *g, const naive_request *r)
{
    for (uint64_t i = 0; i < g->n_seen; i++)
        if (g->sent[i].add && g->sent[i].id == r->id && g->sent[i].attempt == r->attempt)
            return true;
    return false;
}

/* Returns whether r, on this GPU, is alone there, and its add the last command that was sent. */
static bool naive_is_alone(const naive *s, int gpu, const naive_request *r)
{
    const naive_gpu *g = &s->gpu[gpu];
    const naive_sent *last = &g->sent[g->n_sent - 1];
    return naive_running(s, gpu) == 1 && last->add && last->id == r->id && last->attempt == r->attempt;
}

/* Counts a loss that the request may have caused. Returns whether it is a killer now. */
static bool naive_is_killer(naive_request *r, gpu_loss how, bool alone)
{
    if (how == LOSS_CRASH) {
        r->n_crashed++;
        r->n_alone = alone ? r->n_alone + 1 : 0;
        return r->n_alone >= 3 || (alone && r->n_crashed > 16);
    }
    if (how == LOSS_KILLED) {
        r->n_killed++;
        r->n_killed_alone = alone ? r->n_killed_alone + 1 : 0;
        return r->n_killed_alone >= 16 || (alone && r->n_killed > 64);
    }
    return ++r->n_lost >= 16;
}

/* Blames a request for a loss: the first time it becomes a suspect, the second confined; three crashes in a row alone,
 * or one alone after 16 crashes, make it a killer. Kills from outside and lost links count the same way, with higher
 * limits. */
static void naive_blame(naive *s, double now, naive_request *r, gpu_loss how, bool alone)
{
    if (naive_is_killer(r, how, alone)) {
        naive_killer *k = &s->killer[s->n_killers++];
        CHECK(s->n_killers < NAIVE_REQUESTS);
        k->n = r->n_prompt;
        k->until = now + 600;
        memcpy(k->token, r->token, (size_t)r->n_prompt * sizeof *k->token);
        memcpy(k->adapter, r->adapter, sizeof k->adapter);
        memcpy(k->digest, r->digest, sizeof k->digest);
        k->digest_bytes = r->digest_bytes;
        naive_end(s, r, END_KILLS_WORKERS);
        return;
    }
    r->confined = r->suspect || r->n_crashed >= 16 || r->n_killed >= 64;
    r->suspect = true;
    naive_put_back(s, r);
}

static void naive_lose(naive *s, double now, int gpu, gpu_loss how)
{
    if (!s->gpu[gpu].up)
        return;
    if (s->reserved == gpu + 1)
        s->reserved = 0;
    naive_request *first = naive_extreme(s, gpu, true);
    bool alone = first && naive_is_alone(s, gpu, first);
    for (naive_request *r; (r = naive_extreme(s, gpu, true));) {
        bool blamed = (how != LOSS_LINK) == naive_was_taken_in(&s->gpu[gpu], r);
        r->gpu = -1;
        if (blamed)
            naive_blame(s, now, r, how, alone);
        else
            naive_put_back(s, r);
    }
    s->gpu[gpu].up = false;
}

void naive_gpus_gone(naive *s, double now, const int *gpu, int n, gpu_loss how)
{
    for (int i = 0; i < n; i++)
        naive_lose(s, now, gpu[i], how);
    naive_count_open(s, now);
    naive_fill(s, now);
}

void naive_gpu_up(naive *s, double now, int gpu, const gpu_info *info)
{
    naive_gpu *g = &s->gpu[gpu];
    *g = (naive_gpu){
        .up = true, .life = ++s->n_lives, .info = *info, .pages_free = info->n_pages, .slow = info->on_probation};
    snprintf(g->uuid, sizeof g->uuid, "%s", info->uuid);
    int most = info->n_pages * info->page_len < info->max_tokens ? info->n_pages * info->page_len : info->max_tokens;
    s->most_tokens = most > s->most_tokens ? most : s->most_tokens;
    naive_count_open(s, now);
    naive_fill(s, now);
}

void naive_gpus_drain(naive *s, double now, const int *gpu, int n)
{
    for (int i = 0; i < n; i++)
        s->gpu[gpu[i]].draining = true;
    naive_count_open(s, now);
    naive_fill(s, now);
}

void naive_gpu_pace(naive *s, double now, int gpu, bool slow)
{
    s->gpu[gpu].slow = slow;
    naive_count_open(s, now);
    naive_fill(s, now);
}

static naive_request *naive_current(naive *s, int gpu, uint64_t id, uint32_t attempt)
{
    naive_request *r = naive_find(s, id);
    return r && r->gpu == gpu && r->attempt == attempt ? r : NULL;
}

static bool naive_tokens(naive *s, int gpu, const report_tokens *t)
{
    naive_request *r = naive_current(s, gpu, t->id, t->attempt);
    if (!r)
        return true;
    int have = naive_told(r);
    if (t->index != have || have + t->n > r->n_to_score + r->max_tokens)
        return false;
    for (int i = 0; i < t->n; i++)
        if (r->n_scored < r->n_to_score) {
            r->n_scored++;
        } else {
            r->token[r->n_tokens++] = t->token[i];
            naive_charge(s, r->tenant, 2);
        }
    r->n_alone = r->n_killed_alone = r->n_lost = 0;
    if (r->n_crashed < 16 && r->n_killed < 64) {
        r->was_confined |= r->confined;
        r->suspect = r->confined = false;
    }
    command_words_tokens(&s->said, r->id, r->frontend, t->index, t->token, t->n);
    return true;
}

static void naive_report_end(naive *s, int gpu, const report_end *e)
{
    naive_request *r = naive_current(s, gpu, e->id, e->attempt);
    if (!r)
        return;
    r->gpu = -1;
    if (e->why == END_EVICTED)
        naive_put_back(s, r);
    else
        naive_end(s, r, e->why);
}

void naive_report(naive *s, double now, int gpu, const gpu_report *p)
{
    naive_gpu *g = &s->gpu[gpu];
    if (!g->up)
        return;
    if (p->n_seen < g->n_seen || p->n_seen > (uint64_t)g->n_sent) {
        naive_gpus_gone(s, now, &gpu, 1, LOSS_LINK);
        return;
    }
    g->n_seen = p->n_seen;
    g->pages_free = p->pages_free;
    for (int i = 0; i < p->n_tokens; i++)
        if (!naive_tokens(s, gpu, &p->tokens[i])) {
            naive_gpus_gone(s, now, &gpu, 1, LOSS_LINK);
            return;
        }
    for (int i = 0; i < p->n_ends; i++)
        naive_report_end(s, gpu, &p->ends[i]);
    for (naive_request *r;
         g->pages_free - naive_coming(s, gpu) + naive_going(g) < 0 && (r = naive_extreme(s, gpu, false));) {
        naive_send(s, gpu, false, r);
        naive_put_back(s, r);
    }
    naive_request *only = naive_running(s, gpu) == 1 ? naive_extreme(s, gpu, true) : NULL;
    if (only && only->was_confined && naive_first_confined(s)) {
        naive_send(s, gpu, false, only);
        naive_put_back(s, only);
    }
    naive_fill(s, now);
}

static bool naive_light(const naive *s, int gpu)
{
    int n = naive_running(s, gpu);
    return naive_open(s, gpu) && s->reserved != gpu + 1 && n > 0 && n < s->opt.light_share * s->gpu[gpu].info.max_batch;
}

static bool naive_worth(const naive *s, int gpu, double now)
{
    int tokens = 0, longest = 0;
    for (int i = 0; i < NAIVE_REQUESTS; i++) {
        const naive_request *r = &s->request[i];
        if (!r->id || r->gpu != gpu)
            continue;
        if (now < r->moved + s->opt.move_again_after)
            return false;
        tokens += r->n_tokens;
        int left = r->n_to_score + r->max_tokens - naive_told(r);
        longest = left > longest ? left : longest;
        if (left == 0)
            return false;
    }
    return tokens / s->opt.prefill_rate <= longest * s->opt.step_time;
}

/* Moves all of a GPU's requests to GPUs that stood above it. It is tried on a copy of everything, which is kept if all
 * fit. */
static void naive_empty(naive *s, int gpu, double now)
{
    naive *copy = malloc(sizeof *copy);
    memcpy(copy, s, sizeof *copy);
    copy->said = (buf){0};
    copy->gpu[gpu].info.max_batch = 0;
    bool fits = true;
    for (naive_request *r; fits && (r = naive_extreme(copy, gpu, true));) {
        int to = naive_choose(copy, r, true);
        int before = naive_running(s, gpu), there = to < 0 ? -1 : naive_running(copy, to);
        int c = to < 0 ? 0 : strcmp(copy->gpu[to].uuid, s->gpu[gpu].uuid); /* 0: the same one, lost and back */
        fits = there > before || (there == before && (c > 0 || (c == 0 && to > gpu)));
        if (fits)
            naive_place(copy, now, r, to);
    }
    if (fits) {
        copy->gpu[gpu].info.max_batch = s->gpu[gpu].info.max_batch;
        buf said = s->said, more = copy->said;
        memcpy(s, copy, sizeof *s);
        s->said = said;
        if (more.len)
            buf_add(&s->said, more.data, more.len);
    }
    buf_free(&copy->said);
    free(copy);
}

static void naive_consolidate(naive *s, double now)
{
    int light[NAIVE_GPUS], n = 0;
    for (int g = 0; g < NAIVE_GPUS; g++) {
        if (!naive_light(s, g))
            continue;
        int at = n++;
        for (; at > 0 && naive_above(s, light[at - 1], g); at--)
            light[at] = light[at - 1];
        light[at] = g;
    }
    for (int i = 0; i < n; i++)
        if (naive_light(s, light[i]) && naive_worth(s, light[i], now))
            naive_empty(s, light[i], now);
}

/* Returns the request that has been aside for too long, and stepped aside first; or NULL. */
static naive_request *naive_first_overdue(naive *s, double now)
{
    naive_request *first = NULL;
    for (int i = 0; i < NAIVE_REQUESTS && s->opt.max_aside > 0; i++) {
        naive_request *r = &s->request[i];
        if (r->id && r->gpu < 0 && r->aside >= 0 && now - r->aside >= s->opt.max_aside &&
            (!first || r->aside_serial < first->aside_serial))
            first = r;
    }
    return first;
}

/* Ends new requests that have waited for `most` seconds, counted from `since` at the earliest; most 0: none. */
static void naive_end_late(naive *s, double now, double most, double since)
{
    for (uint64_t serial = 1; most > 0 && serial <= s->n_submitted; serial++)
        for (int i = 0; i < NAIVE_REQUESTS; i++) {
            naive_request *r = &s->request[i];
            if (r->id && r->serial == serial && !r->taken_on && now - (r->since > since ? r->since : since) >= most)
                naive_end(s, r, END_TOO_LATE);
        }
}

void naive_tick(naive *s, double now)
{
    naive_end_late(s, now, s->opt.max_wait, -1);
    naive_count_open(s, now);
    if (s->none_since >= 0)
        naive_end_late(s, now, s->opt.max_no_gpu, s->none_since);
    for (naive_request *r; (r = naive_first_overdue(s, now));)
        naive_end(s, r, r->n_tokens > r->n_prompt ? END_LENGTH : END_TOO_LARGE);
    naive_fill(s, now);
    if (s->opt.consolidate_every > 0 && now >= s->next_look) {
        naive_consolidate(s, now);
        s->next_look = now + s->opt.consolidate_every;
        naive_fill(s, now);
    }
}
