/* sim_worker.h - worker processes of a simulated machine: the real worker and engine, over a toy model
 *
 * A step takes time, adapters are read from the machine's disk in time, messages to and from the runner pass through
 * pipes. The process can crash, hang, be slow or be stopped. */
#ifndef PUNICA_SIM_SIM_WORKER_H
#define PUNICA_SIM_SIM_WORKER_H

#include "base/digest.h"
#include "engine/engine.h"
#include "runner/process.h"
#include "sim/world.h"

enum { MOST_WORKERS = 2, N_ADAPTERS = 4 };

/* An adapter on a disk. */
typedef enum { FILE_FINE, FILE_MISSING, FILE_BROKEN, FILE_POISONED } file_state;
typedef struct {
    uint64_t content;
    file_state state;
} disk_file;

typedef struct sim_worker sim_worker;

/* What the workers of one machine share. Outlives them. */
typedef struct {
    sim_process *runner; /* borrowed: whose processes these are */
    char name[24];
    int max_batch, n_pages, page_len, n_slots, prefill_rows;
    bool runs_ahead;
    int host_pages; /* of the prefix cache's second tier */
    int device_room,
        n_images; /* adapters in device memory, and of those in host memory; 0: the device uses host memory */
    double step_time, load_time;
    double itl_target;
    double disk_slow;         /* 1, or so many times slower */
    double starts_fail_until; /* no process can be started before */
    double kills_until;       /* whoever has been given something to do is killed from outside before */
    int n_killed;             /* so far */
    disk_file disk[N_ADAPTERS];
    sim_worker *worker[MOST_WORKERS]; /* borrowed; NULL: none is running */
} sim_machine;

const char *sim_adapter_name(int i);
digest sim_digest(uint64_t content);

process_starter sim_worker_starter(sim_machine *m);

void sim_worker_crash(sim_worker *w);              /* as of what it runs */
void sim_worker_kill(sim_worker *w);               /* from outside */
void sim_worker_hang(sim_worker *w);               /* for ever */
void sim_worker_slow(sim_worker *w, double times); /* 1: as it was */
void sim_worker_stop(sim_worker *w, double seconds);

/* Whether it holds nothing: no request, no page, no message. */
bool sim_worker_is_empty(const sim_worker *w);

/* Whether it hangs, is stopped or slow: it may be silent. */
bool sim_worker_is_held(const sim_worker *w);

/* Tokens of a request that such a machine's worker can hold. */
int sim_machine_capacity(const sim_machine *m);

#endif
