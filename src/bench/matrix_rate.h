/* matrix_rate.h - how fast a device multiplies matrices, measured: the compute side of the roofline, beside
 * read_bandwidth */
#ifndef PUNICA_BENCH_MATRIX_RATE_H
#define PUNICA_BENCH_MATRIX_RATE_H

#include "backend/backend.h"

/* Returns the floating-point operations per second of square products of the act type by the backend's own `linear`, in
 * sizes up to some milliseconds each: the best of them. Negative with e set when the device fails. */
double matrix_rate(backend *be, err *e);

#endif
