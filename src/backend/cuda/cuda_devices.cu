/* cuda_devices.cu - see cuda_devices.h */
#include "backend/cuda/cuda_devices.h"

#include <cuda_runtime.h>
#include <stdio.h>

int cuda_device_count(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

void cuda_device_describe(int i, char *out, size_t n)
{
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) == cudaSuccess)
        snprintf(out, n, "%s, %zu GiB, sm_%d%d", p.name, p.totalGlobalMem >> 30, p.major, p.minor);
    else
        snprintf(out, n, "GPU %d: not readable", i);
}
