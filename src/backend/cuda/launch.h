/* launch.h - what it takes to launch a kernel: a stream of a device, and a place for the first failure
 *
 * Launchers that libpunica_kernels.so (src/kernels) uses too take a launch_context, as it has no backend. C, for .c and
 * .cu alike. */
#ifndef PUNICA_BACKEND_CUDA_LAUNCH_H
#define PUNICA_BACKEND_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

/* The first failure of a device; later ones mostly follow from it. Any thread may report one here. */
typedef struct {
    pthread_mutex_t lock;
    bool happened;
    err first;
} device_failure;

/* Where and how kernels are launched. A plain value, made for one call. */
typedef struct {
    cudaStream_t stream;
    int device, n_sms, arch; /* arch: 80, 90, ... */
    bool overlaps_launches;  /* programmatic dependent launch, see kernel.cuh; needs arch 90 */
    device_failure *failure; /* borrowed: for the call */
} launch_context;

#ifdef __cplusplus
extern "C" {
#endif
void device_failure_init(device_failure *f);
void device_failure_deinit(device_failure *f);

/* Keeps e, unless a failure is kept already. */
void device_failure_set(device_failure *f, const err *e);
/* Keeps a failure of `device` in the operation `what` ("rms_norm"), unless status is a success. Returns whether it is a
 * failure. */
bool device_failure_keep(device_failure *f, int device, cudaError_t status, const char *what);
/* Returns 0, or -1 with the kept failure in e. */
int device_failure_report(device_failure *f, err *e);
bool device_failure_happened(device_failure *f);
#ifdef __cplusplus
}
#endif

#endif
