/* killers.c - see killers.h */
#include "scheduler/killers.h"

#include "base/rng.h"

static const double KNOWN_FOR = 600; /* seconds */

/* Computes two hashes, each of the prompt, the adapter's name and its content. */
static void mark_of(const submission *what, uint64_t mark[2])
{
    mark[0] = 1;
    mark[1] = 2;
    for (int i = 0; i < what->n_prompt; i++)
        for (int k = 0; k < 2; k++)
            mark[k] = rng_u64(mark[k], (uint64_t)what->token[i]);
    for (const char *c = what->adapter; c && *c; c++)
        for (int k = 0; k < 2; k++)
            mark[k] = rng_u64(mark[k], (unsigned char)*c);
    for (size_t i = 0; i < what->digest_bytes; i++)
        for (int k = 0; k < 2; k++)
            mark[k] = rng_u64(mark[k], ((const unsigned char *)what->digest)[i]);
}

void killers_add(scheduler *s, double now, const submission *what)
{
    known_killer *k = &s->killers[s->n_killers++ % MOST_KILLERS];
    mark_of(what, k->mark);
    k->until = now + KNOWN_FOR;
}

bool killers_know(const scheduler *s, double now, const submission *what)
{
    uint64_t mark[2];
    if (s->n_killers == 0)
        return false;
    mark_of(what, mark);
    for (size_t i = 0; i < s->n_killers && i < MOST_KILLERS; i++)
        if (s->killers[i].mark[0] == mark[0] && s->killers[i].mark[1] == mark[1] && now < s->killers[i].until)
            return true;
    return false;
}
