/* devices.c - see devices.h */
#include "backend/devices.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_devices.h"

#ifdef PUNICA_HAS_CUDA
static void list_gpus(buf *out)
{
    int n = cuda_device_count();
    for (int i = 0; i < n; i++) {
        char text[256];
        cuda_device_describe(i, text, sizeof text);
        buf_printf(out, "  cuda:%d %s\n", i, text);
    }
    if (n == 0)
        buf_add_str(out, "  cuda: built in, but no GPU found\n");
}
#else
static void list_gpus(buf *out)
{
    buf_add_str(out, "  cuda: not built in\n");
}

void cuda_device_uuid(int i, char *out, size_t n)
{
    (void)i;
    (void)n;
    *out = '\0';
}

backend *backend_cuda_new(int device, dtype act, err *e)
{
    (void)device;
    (void)act;
    err_set(e, "this punica was built without CUDA; build it where nvcc is on PATH");
    return NULL;
}
#endif

/* The N of "cuda:N", 0 for "cuda", -1 for anything else. */
static int gpu_number(const char *device)
{
    if (strcmp(device, "cuda") == 0)
        return 0;
    if (strncmp(device, "cuda:", 5) != 0 || device[5] < '0' || device[5] > '9')
        return -1;
    char *end;
    errno = 0;
    long n = strtol(device + 5, &end, 10);
    return *end || errno || n > INT_MAX ? -1 : (int)n;
}

backend *backend_open(const char *device, dtype weights, int n_threads, err *e)
{
    if (strcmp(device, "cpu") == 0)
        return backend_cpu_new(n_threads);
    int gpu = gpu_number(device);
    if (gpu >= 0)
        return backend_cuda_new(gpu, weights == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16, e);
    err_set(e, "unknown device \"%s\"; known: cpu, cuda, cuda:N", device);
    return NULL;
}

void backend_device_uuid(const char *device, char *out, size_t n)
{
    int gpu = gpu_number(device);
    *out = '\0';
    if (gpu >= 0)
        cuda_device_uuid(gpu, out, n);
}

void backend_list_devices(buf *out)
{
    backend *cpu = backend_cpu_new(0);
    buf_printf(out, "  %s\n", cpu->name);
    cpu->ops->free(cpu);
    list_gpus(out);
}
