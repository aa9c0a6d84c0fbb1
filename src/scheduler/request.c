/* request.c - see request.h */
#include "scheduler/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void append(request *r, const int *token, int n)
{
    size_t have = (size_t)r->what.n_tokens;
    int *all = xgrow((int *)r->what.token, &r->token_cap, have + (size_t)n, sizeof *all);
    memcpy(all + have, token, (size_t)n * sizeof *all);
    r->what.token = all;
    r->what.n_tokens += n;
}

request *request_new(slab *memory, const submission *what, tenant *t, int frontend, double now)
{
    request *r = slab_take(memory);
    bool taken_on = what->again || what->n_tokens > what->n_prompt || what->n_scored > 0;
    *r = (request){.order = {what->arrival, what->id, 0, taken_on ? 0 : what->priority}, .tenant = t, .what = *what, .frontend = frontend,
                   .since = now, .placed_again = -HUGE_VAL, .taken_on = taken_on};
    r->what.tenant = NULL;
    r->what.adapter = what->adapter ? xstrdup(what->adapter) : NULL;
    r->what.digest = what->digest_bytes ? memcpy(xmalloc(what->digest_bytes), what->digest, what->digest_bytes) : NULL;
    r->what.how = what->how_bytes ? memcpy(xmalloc(what->how_bytes), what->how, what->how_bytes) : NULL;
    r->what.token = NULL;
    r->what.n_tokens = 0;
    append(r, what->token, what->n_tokens);
    return r;
}

void request_free(slab *memory, request *r)
{
    free((char *)r->what.adapter);
    free((int *)r->what.token);
    free((void *)r->what.digest);
    free((void *)r->what.how);
    slab_give(memory, r);
}

int request_take(request *r, const int *token, int n)
{
    int left = r->what.n_to_score - r->what.n_scored, scored = n < left ? n : left;
    r->what.n_scored += scored;
    append(r, token + scored, n - scored);
    return n - scored;
}
