/* rate.h - so many a minute: a token bucket
 *
 * Full at first, it holds what a minute allows and fills at an even pace. What has been used beyond that is a debt,
 * which has to be paid before there is any again: whatever single uses are like, the rate holds in the long run. Pure;
 * one thread. */
#ifndef PUNICA_FRONTEND_RATE_H
#define PUNICA_FRONTEND_RATE_H

/* Zero-initialise: full. */
typedef struct { double used, at; } rate; /* used: of a full bucket, at that time */

/* limit: a minute; now: seconds of a clock that does not go back. */
void rate_use(rate *r, double limit, double now, double n);

/* What is left, 0 or more. */
double rate_left(rate *r, double limit, double now);

/* Seconds until n are there, or until it is full where n is more than it holds; 0: they are. */
double rate_wait(rate *r, double limit, double now, double n);

/* Seconds until it is full. */
double rate_reset(rate *r, double limit, double now);

#endif
