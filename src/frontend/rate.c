/* rate.c - see rate.h */
#include "frontend/rate.h"

static void flow(rate *r, double limit, double now)
{
    r->used -= (now - r->at) * limit / 60;
    r->used = r->used < 0 ? 0 : r->used;
    r->at = now;
}

void rate_use(rate *r, double limit, double now, double n)
{
    flow(r, limit, now);
    r->used += n;
}

double rate_left(rate *r, double limit, double now)
{
    flow(r, limit, now);
    return r->used < limit ? limit - r->used : 0;
}

double rate_wait(rate *r, double limit, double now, double n)
{
    flow(r, limit, now);
    double missing = r->used + (n < limit ? n : limit) - limit;
    return missing > 1e-9 ? missing * 60 / limit : 0;
}

double rate_reset(rate *r, double limit, double now)
{
    flow(r, limit, now);
    return r->used * 60 / limit;
}
