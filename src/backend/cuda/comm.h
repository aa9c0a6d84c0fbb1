/* comm.h - one-shot ops between ranks: cuda_comm.cu has the kernels, cuda_group.c the communicators that use them */
#ifndef PUNICA_BACKEND_CUDA_COMM_H
#define PUNICA_BACKEND_CUDA_COMM_H

#include "backend/cuda/cuda.h"
#include "backend/group.h"

/* One-shot ops: all ranks can read each other's memory, and each reads every part and adds up for itself. */
enum { ONE_SHOT_ROWS = 256 }; /* the most rows of a one-shot op; no measurement is kept */

/* A barrier of all ranks for each row. It has memory on every rank, to which all ranks can write. */
typedef struct {
    int n_ranks;
    int *flag[MAX_RANKS];  /* of each rank: [n_ranks, ONE_SHOT_ROWS] how often rank i has arrived, stored by rank i */
    int *count[MAX_RANKS]; /* how often the rank has arrived itself */
} rank_barrier;

#ifdef __cplusplus
extern "C" {
#endif
/* Allocate and release the memory of the barrier; rank r is on device[r * n_devices / n_ranks]. init returns 0, or -1
 * with e set; call deinit then too. */
int cuda_rank_barrier_init(rank_barrier *m, backend *const *device, int n_devices, int n_ranks, err *e);
void cuda_rank_barrier_deinit(rank_barrier *m, backend *const *device, int n_devices);

/* The ops of comm_ops (group.h) for ranks [first, first + n), which are on one device; arrays are by rank from 0.
 * waits: the kernels wait for the other ranks; not needed where the order of the stream makes sure that all parts are
 * complete. */
void cuda_one_shot_reduce(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y,
                          const tensor *part);
void cuda_one_shot_add_norm(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y, tensor *x,
                            const tensor *part, const tensor *const *w, float eps);
/* y: one tensor of the device, which the first of the ranks writes. */
void cuda_one_shot_gather(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y,
                          const tensor *part);
/* y[:, from : from + part->cols] = part. */
void cuda_put_columns(cuda_backend *, tensor *y, const tensor *part, int from);
#ifdef __cplusplus
}
#endif

#endif
