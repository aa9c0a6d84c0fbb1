/* watch.c - see watch.h. Linear scans over few requests: plain, and unlike the scheduler's code. */
#include "sim/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { MOST_WATCHED_TENANTS = 8 };
static const double ROUNDING = 0.25; /* tokens: the scheduler's counters are whole numbers */

typedef struct {
    uint64_t id;
    bool there; /* submitted, and neither ended nor cancelled */
    int frontend;
    double arrival, since; /* arrival: its turn, from its first GPU on */
    int tenant;            /* index in watch.tenant */
    int priority;          /* 0 once it has been on a GPU */
    int n_tokens, n_prompt, max_tokens, n_to_score, n_scored;
    uint64_t mark; /* hash of the prompt, the adapter and its version */
    bool taken_on; /* placed before, or submitted again */
    double held;   /* when it was last on a GPU, one was open that could hold it, or none was open at all */
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
} watched;

/* A tenant. service: prompt tokens taken on and twice its output tokens, divided by its weight. */
typedef struct {
    uint64_t name; /* hash */
    double weight, service;
    bool waits;                           /* it has a newcomer that could be taken on if there were room */
    double longest_prompt, most_promised; /* tokens; most_promised: of output, by max_tokens of all there at once */
    double promised_again;                /* the same of those submitted again, which another scheduler took on */
} watched_tenant;

/* Two tenants, a and b, that both wait. began: a's lead in service when both first waited. most_at_a, least_at_b: the
 * largest and the smallest lead of a since then, when a newcomer of a, or of b, was taken on. */
typedef struct {
    bool on;
    double began, most_at_a, least_at_b;
} rivalry;

typedef struct {
    bool up, draining, slow;
    gpu_info info;
    int pages_free;
    uint64_t n_sent, n_seen;
} watched_gpu;

struct watch {
    scheduler_options opt;
    watched *request; /* [n_requests] all that ever came */
    size_t n_requests, requests_cap;
    watched_gpu gpu[MOST_GPUS];
    watched_tenant tenant[MOST_WATCHED_TENANTS];
    int n_tenants;
    rivalry rival[MOST_WATCHED_TENANTS][MOST_WATCHED_TENANTS]; /* [a][b], b < a */
    int capacity;                                              /* of the largest GPU so far */
    uint32_t last_attempt;
    double last_turn;    /* the last turn that a request got */
    uint64_t leaving;    /* id of the last command, when that was a cancel */
    bool put_back_early; /* that command took one off that was not its GPU's newest, in a report */
    bool in_report;      /* the event is a report */
    bool unsettled;      /* there was an event since watch_settle() */
    double now;          /* of the event */
    buf violation;
};

watch *watch_new(const scheduler_options *o)
{
    watch *w = XNEW(watch);
    *w = (watch){.opt = *o, .leaving = UINT64_MAX};
    return w;
}

void watch_free(watch *w)
{
    if (!w)
        return;
    free(w->request);
    buf_free(&w->violation);
    free(w);
}

static void violate(watch *w, const char *what, uint64_t id)
{
    if (!w->violation.len)
        buf_printf(&w->violation, "%s (request %llu)", what, (unsigned long long)id);
}

static watched *find_watched(const watch *w, uint64_t id)
{
    for (size_t i = 0; i < w->n_requests; i++)
        if (w->request[i].id == id)
            return &w->request[i];
    return NULL;
}

/* Returns the request that a command is about; if there is none, a violation, and a dummy. */
static watched *at(watch *w, const command *c)
{
    static watched nobody;
    watched *r = find_watched(w, c->id);
    if (r)
        return r;
    violate(w, "a command about a request that never came", c->id);
    nobody = (watched){.id = c->id, .gpu = -1};
    return &nobody;
}

static void begin_event(watch *w, double now)
{
    w->unsettled = true;
    w->now = now;
}

const char *watch_violation(const watch *w)
{
    return w->violation.len ? w->violation.data : NULL;
}

static bool waits(const watched *r)
{
    return r->there && r->gpu < 0;
}

