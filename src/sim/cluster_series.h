/* cluster_series.h - time series of a cluster, as CSV: request rate, tokens per second and each GPU's batch size.
 * tools/plots.py draws the paper's figure from it. */
#ifndef PUNICA_SIM_CLUSTER_SERIES_H
#define PUNICA_SIM_CLUSTER_SERIES_H

#include "base/err.h"

typedef struct {
    int n_gpus, max_batch, n_bins;
    double seconds_per_bin;
    double *requests, *tokens; /* [n_bins] a second */
    double *batch;             /* [n_gpus, n_bins] mean over the bin, 0 while idle */
} cluster_series;

cluster_series cluster_series_new(int n_gpus, int max_batch, double seconds); /* zeros */
void cluster_series_free(cluster_series *s);

int cluster_series_write_csv(const cluster_series *s, const char *path, err *e);

#endif
