/* machine.h - what a benchmark needs to know of the machine it runs on */
#ifndef PUNICA_BENCH_MACHINE_H
#define PUNICA_BENCH_MACHINE_H

#include <stddef.h>

void machine_cpu_name(char *out, size_t n);
int machine_cores(void);

/* This process's resident memory in bytes, now and at its highest. */
size_t machine_resident(void);
size_t machine_resident_peak(void);

/* Bytes per second that n_threads (0: one per core) read from memory together: best of several
 * sums over a buffer far larger than the caches. Takes about half a second. */
double machine_read_bandwidth(int n_threads);

#endif
