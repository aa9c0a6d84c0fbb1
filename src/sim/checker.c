/* checker.c - see checker.h. Linear scans over few requests: plain, and unlike the scheduler's code. */
#include "sim/checker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { MOST_TRACKED_TENANTS = 8 };
static const double ROUNDING = 0.25; /* tokens: the scheduler's counters are whole numbers */

typedef struct {
    uint64_t id;
    bool there; /* submitted, and neither ended nor cancelled */
    int frontend;
    double arrival, since; /* arrival: its turn, from its first GPU on */
    int tenant;            /* index in checker.tenant */
    int priority;          /* 0 once it has been on a GPU */
    int n_tokens, n_prompt, max_tokens, n_to_score, n_scored;
    uint64_t mark; /* hash of the prompt, the adapter and its version */
    bool taken_on; /* placed before, or submitted again */
    double held;   /* the last time that it was on a GPU, or an open GPU could hold it, or none was open */
    int gpu;       /* -1: waits */
    uint32_t attempt;
    uint64_t add; /* number of its add among that GPU's commands */
    int pages;    /* that it takes there, counted until the add is seen */
    bool suspect, confined;
    int n_crashed, n_alone, n_killed, n_killed_alone, n_lost; /* as in scheduler/request.h */
    bool must_end; /* it has been alone on too many lost workers, or on its way over too many lost links */
    bool killed;   /* was ended for that */
    bool doubled;  /* was submitted again while it was there */
    bool failed;   /* its GPU has just reported so */
} tracked_request;

/* A tenant. service: prompt tokens taken on and twice its output tokens, divided by its weight. */
typedef struct {
    uint64_t name; /* hash */
    double weight, service;
    bool waits;                           /* it has a newcomer that could be taken on if there were room */
    double longest_prompt, most_promised; /* tokens; most_promised: of output, by max_tokens of all there at once */
    double promised_again;                /* the same of those submitted again, which another scheduler took on */
} tracked_tenant;

/* Two tenants, a and b, that are both backlogged: have newcomers that wait. began: a's lead in service when both first
 * waited. most_at_a, least_at_b: since then, the largest lead of a when a newcomer of a was taken on, and the smallest
 * when one of b was. */
typedef struct {
    bool on;
    double began, most_at_a, least_at_b;
} backlogged_pair;

typedef struct {
    bool up, draining, slow;
    gpu_info info;
    int pages_free;
    uint64_t n_sent, n_seen;
} tracked_gpu;

struct checker {
    scheduler_options opt;
    tracked_request *request; /* [n_requests] all that ever came */
    size_t n_requests, requests_cap;
    tracked_gpu gpu[MOST_GPUS];
    tracked_tenant tenant[MOST_TRACKED_TENANTS];
    int n_tenants;
    backlogged_pair pair[MOST_TRACKED_TENANTS][MOST_TRACKED_TENANTS]; /* [a][b], b < a */
    int capacity;                                                     /* of the largest GPU so far */
    uint32_t last_attempt;
    double last_turn;    /* the last turn that a request got */
    uint64_t leaving;    /* id of the last command, when that was a cancel */
    bool put_back_early; /* that command took one off that was not its GPU's newest, in a report */
    bool in_report;      /* the event is a report */
    bool unsettled;      /* there was an event since checker_settle() */
    double now;          /* of the event */
    buf violation;
};

checker *checker_new(const scheduler_options *o)
{
    checker *k = XNEW(checker);
    *k = (checker){.opt = *o, .leaving = UINT64_MAX};
    return k;
}

void checker_free(checker *k)
{
    if (!k)
        return;
    free(k->request);
    buf_free(&k->violation);
    free(k);
}

static void violate(checker *k, const char *what, uint64_t id)
{
    if (!k->violation.len)
        buf_printf(&k->violation, "%s (request %llu)", what, (unsigned long long)id);
}

static tracked_request *find_tracked(const checker *k, uint64_t id)
{
    for (size_t i = 0; i < k->n_requests; i++)
        if (k->request[i].id == id)
            return &k->request[i];
    return NULL;
}

/* Returns the request that a command is about; if there is none, a violation, and a dummy. */
static tracked_request *at(checker *k, const command *c)
{
    static tracked_request nobody;
    tracked_request *r = find_tracked(k, c->id);
    if (r)
        return r;
    violate(k, "a command about a request that never came", c->id);
    nobody = (tracked_request){.id = c->id, .gpu = -1};
    return &nobody;
}

