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

void cuda_device_uuid(int i, char *out, size_t n)
{
    cudaDeviceProp p;
    out[0] = '\0';
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess)
        return;
    size_t len = (size_t)snprintf(out, n, "GPU");
    for (int k = 0; k < 16 && len < n; k++) {
        bool group = k == 0 || k == 4 || k == 6 || k == 8 || k == 10;
        len += (size_t)snprintf(out + len, n - len, "%s%02x", group ? "-" : "", (unsigned char)p.uuid.bytes[k]);
    }
}
