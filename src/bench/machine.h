/* machine.h - what a benchmark needs to know about its machine */
#ifndef PUNICA_BENCH_MACHINE_H
#define PUNICA_BENCH_MACHINE_H

#include <stddef.h>

void machine_cpu_name(char *out, size_t n);

/* The peak of this process's resident memory in bytes, since it began or was reset. */
size_t machine_resident_peak(void);
void machine_reset_peak(void);

#endif
