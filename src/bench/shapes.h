/* shapes.h - model shapes by name, for benchmarks on random weights */
#ifndef PUNICA_BENCH_SHAPES_H
#define PUNICA_BENCH_SHAPES_H

#include "model/config.h"

enum { SHAPE_NAMES = 256 };

/* Writes the names of all shapes, separated by commas. Returns `names`. */
const char *shape_names(char names[SHAPE_NAMES]);

/* Finds a shape by its name. -1 with e set, which has the known names. Deinit with model_config_deinit(). */
int shape_find(const char *name, dtype type, model_config *c, err *e);

/* Return the floating-point operations of one row through all layers' projections, and through the head. */
double shape_row_flops(const model_config *c);
double shape_head_flops(const model_config *c);

/* Returns the parameters of a LoRA of this rank on all seven projections. */
double shape_lora_params(const model_config *c, int rank);

#endif
