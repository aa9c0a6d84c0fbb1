/* devices.c - see devices.h */
#include "backend/devices.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_devices.h"
#include "backend/group.h"

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

comm *comm_cuda_new(backend *gpu, int n_ranks, err *e)
{
    (void)gpu;
    (void)n_ranks;
    err_set(e, "this punica was built without CUDA");
    return NULL;
}

comm *comm_nccl_new(backend *const *gpu, int n_ranks, err *e)
{
    (void)gpu;
    (void)n_ranks;
    err_set(e, "this punica was built without CUDA");
    return NULL;
}
#endif

/* Reads a number at the beginning of *text and moves *text behind it. -1: there is none. */
static int number_at(const char **text)
{
    if (**text < '0' || **text > '9')
        return -1;
    char *end;
    errno = 0;
    long n = strtol(*text, &end, 10);
    *text = end;
    return errno || n >= INT_MAX ? -1 : (int)n;
}

/* Returns the first GPU of "cuda" (0), "cuda:N" or "cuda:N-M" and sets *n to how many; -1 for anything else. */
static int gpu_range(const char *device, int *n)
{
    *n = 1;
    if (strcmp(device, "cuda") == 0)
        return 0;
    if (strncmp(device, "cuda:", 5) != 0)
        return -1;
    const char *at = device + 5;
    int first = number_at(&at), last = first;
    if (*at == '-') {
        at++;
        last = number_at(&at);
    }
    *n = last - first + 1;
    return *at || first < 0 || last < first ? -1 : first;
}

int backend_device_range(const char *device, int *n, err *e)
{
    *n = 1;
    int first = strcmp(device, "cpu") == 0 ? -1 : gpu_range(device, n);
    if (first >= 0 || strcmp(device, "cpu") == 0)
        return first;
    err_set(e, "unknown device \"%s\"; known: cpu, cuda, cuda:N, cuda:N-M", device);
    return -2;
}

static void close_all(backend *const *device, int n)
{
    for (int i = 0; i < n; i++)
        if (device[i])
            device[i]->ops->free(device[i]);
}

/* Opens n GPUs from `first` on. On failure none stays open. */
static int open_gpus(backend **device, int first, int n, dtype act, err *e)
{
    for (int i = 0; i < n; i++)
        if (!(device[i] = backend_cuda_new(first + i, act, e))) {
            close_all(device, i);
            return -1;
        }
    return 0;
}

static backend *open_group(int first, int n_devices, int n_ranks, dtype act, err *e)
{
    backend *device[MAX_RANKS];
    if (open_gpus(device, first, n_devices, act, e))
        return NULL;
    comm *sum = n_devices == 1 ? comm_cuda_new(device[0], n_ranks, e) : comm_nccl_new(device, n_ranks, e);
    if (!sum) {
        close_all(device, n_devices);
        return NULL;
    }
    group_join(device, n_devices, n_ranks, sum);
    return device[0];
}

static backend *open_cpu(int n_ranks, int n_threads)
{
    backend *cpu = backend_cpu_new(n_threads);
    if (n_ranks > 1)
        group_join(&cpu, 1, n_ranks, comm_cpu_new(cpu, n_ranks));
    return cpu;
}

backend *backend_open(const char *device, int n_ranks, dtype weights, int n_threads, err *e)
{
    int n, first = backend_device_range(device, &n, e);
    dtype act = weights == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
    if (first == -2)
        return NULL;
    if (n > 1 && n != n_ranks) {
        err_set(e, "%s is %d devices, for a model split over %d (--tp)", device, n, n_ranks);
        return NULL;
    }
    if (first == -1)
        return open_cpu(n_ranks, n_threads);
    return n_ranks == 1 ? backend_cuda_new(first, act, e) : open_group(first, n, n_ranks, act, e);
}

void backend_close(backend *be)
{
    if (!be)
        return;
    group *g = be->group;
    if (!g) {
        be->ops->free(be);
        return;
    }
    g->sum->ops->free(g->sum);
    close_all(g->device, g->n_devices);
    free(g);
}

void backend_device_uuid(const char *device, char *out, size_t n)
{
    int n_gpus, gpu = gpu_range(device, &n_gpus);
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
