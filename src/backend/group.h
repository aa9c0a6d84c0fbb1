/* group.h - tensor parallelism: the ranks of a model, the devices they run on, and how they add up
 *
 * Split over N ranks, a model has N shares of its weights, KvCache and adapters. The ranks run on N devices, or all on
 * one, whose ops then do one rank's work after the other's: on the CPU, and on a single GPU for tests and to measure
 * what the split itself costs. One thread drives all ranks in lockstep: it queues some ops for each rank in turn, then
 * one of the communicator's, which adds up the ranks' parts.
 *
 * Everything else refers to a group by its first device, whose backend points to it; a backend without a group is one
 * rank. */
#ifndef PUNICA_BACKEND_GROUP_H
#define PUNICA_BACKEND_GROUP_H

#include "backend/backend.h"

#define MAX_RANKS 16

typedef struct comm comm;
typedef struct group group;

/* Arrays are by rank, from 0. All ranks get the same bits, since all take their sums in the same order.
 *
 * Where ranks read each other's memory, one may still be reading a part when another goes on from the op. Only the next
 * op of the communicator proves that all are done: until then what an op reads must not be written. */
typedef struct {
    /* y = the sum of all ranks' parts, for each rank. F32. */
    void (*all_reduce)(comm *, tensor *y, const tensor *part);
    /* x += the sum of all ranks' parts, which are of the act type, then y = rms_norm(x), for each rank. */
    void (*add_rms_norm)(comm *, tensor *y, tensor *x, const tensor *part, const tensor *const *w, float eps);
    /* y = the ranks' parts side by side, for each device (y is by device). F32; parts may differ in columns. */
    void (*all_gather)(comm *, tensor *y, const tensor *part);
    void (*free)(comm *);
} comm_ops;

struct comm { const comm_ops *ops; };

struct group {
    int n_ranks, n_devices;     /* n_devices: n_ranks, or 1 */
    backend *device[MAX_RANKS]; /* [n_devices] */
    comm *sum;
    char name[160];
};

static inline int group_ranks(const backend *first)
{
    return first->group ? first->group->n_ranks : 1;
}

static inline int group_devices(const backend *first)
{
    return first->group ? first->group->n_devices : 1;
}

static inline int group_ranks_per_device(const backend *first)
{
    return group_ranks(first) / group_devices(first);
}

static inline backend *group_device(backend *first, int device)
{
    return first->group ? first->group->device[device] : first;
}

/* The device of a rank, and its place among the ranks on that device. */
static inline backend *group_device_of(backend *first, int rank)
{
    return group_device(first, rank / group_ranks_per_device(first));
}

static inline int group_place_of(const backend *first, int rank)
{
    return rank % group_ranks_per_device(first);
}

/* Makes n_ranks ranks of these devices; device[0] then stands for all. Takes over the communicator. */
void group_join(backend *const *device, int n_devices, int n_ranks, comm *sum);

/* Make the three communicators: ranks on the CPU; ranks on one GPU; ranks on several GPUs, a rank each. NULL with e
 * set. */
comm *comm_cpu_new(backend *cpu, int n_ranks);
comm *comm_cuda_new(backend *gpu, int n_ranks, err *e);
comm *comm_nccl_new(backend *const *gpu, int n_ranks, err *e);

#endif