/* Order among requests that have been on a GPU, or among one tenant's newcomers. */
static bool is_before(const watched *a, const watched *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a->id < b->id;
}

/* Returns whether a GPU takes requests: a slow one does only while no other does. */
static bool is_open(const watch *w, int gpu)
{
    bool others = false;
    for (int i = 0; i < MOST_GPUS; i++)
        others |= w->gpu[i].up && !w->gpu[i].draining && !w->gpu[i].slow;
    return w->gpu[gpu].up && !w->gpu[gpu].draining && !(w->gpu[gpu].slow && others);
}

static int n_running(const watch *w, int gpu)
{
    int n = 0;
    for (size_t i = 0; i < w->n_requests; i++)
        n += w->request[i].there && w->request[i].gpu == gpu;
    return n;
}

static int n_waiting(const watch *w)
{
    int n = 0;
    for (size_t i = 0; i < w->n_requests; i++)
        n += waits(&w->request[i]);
    return n;
}

static int pages_for(const watched_gpu *g, int n_tokens)
{
    return (n_tokens + g->info.page_len - 1) / g->info.page_len;
}

/* Returns the pages that a GPU reported, less those of adds it has not seen. */
static int pages_left(const watch *w, int gpu)
{
    int n = w->gpu[gpu].pages_free;
    for (size_t i = 0; i < w->n_requests; i++) {
        const watched *r = &w->request[i];
        if (r->there && r->gpu == gpu && r->add > w->gpu[gpu].n_seen)
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
static int tenant_of(watch *w, const submission *s)
{
    uint64_t name = hash_of(s->tenant);
    int i = 0;
    while (i < w->n_tenants && w->tenant[i].name != name)
        i++;
    if (i == w->n_tenants) {
        CHECK(w->n_tenants++ < MOST_WATCHED_TENANTS);
        w->tenant[i] = (watched_tenant){.name = name};
    }
    w->tenant[i].weight = s->weight ? s->weight : 1;
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

void watch_submit(watch *w, double now, int frontend, const submission *s)
{
    begin_event(w, now);
    watched *r = find_watched(w, s->id);
    bool killed = r && r->killed;
    if (!r) {
        w->request = xgrow(w->request, &w->requests_cap, w->n_requests + 1, sizeof *w->request);
        r = &w->request[w->n_requests++];
    } else if (r->there) {
        r->doubled = true; /* the frontend's error: the scheduler ends both */
        return;
    }
    bool taken_on = s->again || s->n_tokens > s->n_prompt || s->n_scored;
    *r = (watched){.id = s->id,
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
                   .tenant = tenant_of(w, s),
                   .priority = taken_on ? 0 : s->priority,
                   .mark = mark_of(s),
                   .taken_on = taken_on,
                   .held = now};
    if (taken_on)
        w->tenant[r->tenant].promised_again += s->max_tokens;
}

/* Notes that a request is gone: the scheduler must cancel it if it runs, and say nothing more of it. */
static void forget(watched *r)
{
    r->there = false;
}

void watch_cancel(watch *w, double now, int frontend, uint64_t id)
{
    begin_event(w, now);
    watched *r = find_watched(w, id);
    if (r && r->there && r->frontend == frontend)
        forget(r);
}

void watch_frontend_gone(watch *w, double now, int frontend)
{
    begin_event(w, now);
    for (size_t i = 0; i < w->n_requests; i++)
        if (w->request[i].frontend == frontend)
            forget(&w->request[i]);
}

void watch_gpu_up(watch *w, double now, int gpu, const gpu_info *info)
{
    begin_event(w, now);
    CHECK(gpu < MOST_GPUS);
    watched_gpu *g = &w->gpu[gpu];
    *g = (watched_gpu){.up = true, .info = *info, .pages_free = info->n_pages, .slow = info->on_probation};
    if (g->info.max_tokens > info->n_pages * info->page_len)
        g->info.max_tokens = info->n_pages * info->page_len;
    if (g->info.max_tokens > w->capacity)
        w->capacity = g->info.max_tokens;
}

static void blame(watched *r, gpu_loss how, bool alone)
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

static void lose_gpu(watch *w, int gpu, gpu_loss how)
{
    bool one = n_running(w, gpu) == 1;
    for (size_t i = 0; i < w->n_requests; i++) {
        watched *r = &w->request[i];
        if (!r->there || r->gpu != gpu)
            continue;
        if ((how == LOSS_LINK) == (r->add > w->gpu[gpu].n_seen))
            blame(r, how, one && r->add == w->gpu[gpu].n_sent);
        r->gpu = -1;
    }
    w->gpu[gpu].up = false;
}

void watch_gpus_gone(watch *w, double now, const int *gpu, int n, gpu_loss how)
{
    begin_event(w, now);
    for (int i = 0; i < n; i++)
        lose_gpu(w, gpu[i], how);
}

void watch_gpus_drain(watch *w, double now, const int *gpu, int n)
{
    begin_event(w, now);
    for (int i = 0; i < n; i++)
        w->gpu[gpu[i]].draining = true;
}

void watch_gpu_pace(watch *w, double now, int gpu, bool slow)
{
    begin_event(w, now);
    w->gpu[gpu].slow = slow;
}

void watch_tick(watch *w, double now)
{
    begin_event(w, now);
}

void watch_report(watch *w, double now, int gpu, const gpu_report *p)
{
    begin_event(w, now);
    bool possible = p->n_seen >= w->gpu[gpu].n_seen && p->n_seen <= w->gpu[gpu].n_sent;
    if (!possible && !w->violation.len)
        buf_printf(&w->violation, "GPU %d has seen more commands than it was sent, or fewer than before", gpu);
    w->in_report = true;
    w->gpu[gpu].n_seen = p->n_seen;
    w->gpu[gpu].pages_free = p->pages_free;
    for (int i = 0; i < p->n_ends; i++) {
        watched *r = find_watched(w, p->ends[i].id);
        if (r && r->there && r->gpu == gpu && r->attempt == p->ends[i].attempt) {
            r->gpu = -1;
            r->failed = p->ends[i].why == END_FAILED;
        }
    }
}

static void check_place(watch *w, const watched *r, const command *c)
{
    const watched_gpu *g = &w->gpu[c->gpu];
    int n = n_running(w, c->gpu);
    if (!is_open(w, c->gpu))
        violate(w, "placed on a GPU that is gone, drains or is slow", c->id);
    if (n >= g->info.max_batch)
        violate(w, "placed beyond the batch limit", c->id);
    if (pages_for(g, r->n_tokens + 1) + n > pages_left(w, c->gpu))
        violate(w, "placed without pages for it and one for each that runs", c->id);
    if (r->confined && n > 0)
        violate(w, "placed among others, though it must be alone", c->id);
    for (size_t i = 0; i < w->n_requests; i++) {
        const watched *o = &w->request[i];
        if (!o->there || o->gpu != c->gpu)
            continue;
        if (o->confined)
            violate(w, "placed beside one that must be alone", c->id);
        if (r->suspect && o->suspect)
            violate(w, "two suspects on one GPU", c->id);
    }
}

/* Returns whether there are open GPUs, but none could hold the request. */
static bool is_too_large(const watch *w, const watched *r)
{
    bool any = false;
    for (int i = 0; i < MOST_GPUS; i++) {
        const watched_gpu *g = &w->gpu[i];
        if (!is_open(w, i))
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
static double most_lead(const watched_tenant *t)
{
    return (t->longest_prompt + 2 * (t->most_promised + t->promised_again)) / t->weight;
}

/* Checks the paper's bound on the lead between two tenants that wait, since both do. */
static void check_bound(watch *w, int a, int b)
{
    double lead = w->tenant[a].service - w->tenant[b].service - w->rival[a][b].began;
    if (fabs(lead) > most_lead(&w->tenant[a]) + most_lead(&w->tenant[b]) + ROUNDING && !w->violation.len)
        buf_printf(&w->violation, "of two tenants that wait one was given %.0f tokens more by weight than the other",
                   fabs(lead));
}

/* Finds out which tenants wait now, begins and ends rivalries, and checks their bounds. */
static void look_at_tenants(watch *w)
{
    double promised[MOST_WATCHED_TENANTS] = {0};
    if (w->n_tenants < 2)
        return;
    for (int i = 0; i < w->n_tenants; i++)
        w->tenant[i].waits = false;
    for (size_t i = 0; i < w->n_requests; i++) {
        const watched *r = &w->request[i];
        promised[r->tenant] += r->there && r->taken_on ? r->max_tokens : 0;
        w->tenant[r->tenant].waits |= waits(r) && !r->taken_on && !is_too_large(w, r);
    }
    for (int a = 0; a < w->n_tenants; a++) {
        w->tenant[a].most_promised = fmax(w->tenant[a].most_promised, promised[a]);
        for (int b = 0; b < a; b++) {
            rivalry *v = &w->rival[a][b];
            bool both = w->tenant[a].waits && w->tenant[b].waits;
            if (both && !v->on)
                *v = (rivalry){true, w->tenant[a].service - w->tenant[b].service, -HUGE_VAL, HUGE_VAL};
            v->on = both;
            if (both)
                check_bound(w, a, b);
        }
    }
}

/* Checks, when a newcomer is taken on, that its tenant had no more service than any other that waits. What each had
 * before both waited is not known, but is a constant: if a was once next with some lead over b, b is never next while
 * a's lead is smaller. */
static void check_share(watch *w, const watched *r)
{
    look_at_tenants(w);
    for (int a = 0; a < w->n_tenants; a++)
        for (int b = 0; b < a; b++) {
            rivalry *v = &w->rival[a][b];
            double lead = w->tenant[a].service - w->tenant[b].service - v->began;
            if (!v->on)
                continue;
            if (a == r->tenant)
                v->most_at_a = fmax(v->most_at_a, lead);
            if (b == r->tenant)
                v->least_at_b = fmin(v->least_at_b, lead);
            if (v->most_at_a > v->least_at_b + ROUNDING)
                violate(w, "taken on, though another tenant that waits had less", r->id);
        }
}

/* Checks that a request placed is the first of its line: of those that have been on a GPU, or, when none of these
 * waits, of its tenant's newcomers. Suspects and confined requests have lines of their own; too large ones wait aside.
 */
static void check_turn(watch *w, const watched *r)
{
    for (size_t i = 0; i < w->n_requests; i++) {
        const watched *o = &w->request[i];
        if (o == r || !waits(o) || o->suspect != r->suspect || o->confined != r->confined || is_too_large(w, o))
            continue;
        bool in_one_line = o->taken_on == r->taken_on && (r->taken_on || o->tenant == r->tenant);
        if ((o->taken_on && !r->taken_on) || (in_one_line && is_before(o, r)))
            violate(w, "placed before one that came earlier", r->id);
    }
}

/* Gives a newcomer on its first GPU its turn, which must be later than all before; it is ordered by that from now on.
 */
static void set_turn(watch *w, watched *r, const submission *s)
{
    if (s->arrival < w->now || s->arrival <= w->last_turn)
        violate(w, "given a turn of the past", r->id);
    w->last_turn = r->arrival = s->arrival;
    r->priority = 0;
    r->taken_on = true;
    watched_tenant *t = &w->tenant[r->tenant];
    t->service += r->n_prompt / t->weight;
    t->longest_prompt = fmax(t->longest_prompt, r->n_prompt);
}

static bool is_newest(const watch *w, int gpu, const watched *r)
{
    for (size_t i = 0; i < w->n_requests; i++)
        if (&w->request[i] != r && w->request[i].there && w->request[i].gpu == gpu && is_before(r, &w->request[i]))
            return false;
    return true;
}

static void check_add(watch *w, const command *c)
{
    watched *r = at(w, c);
    const submission *s = c->what;
    bool moves = w->leaving == c->id;
    if (!r->there || r->gpu >= 0)
        violate(w, r->there ? "placed twice" : "placed, but it is not there", c->id);
    if (s->n_tokens != r->n_tokens || s->n_scored != r->n_scored || s->n_to_score != r->n_to_score ||
        s->n_prompt != r->n_prompt || s->max_tokens != r->max_tokens || (r->taken_on && s->arrival != r->arrival))
        violate(w, "placed with other tokens, budget or turn than it has", c->id);
    if (c->attempt <= w->last_attempt)
        violate(w, "an attempt's number was used before", c->id);
    if (r->must_end)
        violate(w, "placed again, though it kills workers", c->id);
    if (!moves)
        check_turn(w, r);
    check_place(w, r, c);
    if (!r->taken_on) {
        check_share(w, r);
        set_turn(w, r, s);
    }
    w->last_attempt = c->attempt;
    r->gpu = c->gpu;
    r->attempt = c->attempt;
    r->add = ++w->gpu[c->gpu].n_sent;
    r->pages = pages_for(&w->gpu[c->gpu], r->n_tokens + 1);
    look_at_tenants(w);
}

static void check_cancel(watch *w, const command *c)
{
    watched *r = at(w, c);
    if (r->gpu != c->gpu || r->attempt != c->attempt)
        violate(w, "cancelled where it is not", c->id);
    if (!w->gpu[c->gpu].up)
        violate(w, "cancelled on a GPU that is gone", c->id);
    w->put_back_early = r->there && w->in_report && is_open(w, c->gpu) && !is_newest(w, c->gpu, r);
    w->gpu[c->gpu].n_sent++;
    r->gpu = -1;
}

static void check_tokens(watch *w, const command *c)
{
    watched *r = at(w, c);
    if (!r->there || r->frontend != c->frontend)
        violate(w, "tokens of a request that is not there", c->id);
    else if (c->tokens->index != r->n_scored + r->n_tokens - r->n_prompt)
        violate(w, "tokens repeated or left out", c->id);
    int left = r->n_to_score - r->n_scored, scored = c->tokens->n < left ? c->tokens->n : left;
    r->n_scored += scored;
    r->n_tokens += c->tokens->n - scored;
    w->tenant[r->tenant].service += 2.0 * (c->tokens->n - scored) / w->tenant[r->tenant].weight;
    r->n_alone = r->n_killed_alone = r->n_lost = 0;
    if (r->n_crashed < 16 && r->n_killed < 64)
        r->suspect = r->confined = false;
}

/* Returns whether a request of the same prompt, adapter and version of it was ended for killing workers. */
static bool is_known(const watch *w, const watched *r)
{
    for (size_t i = 0; i < w->n_requests; i++)
        if (w->request[i].killed && w->request[i].mark == r->mark)
            return true;
    return false;
}

/* Returns whether it has waited long enough to be too late: for a GPU with room, or for any open GPU. */
static bool has_waited(const watch *w, double seconds)
{
    bool any = false;
    for (int i = 0; i < MOST_GPUS; i++)
        any |= is_open(w, i);
    return (w->opt.max_wait > 0 && seconds >= w->opt.max_wait) ||
           (!any && w->opt.max_no_gpu > 0 && seconds >= w->opt.max_no_gpu);
}

static bool may_be_too_large(const watch *w, double now, const watched *r)
{
    bool is_hopeless = !r->taken_on && r->n_tokens + 1 > w->capacity;
    return is_too_large(w, r) && (is_hopeless || now - r->held >= w->opt.max_aside);
}

static void check_end(watch *w, const command *c)
{
    double now = w->now;
    watched *r = at(w, c);
    if (r->doubled) {
        r->there = r->doubled = false;
        return;
    }
    if (!r->there || r->frontend != c->frontend)
        violate(w, "the end of a request that is not there", c->id);
    if ((c->why == END_KILLS_WORKERS) != r->must_end && !(c->why == END_KILLS_WORKERS && is_known(w, r)))
        violate(w, r->must_end ? "not ended, though it kills workers" : "ended for killing workers, which it did not",
                c->id);
    r->killed |= c->why == END_KILLS_WORKERS;
    if (c->why == END_FAILED && !r->failed)
        violate(w, "ended as failed, which it did not", c->id);
    if (c->why == END_TOO_LATE && (r->taken_on || !has_waited(w, now - r->since)))
        violate(w, "ended as too late, which it was not", c->id);
    if (c->why == END_QUEUE_FULL && (r->taken_on || n_waiting(w) <= w->opt.max_queue))
        violate(w, "refused, though the queue had room or it was taken on before", c->id);
    if (c->why == END_TOO_LARGE && !may_be_too_large(w, now, r))
        violate(w, "ended as too large, which it was not, or not for long", c->id);
    if (r->gpu >= 0)
        violate(w, "ended, but a GPU still has it", c->id);
    r->there = false;
}

/* Checks, after a cancel, that the request was its GPU's newest, or moves to another GPU at once. */
static void check_put_back(watch *w, bool moves)
{
    if (w->put_back_early && !moves)
        violate(w, "moved off a GPU that has newer ones", w->leaving);
    w->put_back_early = false;
}

void watch_command(watch *w, const command *c)
{
    check_put_back(w, c->kind == COMMAND_ADD && c->id == w->leaving);
    switch (c->kind) {
    case COMMAND_ADD: check_add(w, c); break;
    case COMMAND_CANCEL: check_cancel(w, c); break;
    case COMMAND_TOKENS: check_tokens(w, c); break;
    case COMMAND_END: check_end(w, c); break;
    }
    w->leaving = c->kind == COMMAND_CANCEL ? c->id : UINT64_MAX;
}

/* Checks that a GPU which is idle, and has reported all its pages free, could not hold the next request. `first` is
 * next; if it is a newcomer, that of any other tenant may be. */
static void check_idle(watch *w, int gpu, const watched *first)
{
    const watched_gpu *g = &w->gpu[gpu];
    bool idle = is_open(w, gpu) && n_running(w, gpu) == 0 && g->n_seen == g->n_sent && g->pages_free == g->info.n_pages;
    bool fits = idle && pages_for(g, first->n_tokens + 1) <= g->info.n_pages;
    for (size_t i = 0; i < w->n_requests && fits && !first->taken_on; i++)
        if (waits(&w->request[i]) && !is_too_large(w, &w->request[i]))
            fits = pages_for(g, w->request[i].n_tokens + 1) <= g->info.n_pages;
    if (fits)
        violate(w, "waits while a GPU is idle", first->id);
}

/* Returns whether a comes before b, as far as can be told: confined requests, then those that have been on a GPU,
 * newcomers. */
static bool is_next(const watched *a, const watched *b)
{
    if (a->confined != b->confined || a->taken_on != b->taken_on)
        return a->confined != b->confined ? a->confined : a->taken_on;
    return is_before(a, b);
}

bool watch_has_news(const watch *w)
{
    return w->unsettled;
}

void watch_settle(watch *w)
{
    const watched *first = NULL;
    for (size_t i = 0; i < w->n_requests; i++) {
        watched *r = &w->request[i];
        bool too_large = waits(r) && is_too_large(w, r);
        if (!too_large)
            r->held = w->now;
        if (!r->there && r->gpu >= 0 && w->gpu[r->gpu].up && r->attempt)
            violate(w, "cancelled, but its GPU was not told", r->id);
        if (r->there && r->must_end)
            violate(w, "not ended, though it kills workers", r->id);
        if (waits(r) && !too_large && (!first || is_next(r, first)))
            first = r;
    }
    check_put_back(w, false);
    look_at_tenants(w);
    for (int g = 0; g < MOST_GPUS && first; g++)
        check_idle(w, g, first);
    w->leaving = UINT64_MAX;
    w->in_report = false;
    w->unsettled = false;
}