static void begin_event(checker *k, double now)
{
    k->unsettled = true;
    k->now = now;
}

const char *checker_violation(const checker *k)
{
    return k->violation.len ? k->violation.data : NULL;
}

static bool waits(const tracked_request *r)
{
    return r->there && r->gpu < 0;
}

/* Order among requests that have been on a GPU, or among one tenant's newcomers. */
static bool is_before(const tracked_request *a, const tracked_request *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a->id < b->id;
}

/* Returns whether a GPU takes requests: a slow one does only while no other does. */
static bool is_open(const checker *k, int gpu)
{
    bool others = false;
    for (int i = 0; i < MOST_GPUS; i++)
        others |= k->gpu[i].up && !k->gpu[i].draining && !k->gpu[i].slow;
    return k->gpu[gpu].up && !k->gpu[gpu].draining && !(k->gpu[gpu].slow && others);
}

static int n_running(const checker *k, int gpu)
{
    int n = 0;
    for (size_t i = 0; i < k->n_requests; i++)
        n += k->request[i].there && k->request[i].gpu == gpu;
    return n;
}

static int n_waiting(const checker *k)
{
    int n = 0;
    for (size_t i = 0; i < k->n_requests; i++)
        n += waits(&k->request[i]);
    return n;
}

static int pages_for(const tracked_gpu *g, int n_tokens)
{
    return (n_tokens + g->info.page_len - 1) / g->info.page_len;
}

/* Returns the pages that a GPU reported, less those of adds it has not seen. */
static int pages_left(const checker *k, int gpu)
{
    int n = k->gpu[gpu].pages_free;
    for (size_t i = 0; i < k->n_requests; i++) {
        const tracked_request *r = &k->request[i];
        if (r->there && r->gpu == gpu && r->add > k->gpu[gpu].n_seen)
            n -= r->pages;
    }
    return n;
}

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0;
    for (; name && *name; name++)
        hash = rng_u64(hash, (uint64_t)*name);
    return hash;
}

/* Returns the index of a submission's tenant, added if it is new. */
static int tenant_of(checker *k, const submission *s)
{
    uint64_t name = hash_of(s->tenant);
    int i = 0;
    while (i < k->n_tenants && k->tenant[i].name != name)
        i++;
    if (i == k->n_tenants) {
        CHECK(k->n_tenants++ < MOST_TRACKED_TENANTS);
        k->tenant[i] = (tracked_tenant){.name = name};
    }
    k->tenant[i].weight = s->weight ? s->weight : 1;
    return i;
}

static uint64_t mark_of(const submission *s)
{
    uint64_t mark = hash_of(s->adapter);
    for (size_t i = 0; i < s->digest_bytes; i++)
        mark = rng_u64(mark, ((const unsigned char *)s->digest)[i]);
    for (int i = 0; i < s->n_prompt; i++)
        mark = rng_u64(mark, (uint64_t)s->token[i]);
    return mark;
}

void checker_submit(checker *k, double now, int frontend, const submission *s)
{
    begin_event(k, now);
    tracked_request *r = find_tracked(k, s->id);
    bool killed = r && r->killed;
    if (!r) {
        k->request = xgrow(k->request, &k->requests_cap, k->n_requests + 1, sizeof *k->request);
        r = &k->request[k->n_requests++];
    } else if (r->there) {
        r->doubled = true; /* the frontend's error: the scheduler ends both */
        return;
    }
    bool taken_on = s->again || s->n_tokens > s->n_prompt || s->n_scored;
    *r = (tracked_request){.id = s->id,
                           .killed = killed,
                           .there = true,
                           .frontend = frontend,
                           .arrival = s->arrival,
                           .since = now,
                           .n_tokens = s->n_tokens,
                           .n_prompt = s->n_prompt,
                           .max_tokens = s->max_tokens,
                           .n_to_score = s->n_to_score,
                           .n_scored = s->n_scored,
                           .gpu = -1,
                           .tenant = tenant_of(k, s),
                           .priority = taken_on ? 0 : s->priority,
                           .mark = mark_of(s),
                           .taken_on = taken_on,
                           .held = now};
    if (taken_on)
        k->tenant[r->tenant].promised_again += s->max_tokens;
}

/* Notes that a request is gone: the scheduler must cancel it if it runs, and say nothing more of it. */
static void forget(tracked_request *r)
{
    r->there = false;
}

void checker_cancel(checker *k, double now, int frontend, uint64_t id)
{
    begin_event(k, now);
    tracked_request *r = find_tracked(k, id);
    if (r && r->there && r->frontend == frontend)
        forget(r);
}

