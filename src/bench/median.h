/* median.h - of several times the same thing took */
#ifndef PUNICA_BENCH_MEDIAN_H
#define PUNICA_BENCH_MEDIAN_H

void sort_times(double *x, int n);

/* Sorts x. 0 when there are none. */
double median(double *x, int n);

#endif
