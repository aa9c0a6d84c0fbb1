/* cuda_devices.h - which NVIDIA GPUs this machine has (in builds without CUDA devices.c has what of it is needed).
 * Plain C. */
#ifndef PUNICA_BACKEND_CUDA_CUDA_DEVICES_H
#define PUNICA_BACKEND_CUDA_CUDA_DEVICES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many GPUs the driver shows; 0 without a driver. */
int cuda_device_count(void);

/* "NVIDIA H200, 139 GiB, sm_90" of GPU i. */
void cuda_device_describe(int i, char *out, size_t n);

/* "GPU-" and 32 hex digits in groups, as nvidia-smi shows it; "" when it cannot be read. */
void cuda_device_uuid(int i, char *out, size_t n);

#ifdef __cplusplus
}
#endif

#endif