void checker_frontend_gone(checker *k, double now, int frontend)
{
    begin_event(k, now);
    for (size_t i = 0; i < k->n_requests; i++)
        if (k->request[i].frontend == frontend)
            forget(&k->request[i]);
}

void checker_gpu_up(checker *k, double now, int gpu, const gpu_info *info)
{
    begin_event(k, now);
    CHECK(gpu < MOST_GPUS);
    tracked_gpu *g = &k->gpu[gpu];
    *g = (tracked_gpu){.up = true, .info = *info, .pages_free = info->n_pages, .slow = info->on_probation};
    if (g->info.max_tokens > info->n_pages * info->page_len)
        g->info.max_tokens = info->n_pages * info->page_len;
    if (g->info.max_tokens > k->capacity)
        k->capacity = g->info.max_tokens;
}

static void blame(tracked_request *r, gpu_loss how, bool alone)
{
    if (how == LOSS_CRASH) {
        r->n_crashed++;
        r->n_alone = alone ? r->n_alone + 1 : 0;
        r->must_end = r->n_alone >= 3 || (alone && r->n_crashed > 16);
    } else if (how == LOSS_KILLED) {
        r->n_killed++;
        r->n_killed_alone = alone ? r->n_killed_alone + 1 : 0;
        r->must_end = r->n_killed_alone >= 16 || (alone && r->n_killed > 64);
    } else {
        r->must_end = ++r->n_lost >= 16;
    }
    r->confined = r->suspect || r->n_crashed >= 16 || r->n_killed >= 64;
    r->suspect = true;
}

static void lose_gpu(checker *k, int gpu, gpu_loss how)
{
    bool one = n_running(k, gpu) == 1;
    for (size_t i = 0; i < k->n_requests; i++) {
        tracked_request *r = &k->request[i];
        if (!r->there || r->gpu != gpu)
            continue;
        if ((how == LOSS_LINK) == (r->add > k->gpu[gpu].n_seen))
            blame(r, how, one && r->add == k->gpu[gpu].n_sent);
        r->gpu = -1;
    }
    k->gpu[gpu].up = false;
}

void checker_gpus_gone(checker *k, double now, const int *gpu, int n, gpu_loss how)
{
    begin_event(k, now);
    for (int i = 0; i < n; i++)
        lose_gpu(k, gpu[i], how);
}

void checker_gpus_drain(checker *k, double now, const int *gpu, int n)
{
    begin_event(k, now);
    for (int i = 0; i < n; i++)
        k->gpu[gpu[i]].draining = true;
}

void checker_gpu_pace(checker *k, double now, int gpu, bool slow)
{
    begin_event(k, now);
    k->gpu[gpu].slow = slow;
}

void checker_tick(checker *k, double now)
{
    begin_event(k, now);
}

void checker_report(checker *k, double now, int gpu, const gpu_report *p)
{
    begin_event(k, now);
    bool possible = p->n_seen >= k->gpu[gpu].n_seen && p->n_seen <= k->gpu[gpu].n_sent;
    if (!possible && !k->violation.len)
        buf_printf(&k->violation, "GPU %d has seen more commands than it was sent, or fewer than before", gpu);
    k->in_report = true;
    k->gpu[gpu].n_seen = p->n_seen;
    k->gpu[gpu].pages_free = p->pages_free;
    for (int i = 0; i < p->n_ends; i++) {
        tracked_request *r = find_tracked(k, p->ends[i].id);
        if (r && r->there && r->gpu == gpu && r->attempt == p->ends[i].attempt) {
            r->gpu = -1;
            r->failed = p->ends[i].why == END_FAILED;
        }
    }
}

static void check_place(checker *k, const tracked_request *r, const command *c)
{
    const tracked_gpu *g = &k->gpu[c->gpu];
    int n = n_running(k, c->gpu);
    if (!is_open(k, c->gpu))
        violate(k, "placed on a GPU that is gone, drains or is slow", c->id);
    if (n >= g->info.max_batch)
        violate(k, "placed beyond the batch limit", c->id);
    if (pages_for(g, r->n_tokens + 1) + n > pages_left(k, c->gpu))
        violate(k, "placed without pages for it and one for each that runs", c->id);
    if (r->confined && n > 0)
        violate(k, "placed among others, though it must be alone", c->id);
    for (size_t i = 0; i < k->n_requests; i++) {
        const tracked_request *o = &k->request[i];
        if (!o->there || o->gpu != c->gpu)
            continue;
        if (o->confined)
            violate(k, "placed beside one that must be alone", c->id);
        if (r->suspect && o->suspect)
            violate(k, "two suspects on one GPU", c->id);
    }
}

