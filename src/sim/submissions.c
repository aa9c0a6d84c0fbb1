/* submissions.c - see submissions.h */
#include "sim/submissions.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

void submissions_deinit(submissions *l)
{
    free(l->at);
    *l = (submissions){0};
}

static uint64_t hash(const int *token, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++)
        h = rng_u64(h, (uint64_t)token[i]);
    return h;
}

static uint64_t hash_name(const char *name)
{
    uint64_t h = 0;
    for (; name && *name; name++)
        h = rng_u64(h, (uint64_t)*name);
    return h;
}

static submitted *find_submitted(const submissions *l, uint64_t id)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].id == id)
            return &l->at[i];
    return NULL;
}

static const char *compare(const submissions *l, const submitted *before, const submission *s, double came)
{
    if (!s->again)
        return "submitted again, and said to be new";
    if (fabs(came - before->came) > l->lateness)
        return "submitted again with another arrival";
    if (s->n_prompt != before->n_prompt || s->n_tokens < before->n_tokens ||
        hash(s->token, before->n_tokens) != before->tokens)
        return "submitted again with other tokens";
    if (hash_name(s->tenant) != before->tenant)
        return "submitted again for another tenant";
    return NULL;
}

const char *submissions_add(submissions *l, const submission *s, double came)
{
    submitted *r = find_submitted(l, s->id);
    const char *wrong = r ? compare(l, r, s, came) : NULL;
    if (!r) {
        l->at = xgrow(l->at, &l->cap, l->n + 1, sizeof *l->at);
        r = &l->at[l->n++];
        r->came = came;
    }
    *r = (submitted){s->id, hash(s->token, s->n_tokens), hash_name(s->tenant), r->came, s->n_tokens, s->n_prompt};
    return wrong;
}
