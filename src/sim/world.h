/* world.h - virtual time, and the simulated processes that live in it
 *
 * Whatever happens is a task that is due at a time; the world runs them in order, one at a time. A task belongs to a
 * process: while that is stopped (as by SIGSTOP) its tasks wait, once it is dead they are not run any more. Each
 * process has a net_loop, the one real roles are given: clock, timers and randomness are here, connections in
 * network.c.
 *
 * Randomness is a function of the seed, what it is for (a stream), and how much of that was drawn: what one part draws
 * does not change what another gets. */
#ifndef PUNICA_SIM_WORLD_H
#define PUNICA_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/loop.h"
#include "scheduler/wait_queue.h"

typedef struct world world;
typedef struct sim_process sim_process;

/* Something that is due; embedded in whatever it is for. Zero-initialise, set run and ctx. */
typedef struct {
    wait_item order; /* first: time, then number */
    bool planned;
    sim_process *of; /* borrowed; NULL: nobody's, it runs in any case */
    void (*run)(void *ctx);
    void *ctx;
} sim_task;

/* What randomness is for. */
typedef enum {
    CHANCE_CLUSTER,
    CHANCE_REQUESTS,
    CHANCE_FAULTS,
    CHANCE_NETWORK,
    CHANCE_WORKERS,
    CHANCE_SECRETS,
    CHANCE_TENANTS,
    N_CHANCES
} chance;

struct sim_process {
    net_loop base; /* first */
    world *in;     /* borrowed */
    char name[32];
    bool dead;
    double stopped_until; /* it is stopped while this is in the future */
    double skew;          /* seconds its wall clock is ahead */
    int n_acts_left;      /* until it is doomed; 0: it is not */
};

struct world {
    uint64_t seed, drawn[N_CHANCES];
    double now;
    wait_queue due;
    uint64_t n_planned, n_run;
    bool trace;
    const char *speaker;     /* whose code runs; borrowed; NULL: the story itself */
    sim_process *doomed;     /* borrowed: it has done its last act, and whoever runs the world is to end it */
    buf violation;           /* the first */
    struct sim_network *net; /* network.h */
};

void world_init(world *w, uint64_t seed, bool trace);
void world_deinit(world *w); /* all tasks are gone */

uint64_t world_draw(world *w, chance c, uint64_t below);
double world_uniform(world *w, chance c, double low, double high);
bool world_chance(world *w, chance c, double share);

/* Run a task so many seconds from now; one that is planned already is moved. */
void world_plan(world *w, sim_task *t, double after);
void world_cancel(world *w, sim_task *t); /* if it is planned */

/* Run the next task. False when there is none. */
bool world_run_next(world *w);

/* A line of the trace; a rule that was broken, after which the run ends. */
void world_say(world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_violate(world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Alive, with a clock that is skew seconds ahead. The name is copied. */
void sim_process_init(sim_process *p, world *w, const char *name, double skew);
void sim_process_stop(sim_process *p, double seconds); /* as SIGSTOP, SIGCONT later */

/* Its code has run. */
void sim_process_acted(sim_process *p);

/* Call f as that process, so that the log knows who speaks. */
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
