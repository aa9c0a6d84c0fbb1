/* cluster_series.c - see cluster_series.h */
#include "sim/cluster_series.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { N_BINS = 360 };

cluster_series cluster_series_new(int n_gpus, int max_batch, double seconds)
{
    cluster_series s = {
        .n_gpus = n_gpus, .max_batch = max_batch, .n_bins = N_BINS, .seconds_per_bin = seconds / N_BINS};
    s.requests = XNEW_ARRAY(double, N_BINS);
    s.tokens = XNEW_ARRAY(double, N_BINS);
    s.batch = XNEW_ARRAY(double, (size_t)n_gpus *N_BINS);
    return s;
}

void cluster_series_free(cluster_series *s)
{
    free(s->requests);
    free(s->tokens);
    free(s->batch);
    *s = (cluster_series){0};
}

static double batch_at(const cluster_series *s, int gpu, int bin)
{
    return s->batch[(size_t)gpu * (size_t)s->n_bins + (size_t)bin];
}

static FILE *open_output(const char *path, err *e)
{
    FILE *f = fopen(path, "w");
    if (!f)
        err_set(e, "cannot write %s: %s", path, strerror(errno));
    return f;
}

static int close_output(FILE *f, const char *path, err *e)
{
    int failed = ferror(f);
    return fclose(f) || failed ? err_set(e, "cannot write %s: %s", path, strerror(errno)) : 0;
}

int cluster_series_write_csv(const cluster_series *s, const char *path, err *e)
{
    FILE *f = open_output(path, e);
    if (!f)
        return -1;
    fprintf(f, "seconds,requests_per_s,tokens_per_s");
    for (int g = 0; g < s->n_gpus; g++)
        fprintf(f, ",batch_gpu%d", g);
    fprintf(f, "\n");
    for (int b = 0; b < s->n_bins; b++) {
        fprintf(f, "%g,%.3f,%.1f", b * s->seconds_per_bin, s->requests[b], s->tokens[b]);
        for (int g = 0; g < s->n_gpus; g++)
            fprintf(f, ",%.2f", batch_at(s, g, b));
        fprintf(f, "\n");
    }
    return close_output(f, path, e);
}
