/* request.c - see request.h */
#include "scheduler/request.h"

#include <math.h>
#include <string.h>

static void make_room(request_memory *memory, request *r, size_t n_tokens)
{
    size_t bytes = r->token_cap * sizeof *r->what.token;
    r->what.token = slabs_grow(memory->rest, (int *)r->what.token, &bytes, n_tokens * sizeof *r->what.token);
    r->token_cap = (uint32_t)(bytes / sizeof *r->what.token);
}

static void append(request_memory *memory, request *r, const int *token, int n)
{
    size_t have = (size_t)r->what.n_tokens;
    if (have + (size_t)n > r->token_cap)
        make_room(memory, r, have + (size_t)n);
    memcpy((int *)r->what.token + have, token, (size_t)n * sizeof *token);
    r->what.n_tokens += n;
}

/* Bytes of adapter, digest and sampling, which lie in one block, one behind the other. */
static size_t strings_bytes(const submission *what)
{
    return (what->adapter ? strlen(what->adapter) + 1 : 0) + what->digest_bytes + what->sampling_bytes;
}

static const void *copy_to(char **at, const void *from, size_t n)
{
    if (n == 0)
        return NULL;
    *at += n;
    return memcpy(*at - n, from, n);
}

static void copy_strings(request_memory *memory, submission *what)
{
    size_t bytes = strings_bytes(what);
    char *at = bytes ? slabs_take(memory->rest, bytes) : NULL;
    what->adapter = copy_to(&at, what->adapter, what->adapter ? strlen(what->adapter) + 1 : 0);
    what->digest = copy_to(&at, what->digest, what->digest_bytes);
    what->sampling = copy_to(&at, what->sampling, what->sampling_bytes);
}

static void free_strings(request_memory *memory, const submission *what)
{
    const void *first = what->adapter ? what->adapter : what->digest ? what->digest : what->sampling;
    slabs_give(memory->rest, (void *)first, strings_bytes(what));
}

request *request_new(request_memory *memory, const submission *what, shares_tenant *t, int frontend, double now)
{
    request *r = slab_take(memory->requests);
    bool taken_on = what->again || what->n_tokens > what->n_prompt || what->n_scored > 0;
    *r = (request){.order = {what->arrival, what->id, 0, taken_on ? 0 : what->priority},
                   .tenant = t,
                   .what = *what,
                   .frontend = frontend,
                   .since = now,
                   .placed_again = -HUGE_VAL,
                   .taken_on = taken_on};
    r->what.tenant = NULL;
    copy_strings(memory, &r->what);
    r->what.token = NULL;
    r->what.n_tokens = 0;
    append(memory, r, what->token, what->n_tokens);
    return r;
}

void request_free(request_memory *memory, request *r)
{
    free_strings(memory, &r->what);
    slabs_give(memory->rest, (int *)r->what.token, r->token_cap * sizeof(int));
    slab_give(memory->requests, r);
}

int request_record(request_memory *memory, request *r, const int *token, int n)
{
    int left = r->what.n_to_score - r->what.n_scored, scored = n < left ? n : left;
    r->what.n_scored += scored;
    append(memory, r, token + scored, n - scored);
    return n - scored;
}
