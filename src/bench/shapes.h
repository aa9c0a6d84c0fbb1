/* shapes.h - model shapes by name, for benchmarks on random weights */
#ifndef PUNICA_BENCH_SHAPES_H
#define PUNICA_BENCH_SHAPES_H

#include "model/config.h"

/* -1 with the known names in e. Deinit with model_config_deinit(). */
int shape_find(const char *name, dtype type, model_config *c, err *e);

/* Floating-point operations of one row through all layers' projections, and through the head. */
double shape_row_flops(const model_config *c);
double shape_head_flops(const model_config *c);

/* Parameters a LoRA of this rank on all seven projections adds. */
double shape_lora_params(const model_config *c, int rank);

#endif
