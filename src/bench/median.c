/* median.c - see median.h */
#include "bench/median.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_times(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
}

double median(double *x, int n)
{
    sort_times(x, (size_t)n);
    return n ? x[n / 2] : 0;
}
