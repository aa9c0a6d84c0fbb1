/* step_model.h - how long a step of a GPU takes, from a small file of measured times
 *
 * The file (such as docs/results/step-h200.json) has times of decode steps at one context length for some batch sizes,
 * both with all requests of one adapter and with an adapter for each; times between and beyond are inter- and
 * extrapolated linearly. Longer contexts add the time to read their KvCache; a step with prompts takes "prefill_ms"
 * more, and the time of their tokens at the measured rate. */
#ifndef PUNICA_SIM_STEP_MODEL_H
#define PUNICA_SIM_STEP_MODEL_H

#include "base/err.h"

#define MAX_STEP_POINTS 32

typedef struct { double batch, identical, distinct; } step_point; /* seconds */

typedef struct {
    step_point point[MAX_STEP_POINTS]; /* [n_points], by batch */
    int n_points;
    double context;                          /* tokens of each request when the steps were measured */
    double kv_token_time;                    /* seconds to read one more position */
    double prefill_time, prefill_token_time; /* of a step with prompts, and of each of their tokens */
    double adapter_load_time;
    char about[256]; /* what was measured, in words */
} step_model;

/* Reads a file. 0, or -1 with e set. */
int step_model_load(step_model *m, const char *path, err *e);

/* Returns the seconds of a step: `batch` requests of n_adapters adapters, with n_positions of KvCache in all, and
 * n_prefill tokens of prompts. */
double step_model_time(const step_model *m, int batch, int n_adapters, double n_positions, int n_prefill);

#endif
