/* world.h - virtual time, and the simulated processes that live in it
 *
 * A discrete-event simulation: everything that happens is a task that is due at a time, and the world runs tasks in
 * order, one at a time. A task belongs to a process: while that is stopped (as by SIGSTOP) its tasks wait, and once it
 * is dead they do not run any more. Each process has a net_loop, which the real roles are given: clock, timers and
 * randomness are here, connections in network.c.
 *
 * Randomness is counter-based: a function of the seed, its purpose (a stream), and how many numbers were drawn from
 * that stream. So what one part draws does not change what another gets. */
#ifndef PUNICA_SIM_WORLD_H
#define PUNICA_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/loop.h"
#include "scheduler/wait_queue.h"

typedef struct world world;
typedef struct sim_process sim_process;

/* A scheduled event, embedded in the object that it is for. Zero-initialise, then set run and ctx. */
typedef struct {
    wait_item order; /* first: time, then number */
    bool planned;
    sim_process *of; /* borrowed; NULL: no process's, it always runs */
    void (*run)(void *ctx);
    void *ctx;
} sim_task;

/* The streams of random numbers, by purpose. */
typedef enum {
    RNG_CLUSTER,
    RNG_REQUESTS,
    RNG_FAULTS,
    RNG_NETWORK,
    RNG_WORKERS,
    RNG_SECRETS,
    RNG_TENANTS,
    N_RNG_STREAMS
} rng_stream;

struct sim_process {
    net_loop base; /* first */
    world *in;     /* borrowed */
    char name[32];
    bool dead;
    double stopped_until; /* it is stopped until this time */
    double skew;          /* seconds its wall clock is ahead */
    int n_acts_left;      /* entries into its code (tasks, calls) before it crashes; 0: it is not to */
};

struct world {
    uint64_t seed, drawn[N_RNG_STREAMS];
    double now;
    wait_queue due;
    uint64_t n_planned, n_run;
    bool trace;
    const char *speaker;     /* name of the process whose code runs; borrowed; NULL: the scenario itself */
    sim_process *crash_due;  /* borrowed: after its last act; the caller of world_run_next() is to end it */
    buf violation;           /* the first */
    struct sim_network *net; /* network.h */
};

void world_init(world *w, uint64_t seed, bool trace);
void world_deinit(world *w); /* no task may be planned */

/* Draw from a stream: a number below `below`; one in [low, high); true in this share of cases. */
uint64_t world_draw(world *w, rng_stream c, uint64_t below);
double world_uniform(world *w, rng_stream c, double low, double high);
bool world_chance(world *w, rng_stream c, double share);

/* Schedules a task for so many seconds from now; if it was scheduled already, instead of then. */
void world_plan(world *w, sim_task *t, double after);
void world_cancel(world *w, sim_task *t); /* if it is planned */

/* Runs the next task. False if there is none. */
bool world_run_next(world *w);

/* world_say() writes a line of the trace; world_violate() notes that a rule was broken, after which the run ends. */
void world_say(world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_violate(world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Makes p a live process whose wall clock is skew seconds ahead. The name is copied. */
void sim_process_init(sim_process *p, world *w, const char *name, double skew);
void sim_process_stop(sim_process *p, double seconds); /* as by SIGSTOP, and SIGCONT later */

/* Counts an act of a process, after its code has run. */
void sim_process_acted(sim_process *p);

/* Evaluates f as code of process p: the trace names the process, and it counts as an act. */
#define AS_PROCESS(p, f)                     \
    do {                                     \
        world *as_in = (p)->in;              \
        const char *as_was = as_in->speaker; \
        sim_process *as_p = (p);             \
        as_in->speaker = as_p->name;         \
        f;                                   \
        as_in->speaker = as_was;             \
        sim_process_acted(as_p);             \
    } while (0)

#endif