/* Returns whether there are open GPUs, but none could hold the request. */
static bool is_too_large(const checker *k, const tracked_request *r)
{
    bool any = false;
    for (int i = 0; i < MOST_GPUS; i++) {
        const tracked_gpu *g = &k->gpu[i];
        if (!is_open(k, i))
            continue;
        any = true;
        if (r->n_tokens + 1 <= g->info.max_tokens)
            return false;
    }
    return any;
}

/* Returns how much a tenant's lead over another that waits may grow after a newcomer was taken on because the tenant
 * did not lead: by that one's prompt, and by all output of those taken on (the paper's U, for this tenant, by its
 * weight). */
static double most_lead(const tracked_tenant *t)
{
    return (t->longest_prompt + 2 * (t->most_promised + t->promised_again)) / t->weight;
}

/* Checks the paper's bound on the lead between two tenants that wait, since both do. */
static void check_bound(checker *k, int a, int b)
{
    double lead = k->tenant[a].service - k->tenant[b].service - k->pair[a][b].began;
    if (fabs(lead) > most_lead(&k->tenant[a]) + most_lead(&k->tenant[b]) + ROUNDING && !k->violation.len)
        buf_printf(&k->violation, "of two tenants that wait one was given %.0f tokens more by weight than the other",
                   fabs(lead));
}

/* Finds out which tenants wait now, and checks the bound of each pair that does. */
static void look_at_tenants(checker *k)
{
    double promised[MOST_TRACKED_TENANTS] = {0};
    if (k->n_tenants < 2)
        return;
    for (int i = 0; i < k->n_tenants; i++)
        k->tenant[i].waits = false;
    for (size_t i = 0; i < k->n_requests; i++) {
        const tracked_request *r = &k->request[i];
        promised[r->tenant] += r->there && r->taken_on ? r->max_tokens : 0;
        k->tenant[r->tenant].waits |= waits(r) && !r->taken_on && !is_too_large(k, r);
    }
    for (int a = 0; a < k->n_tenants; a++) {
        k->tenant[a].most_promised = fmax(k->tenant[a].most_promised, promised[a]);
        for (int b = 0; b < a; b++) {
            backlogged_pair *v = &k->pair[a][b];
            bool both = k->tenant[a].waits && k->tenant[b].waits;
            if (both && !v->on)
                *v = (backlogged_pair){true, k->tenant[a].service - k->tenant[b].service, -HUGE_VAL, HUGE_VAL};
            v->on = both;
            if (both)
                check_bound(k, a, b);
        }
    }
}

/* Checks, when a newcomer is taken on, that its tenant had no more service than any other that waits. What each had
 * before both waited is not known, but is a constant: if a was once next with some lead over b, b is never next while
 * a's lead is smaller. */
static void check_share(checker *k, const tracked_request *r)
{
    look_at_tenants(k);
    for (int a = 0; a < k->n_tenants; a++)
        for (int b = 0; b < a; b++) {
            backlogged_pair *v = &k->pair[a][b];
            double lead = k->tenant[a].service - k->tenant[b].service - v->began;
            if (!v->on)
                continue;
            if (a == r->tenant)
                v->most_at_a = fmax(v->most_at_a, lead);
            if (b == r->tenant)
                v->least_at_b = fmin(v->least_at_b, lead);
            if (v->most_at_a > v->least_at_b + ROUNDING)
                violate(k, "taken on, though another tenant that waits had less", r->id);
        }
}

/* Checks that a request placed is the first of its line: of those that have been on a GPU, or, when none of these
 * waits, of its tenant's newcomers. Suspects and confined requests have lines of their own; too large ones wait aside.
 */
static void check_turn(checker *k, const tracked_request *r)
{
    for (size_t i = 0; i < k->n_requests; i++) {
        const tracked_request *o = &k->request[i];
        if (o == r || !waits(o) || o->suspect != r->suspect || o->confined != r->confined || is_too_large(k, o))
            continue;
        bool in_one_line = o->taken_on == r->taken_on && (r->taken_on || o->tenant == r->tenant);
        if ((o->taken_on && !r->taken_on) || (in_one_line && is_before(o, r)))
            violate(k, "placed before one that came earlier", r->id);
    }
}

/* Gives a newcomer on its first GPU its turn, which must be later than all before; it is ordered by that from now on.
 */
