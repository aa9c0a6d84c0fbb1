/* excuses.c - see excuses.h */
#include "sim/excuses.h"

#include <string.h>

static bool is_code(const client *q, const char *code)
{
    return strcmp(q->error, code) == 0;
}

/* The frontend had been without a scheduler for as long as it is patient. */
static bool was_given_up(const cluster *c, const client *q)
{
    const front_member *f = &c->front[q->frontend];
    for (int i = 0; i < f->n_outages; i++)
        if (f->outage[i].from + c->patience <= q->ended_at && q->ended_at <= f->outage[i].to)
            return true;
    return false;
}

static bool has_waited(const cluster *c, const client *q)
{
    return c->policy.max_wait > 0 && q->ended_at - q->asked_at >= c->policy.max_wait;
}

bool excuse_is_good(const cluster *c, const client *q)
{
    bool has_text = q->wish.n_choices == 1 && q->text[0].len;   /* of two, one may have begun */
    int most = q->wish.n_prompt + q->wish.max_tokens;
    if (is_code(q, "queue_full"))
        return (c->policy.max_queue < 1000 || c->max_live < 1000) && !has_text;
    if (is_code(q, "too_late"))
        return (has_waited(c, q) && !has_text) || was_given_up(c, q);
    if (is_code(q, "no_scheduler"))
        return was_given_up(c, q) && !has_text;
    if (is_code(q, "context_length_exceeded"))          /* or the largest GPU had not been met yet, or not for some time */
        return most >= cluster_capacity(c) || (c->n_machines > 1 && (!has_text || c->policy.max_aside < 60));
    if (is_code(q, "generation_failed"))
        return c->adapters_failed && q->wish.adapter >= 0 && !q->comes_late;
    if (is_code(q, "worker_died"))
        return !q->comes_late;          /* the watch has seen to that */
    return false;
}
