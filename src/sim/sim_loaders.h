/* sim_loaders.h - loaders of adapters (base/jobs.h) in virtual time: any number of jobs run side by side */
#ifndef PUNICA_SIM_SIM_LOADERS_H
#define PUNICA_SIM_SIM_LOADERS_H

#include <stddef.h>

#include "base/jobs.h"

typedef struct {
    job *j;
    double end;
} sim_load;

typedef struct {
    jobs base;      /* first */
    double now;     /* set by the caller; waiting for a job moves it on to that job's end */
    double seconds; /* that a job started now takes; the caller may change it */
    sim_load *load; /* [n_loads] by end */
    size_t n_loads, load_cap;
} sim_loaders;

void sim_loaders_init(sim_loaders *s, double seconds);
void sim_loaders_deinit(sim_loaders *s); /* no job may be outstanding */

#endif