static void set_turn(checker *k, tracked_request *r, const submission *s)
{
    if (s->arrival < k->now || s->arrival <= k->last_turn)
        violate(k, "given a turn of the past", r->id);
    k->last_turn = r->arrival = s->arrival;
    r->priority = 0;
    r->taken_on = true;
    tracked_tenant *t = &k->tenant[r->tenant];
    t->service += r->n_prompt / t->weight;
    t->longest_prompt = fmax(t->longest_prompt, r->n_prompt);
}

static bool is_newest(const checker *k, int gpu, const tracked_request *r)
{
    for (size_t i = 0; i < k->n_requests; i++)
        if (&k->request[i] != r && k->request[i].there && k->request[i].gpu == gpu && is_before(r, &k->request[i]))
            return false;
    return true;
}

static void check_add(checker *k, const command *c)
{
    tracked_request *r = at(k, c);
    const submission *s = c->what;
    bool moves = k->leaving == c->id;
    if (!r->there || r->gpu >= 0)
        violate(k, r->there ? "placed twice" : "placed, but it is not there", c->id);
    if (s->n_tokens != r->n_tokens || s->n_scored != r->n_scored || s->n_to_score != r->n_to_score ||
        s->n_prompt != r->n_prompt || s->max_tokens != r->max_tokens || (r->taken_on && s->arrival != r->arrival))
        violate(k, "placed with other tokens, budget or turn than it has", c->id);
    if (c->attempt <= k->last_attempt)
        violate(k, "an attempt's number was used before", c->id);
    if (r->must_end)
        violate(k, "placed again, though it kills workers", c->id);
    if (!moves)
        check_turn(k, r);
    check_place(k, r, c);
    if (!r->taken_on) {
        check_share(k, r);
        set_turn(k, r, s);
    }
    k->last_attempt = c->attempt;
    r->gpu = c->gpu;
    r->attempt = c->attempt;
    r->add = ++k->gpu[c->gpu].n_sent;
    r->pages = pages_for(&k->gpu[c->gpu], r->n_tokens + 1);
    look_at_tenants(k);
}

static void check_cancel(checker *k, const command *c)
{
    tracked_request *r = at(k, c);
    if (r->gpu != c->gpu || r->attempt != c->attempt)
        violate(k, "cancelled where it is not", c->id);
    if (!k->gpu[c->gpu].up)
        violate(k, "cancelled on a GPU that is gone", c->id);
    k->put_back_early = r->there && k->in_report && is_open(k, c->gpu) && !is_newest(k, c->gpu, r);
    k->gpu[c->gpu].n_sent++;
    r->gpu = -1;
}

static void check_tokens(checker *k, const command *c)
{
    tracked_request *r = at(k, c);
    if (!r->there || r->frontend != c->frontend)
        violate(k, "tokens of a request that is not there", c->id);
    else if (c->tokens->index != r->n_scored + r->n_tokens - r->n_prompt)
        violate(k, "tokens repeated or left out", c->id);
    int left = r->n_to_score - r->n_scored, scored = c->tokens->n < left ? c->tokens->n : left;
    r->n_scored += scored;
    r->n_tokens += c->tokens->n - scored;
    k->tenant[r->tenant].service += 2.0 * (c->tokens->n - scored) / k->tenant[r->tenant].weight;
    r->n_alone = r->n_killed_alone = r->n_lost = 0;
    if (r->n_crashed < 16 && r->n_killed < 64)
        r->suspect = r->confined = false;
}

/* Returns whether a request of the same prompt, adapter and version of it was ended for killing workers. */
static bool is_known(const checker *k, const tracked_request *r)
{
    for (size_t i = 0; i < k->n_requests; i++)
        if (k->request[i].killed && k->request[i].mark == r->mark)
            return true;
    return false;
}

/* Returns whether it has waited long enough to be too late: for a GPU with room, or for any open GPU. */
static bool has_waited(const checker *k, double seconds)
{
    bool any = false;
    for (int i = 0; i < MOST_GPUS; i++)
        any |= is_open(k, i);
    return (k->opt.max_wait > 0 && seconds >= k->opt.max_wait) ||
           (!any && k->opt.max_no_gpu > 0 && seconds >= k->opt.max_no_gpu);
}

static bool may_be_too_large(const checker *k, double now, const tracked_request *r)
{
    bool is_hopeless = !r->taken_on && r->n_tokens + 1 > k->capacity;
    return is_too_large(k, r) && (is_hopeless || now - r->held >= k->opt.max_aside);
}

