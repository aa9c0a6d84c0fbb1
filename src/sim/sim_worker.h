/* sim_worker.h - worker processes of a simulated machine: the real worker and engine, over a toy model
 *
 * A step takes time, reading adapters from the machine's disk takes time, messages to and from the runner pass
 * through pipes. The process can crash, hang, be slow or be stopped. */
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

/* What the workers of one machine share; it outlives them. */
typedef struct {
    sim_process *runner; /* borrowed: their parent */
    char name[24];
    int max_batch, n_pages, page_len, n_slots, prefill_rows;
    bool runs_ahead;
    int host_pages;  /* of the prefix cache in host memory */
    int device_room; /* most adapters in device memory; 0: the device uses host memory */
    int n_images;    /* most images of adapters in host memory */
    double step_time, load_time;
    double itl_target;
    double disk_slow;         /* times slower than normal; 1: it is not */
    double starts_fail_until; /* until then no process can be started */
    double kills_until;       /* until then every worker with something to do is killed from outside */
    int n_killed;             /* workers killed from outside so far */
    disk_file disk[N_ADAPTERS];
    sim_worker *worker[MOST_WORKERS]; /* borrowed; NULL: none is running */
} sim_machine;

const char *sim_adapter_name(int i);
digest sim_digest(uint64_t content);

process_starter sim_worker_starter(sim_machine *m);

void sim_worker_crash(sim_worker *w);              /* as if by what it runs */
void sim_worker_kill(sim_worker *w);               /* from outside */
void sim_worker_hang(sim_worker *w);               /* for ever */
void sim_worker_slow(sim_worker *w, double times); /* 1: normal */
void sim_worker_stop(sim_worker *w, double seconds);

/* Returns whether the worker holds nothing: no request, no page, no message. */
bool sim_worker_is_empty(const sim_worker *w);

/* Returns whether the worker may be silent: it hangs, is stopped or slow. */
bool sim_worker_is_held(const sim_worker *w);

/* Returns the tokens of a request that such a machine's worker can hold. */
int sim_machine_capacity(const sim_machine *m);

#endif
