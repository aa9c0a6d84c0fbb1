/* prometheus.h - Prometheus' text format for metrics
 *
 * A family is a name with a type and a help text; samples of it follow. Names are given without the prefix
 * "punica_". */
#ifndef PUNICA_BASE_PROMETHEUS_H
#define PUNICA_BASE_PROMETHEUS_H

#include <stdint.h>

#include "base/buf.h"

typedef struct { const char *name, *value; } prometheus_label;

/* Begins a family. type: "counter", "gauge" or "histogram". */
void prometheus_add_family(buf *out, const char *name, const char *type, const char *help);

/* Adds a sample with n labels; their values may be any text. */
void prometheus_add_sample(buf *out, const char *name, const prometheus_label *label, int n, uint64_t value);

/* Adds a family of one sample without labels. */
void prometheus_add(buf *out, const char *name, const char *type, const char *help, uint64_t value);

/* Adds a histogram. bound: [n] the buckets' upper bounds, ascending; count: [n + 1] what is in each, the last above all
 * bounds. */
void prometheus_add_histogram(buf *out, const char *name, const char *help, const double *bound, const uint64_t *count,
                              int n, double sum);

typedef struct {
    const char *name;
    uint64_t value;
} prometheus_item;

enum { PROMETHEUS_NAMED = 20 };

/* Adds a counter of many items, the largest first, of which only the first PROMETHEUS_NAMED have a sample of their own,
 * so that the page stays short: the rest, items that are called "other", and `more` are one sample, "other". */
void prometheus_add_top(buf *out, const char *name, const char *help, const char *label, const prometheus_item *item,
                        size_t n, uint64_t more);

#endif
