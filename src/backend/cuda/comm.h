/* comm.h - what the communicators of GPUs share: cuda_comm.cu has the kernels, cuda_group.c who uses them */
#ifndef PUNICA_BACKEND_CUDA_COMM_H
#define PUNICA_BACKEND_CUDA_COMM_H

#include "backend/cuda/cuda.h"
#include "backend/group.h"

/* One-shot ops over memory that all ranks can read: each rank reads every part and adds up for itself. */
enum { ONE_SHOT_ROWS = 256 }; /* the most rows of a one-shot op */

/* A barrier of all ranks for each row, in each rank's memory and read by all. */
typedef struct {
    int n_ranks;
    int *flag[MAX_RANKS];  /* of each rank: [n_ranks, ONE_SHOT_ROWS] how often each has come to this block */
    int *count[MAX_RANKS]; /* of each rank: [ONE_SHOT_ROWS] how often it has been here itself */
} rank_barrier;

#ifdef __cplusplus
extern "C" {
#endif
/* Claim and release the memory of the barrier; rank r is on device[r * n_devices / n_ranks]. */
int cuda_rank_barrier_init(rank_barrier *m, backend *const *device, int n_devices, int n_ranks, err *e);
void cuda_rank_barrier_deinit(rank_barrier *m, backend *const *device, int n_devices);

/* The ops for ranks [first, first + n) of the barrier, all on one device, arrays by rank from 0. waits: wait for the
 * other ranks; not needed where the stream has seen to it that all parts are there. */
void cuda_one_shot_reduce(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y,
                          const tensor *part);
void cuda_one_shot_add_norm(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y, tensor *x,
                            const tensor *part, const tensor *const *w, float eps);
/* y: of the one device, which the first of the ranks writes. */
void cuda_one_shot_gather(cuda_backend *, const rank_barrier *, bool waits, int first, int n, tensor *y,
                          const tensor *part);
/* y[:, from ...] = part. */
void cuda_put_columns(cuda_backend *, tensor *y, const tensor *part, int from);
#ifdef __cplusplus
}
#endif

#endif
