/* cuda_devices.h - which NVIDIA GPUs this machine has. Plain C. Builds without CUDA have only
 * cuda_device_uuid(), in devices.c. */
#ifndef PUNICA_BACKEND_CUDA_CUDA_DEVICES_H
#define PUNICA_BACKEND_CUDA_CUDA_DEVICES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns how many GPUs the driver shows; 0 without a driver. */
int cuda_device_count(void);

/* Writes a description of GPU i, such as "NVIDIA H200, 139 GiB, sm_90". */
void cuda_device_describe(int i, char *out, size_t n);

/* Writes the UUID of GPU i as nvidia-smi shows it, "GPU-" and 32 hex digits in groups; "" when it cannot be read. */
void cuda_device_uuid(int i, char *out, size_t n);

#ifdef __cplusplus
}
#endif

#endif
