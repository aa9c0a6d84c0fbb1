/* allowed_errors.c - see allowed_errors.h */
#include "sim/allowed_errors.h"

#include <string.h>

static bool is_code(const client *q, const char *code)
{
    return strcmp(q->error, code) == 0;
}

/* Returns whether the frontend had been without a scheduler for as long as its patience. */
static bool was_given_up(const cluster *c, const client *q)
{
    const spans *s = &c->front[q->frontend].outages;
    for (int i = 0; i < s->n; i++)
        if (s->at[i].from + c->patience <= q->ended_at && q->ended_at <= s->at[i].to)
            return true;
    return false;
}

static bool has_waited(const cluster *c, const client *q)
{
    double seconds = q->ended_at - q->asked_at;
    return (c->policy.max_wait > 0 && seconds >= c->policy.max_wait) ||
           (c->policy.max_no_gpu > 0 && seconds >= c->policy.max_no_gpu);
}

/* Returns whether the adapter that a client asked for could not be read meanwhile, or was replaced or poisoned. */
static bool may_fail(const cluster *c, const client *q)
{
    return c->poisoned[q->request.adapter] || (c->replaced[q->request.adapter] && !q->comes_late) ||
           spans_touch(&c->bad_files[q->request.adapter], q->asked_at, q->ended_at);
}

/* Returns whether the request may count as too large: no GPU can hold all of it, or the one that could had not come up
 * yet, or was gone for max_aside. */
static bool is_too_large(const cluster *c, const client *q, bool has_text)
{
    return q->request.n_prompt + q->request.max_tokens >= cluster_capacity(c) ||
           (c->n_machines > 1 && (!has_text || c->policy.max_aside < 60));
}

bool short_output_is_allowed(const cluster *c, const client *q)
{
    return is_too_large(c, q, true);
}

/* Returns whether faults ended so many workers that a request may have been blamed for it. (That it was alone on them,
 * checker.c checks.) */
static bool may_seem_a_killer(const cluster *c)
{
    int n_killed = 0;
    for (int i = 0; i < c->n_machines; i++)
        n_killed += c->runner[i].machine.n_killed;
    return c->n_crashes >= 3 || n_killed >= 16;
}

bool error_is_allowed(const cluster *c, const client *q)
{
    bool has_text = q->request.n_choices == 1 && q->text[0].len; /* with two choices, one may have begun */
    if (is_code(q, "queue_full"))
        return (c->policy.max_queue < 1000 || c->max_live < 1000) && !has_text;
    if (is_code(q, "rate_limit_exceeded"))
        return q->request.tenant >= 0 && c->tenant[q->request.tenant].in_flight && !has_text;
    if (is_code(q, "too_late"))
        return (has_waited(c, q) && !has_text) || was_given_up(c, q);
    if (is_code(q, "no_scheduler"))
        return was_given_up(c, q) && !has_text;
    if (is_code(q, "context_length_exceeded"))
        return !has_text && is_too_large(c, q, false);
    if (is_code(q, "generation_failed"))
        return q->request.adapter >= 0 && may_fail(c, q);
    if (is_code(q, "worker_died"))
        return !q->comes_late && (q->request.is_killer || may_seem_a_killer(c));
    return false;
}
