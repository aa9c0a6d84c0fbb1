/* rate.h - a limit per minute: a token bucket
 *
 * Full at first, it holds what a minute allows and fills at an even pace. What is used beyond that is a debt, to be
 * paid before there is any again: the rate holds in the long run, however large single uses are. Pure; one thread. */
#ifndef PUNICA_FRONTEND_RATE_H
#define PUNICA_FRONTEND_RATE_H

/* Zero-initialise: full. */
typedef struct { double used, at; } rate; /* used: of a full bucket, at that time */

/* Uses n, also beyond what is left. limit: per minute; now: seconds of a monotonic clock. */
void rate_use(rate *r, double limit, double now, double n);

/* Returns what is left, 0 or more. */
double rate_left(rate *r, double limit, double now);

/* Returns the seconds until n are there, or until it is full where n is more than it holds; 0: they are there. */
double rate_wait(rate *r, double limit, double now, double n);

/* Returns the seconds until it is full. */
double rate_reset(rate *r, double limit, double now);

#endif
