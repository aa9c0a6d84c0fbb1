/* metrics.h - what a frontend counts, and its Prometheus page */
#ifndef PUNICA_FRONTEND_METRICS_H
#define PUNICA_FRONTEND_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/map.h"

#define HISTOGRAM_BUCKETS 16

typedef struct {
    uint64_t count[HISTOGRAM_BUCKETS + 1];
    double sum;
} histogram; /* count: by bucket; the last: above all bounds */

/* Answers by route, by kind of model ("base", "adapter", "none") and HTTP status. */
typedef struct {
    const char *route, *kind;
    int status;
    uint64_t n;
} metrics_answers;

/* Use of one model. */
typedef struct {
    char *name;
    uint64_t calls, prompt, output;
} metrics_model;

/* Zero-initialise; metrics_deinit() frees. */
typedef struct {
    metrics_model *model; /* [n_models] */
    size_t n_models, models_cap;
    map *by_name;             /* of model; NULL: none yet */
    metrics_answers *answers; /* [n_answers] */
    size_t n_answers, answers_cap;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t disconnects, cut_off; /* clients that went, or did not read, before their answer's end */
    uint64_t reconnections;        /* to the scheduler */
    int live_requests, live_calls;
    int connections;                   /* of clients */
    size_t memory;                     /* bytes that requests have taken of their budget */
    histogram first_token, next_token; /* seconds */
} metrics;

void metrics_deinit(metrics *m);

/* Counts an answer. route and kind: static strings. */
void metrics_count_answer(metrics *m, const char *route, const char *kind, int status);
void histogram_add(histogram *h, double seconds);
void metrics_write_histogram(buf *out, const char *name, const char *help, const histogram *h);

/* Counts a call of a model that exists, when it is over. */
void metrics_count_model(metrics *m, const char *name, int64_t prompt, int64_t output);

/* Appends metrics by model: those used most by their names, all others as "other". */
void metrics_write_models(const metrics *m, buf *out);

void metrics_write(const metrics *m, buf *out);

#endif
