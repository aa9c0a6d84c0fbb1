/* access_log.h - one line a request, at level info
 *
 *   POST /v1/completions 200 client 10.0.0.7:40112 key acme adapter sql prompt 31 output 120 first 0.021 total 1.404
 *
 * "-" stands for what there is none of; key: the tenant whose key was shown. Times are seconds from the request's
 * arrival to its first token and to the end of its answer. Above a rate limit lines are left out, and a line before the
 * next one says how many. */
#ifndef PUNICA_FRONTEND_ACCESS_LOG_H
#define PUNICA_FRONTEND_ACCESS_LOG_H

#include <stdint.h>

typedef struct {
    const char *method, *path; /* NULL: what came was not a request */
    int status;
    const char *client;
    const char *key;        /* the tenant whose key it showed; NULL: none */
    const char *adapter;    /* or the base; NULL: none */
    int64_t prompt, output; /* tokens; -1: none */
    double first, total;    /* seconds; negative: none */
} access_line;

/* A token bucket that bounds lines per second. Zero-initialise. */
typedef struct {
    double left, at;
    uint64_t n_left_out;
} access_log;

/* Writes the line, or counts it as left out. now: seconds of a monotonic clock. l NULL: nothing is written. */
void access_log_write(access_log *l, double now, const access_line *a);

#endif