static void check_end(checker *k, const command *c)
{
    double now = k->now;
    tracked_request *r = at(k, c);
    if (r->doubled) {
        r->there = r->doubled = false;
        return;
    }
    if (!r->there || r->frontend != c->frontend)
        violate(k, "the end of a request that is not there", c->id);
    if ((c->why == END_KILLS_WORKERS) != r->must_end && !(c->why == END_KILLS_WORKERS && is_known(k, r)))
        violate(k, r->must_end ? "not ended, though it kills workers" : "ended for killing workers, which it did not",
                c->id);
    r->killed |= c->why == END_KILLS_WORKERS;
    if (c->why == END_FAILED && !r->failed)
        violate(k, "ended as failed, which it did not", c->id);
    if (c->why == END_TOO_LATE && (r->taken_on || !has_waited(k, now - r->since)))
        violate(k, "ended as too late, which it was not", c->id);
    if (c->why == END_QUEUE_FULL && (r->taken_on || n_waiting(k) <= k->opt.max_queue))
        violate(k, "refused, though the queue had room or it was taken on before", c->id);
    if (c->why == END_TOO_LARGE && !may_be_too_large(k, now, r))
        violate(k, "ended as too large, which it was not, or not for long", c->id);
    if (r->gpu >= 0)
        violate(k, "ended, but a GPU still has it", c->id);
    r->there = false;
}

/* Checks, after a cancel, that the request was its GPU's newest, or moves to another GPU at once. */
static void check_put_back(checker *k, bool moves)
{
    if (k->put_back_early && !moves)
        violate(k, "moved off a GPU that has newer ones", k->leaving);
    k->put_back_early = false;
}

void checker_command(checker *k, const command *c)
{
    check_put_back(k, c->kind == COMMAND_ADD && c->id == k->leaving);
    switch (c->kind) {
    case COMMAND_ADD: check_add(k, c); break;
    case COMMAND_CANCEL: check_cancel(k, c); break;
    case COMMAND_TOKENS: check_tokens(k, c); break;
    case COMMAND_END: check_end(k, c); break;
    }
    k->leaving = c->kind == COMMAND_CANCEL ? c->id : UINT64_MAX;
}

/* Checks that a GPU which is idle, and has reported all its pages free, could not hold the next request. `first` is
 * next; if it is a newcomer, a newcomer of any other tenant may be next in its place. */
static void check_idle(checker *k, int gpu, const tracked_request *first)
{
    const tracked_gpu *g = &k->gpu[gpu];
    bool idle = is_open(k, gpu) && n_running(k, gpu) == 0 && g->n_seen == g->n_sent && g->pages_free == g->info.n_pages;
    bool fits = idle && pages_for(g, first->n_tokens + 1) <= g->info.n_pages;
    for (size_t i = 0; i < k->n_requests && fits && !first->taken_on; i++)
        if (waits(&k->request[i]) && !is_too_large(k, &k->request[i]))
            fits = pages_for(g, k->request[i].n_tokens + 1) <= g->info.n_pages;
    if (fits)
        violate(k, "waits while a GPU is idle", first->id);
}

/* Returns whether a comes before b, as far as can be told: confined requests, then those that have been on a GPU,
 * then newcomers. */
static bool is_next(const tracked_request *a, const tracked_request *b)
{
    if (a->confined != b->confined || a->taken_on != b->taken_on)
        return a->confined != b->confined ? a->confined : a->taken_on;
    return is_before(a, b);
}

bool checker_has_news(const checker *k)
{
    return k->unsettled;
}

void checker_settle(checker *k)
{
    const tracked_request *first = NULL;
    for (size_t i = 0; i < k->n_requests; i++) {
        tracked_request *r = &k->request[i];
        bool too_large = waits(r) && is_too_large(k, r);
        if (!too_large)
            r->held = k->now;
        if (!r->there && r->gpu >= 0 && k->gpu[r->gpu].up && r->attempt)
            violate(k, "cancelled, but its GPU was not told", r->id);
        if (r->there && r->must_end)
            violate(k, "not ended, though it kills workers", r->id);
        if (waits(r) && !too_large && (!first || is_next(r, first)))
            first = r;
    }
    check_put_back(k, false);
    look_at_tenants(k);
    for (int g = 0; g < MOST_GPUS && first; g++)
        check_idle(k, g, first);
    k->leaving = UINT64_MAX;
    k->in_report = false;
    k->unsettled = false;
}
