/* finite.h - whether weights hold NaN or infinity
 *
 * A weight that is not finite spreads through every token of every request of its batch, so weights are checked once,
 * when files are opened. The scan runs at the speed of memory. */
#ifndef PUNICA_MODEL_FINITE_H
#define PUNICA_MODEL_FINITE_H

#include "backend/tensor.h"

/* Returns the index of the first tensor that is not finite in all its elements, or -1. Tensors lie in host memory; the
 * work is split over the machine's cores when it is large. */
int finite_scan(const tensor *const *t, int n);

#endif
