/* access_log.h - one line a request, at level info
 *
 *   POST /v1/completions 200 client 10.0.0.7:40112 key acme adapter sql prompt 31 output 120 first 0.021 total 1.404
 *
 * "-" is what there is none of; key: whose it was. Times are seconds since the request came: to its first token, to the
 * end of its answer. When there are too many, lines are left out, and the next one says how many. */
#ifndef PUNICA_FRONTEND_ACCESS_LOG_H
#define PUNICA_FRONTEND_ACCESS_LOG_H

#include <stdint.h>

typedef struct {
    const char *method, *path; /* NULL: what came was no request */
    int status;
    const char *client;
    const char *key;        /* whose key it showed; NULL: none */
    const char *adapter;    /* or the base; NULL: none */
    int64_t prompt, output; /* tokens; -1: none */
    double first, total;    /* seconds; negative: none */
} access_line;

/* Zero-initialise. */
typedef struct {
    double left, at;
    uint64_t n_left_out;
} access_log;

/* now: of a clock that never goes back. l may be NULL: nothing is written. */
void access_log_write(access_log *l, double now, const access_line *a);

#endif
