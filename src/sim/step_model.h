/* step_model.h - how long a step of a GPU takes, from a small file of measured times
 *
 * The file (docs/results/step-h200.json is one) has decode steps at one context for some batch sizes, all requests
 * of one adapter and each of its own; between and beyond them lines are drawn. A longer context adds the bytes of
 * its KvCache; a step that takes prompts in is longer by "prefill_ms" and their tokens at the measured rate. */
#ifndef PUNICA_SIM_STEP_MODEL_H
#define PUNICA_SIM_STEP_MODEL_H

#include "base/err.h"

#define MAX_STEP_POINTS 32

typedef struct { double batch, identical, distinct; } step_point; /* seconds */

typedef struct {
    step_point point[MAX_STEP_POINTS]; /* [n_points], by batch */
    int n_points;
    double context;                          /* of each request, when they were measured */
    double kv_token_time;                    /* seconds to read one more position */
    double prefill_time, prefill_token_time; /* of a step that takes prompts in, and of each token of theirs */
    double adapter_load_time;
    char about[256]; /* what was measured, in words */
} step_model;

int step_model_load(step_model *m, const char *path, err *e);

/* Seconds of a step: batch requests of n_adapters adapters that decode with n_positions cached between them, and
 * n_prefill tokens of prompts. */
double step_model_time(const step_model *m, int batch, int n_adapters, double n_positions, int n_prefill);

#endif
