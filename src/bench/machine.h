/* machine.h - what a benchmark needs to know of the machine it runs on */
#ifndef PUNICA_BENCH_MACHINE_H
#define PUNICA_BENCH_MACHINE_H

#include <stddef.h>

void machine_cpu_name(char *out, size_t n);

/* This process's resident memory in bytes at its highest since it began, or was reset. */
size_t machine_resident_peak(void);
void machine_reset_peak(void);

#endif
