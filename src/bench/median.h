/* median.h - the median of several measurements */
#ifndef PUNICA_BENCH_MEDIAN_H
#define PUNICA_BENCH_MEDIAN_H

#include <stddef.h>

void sort_times(double *x, size_t n);

/* Sorts x and returns its median, of an even number the upper one; 0 when n is 0. */
double median(double *x, int n);

#endif
