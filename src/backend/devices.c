/* devices.c - see devices.h */
#include "backend/devices.h"

#include "backend/backend.h"
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
#endif

void backend_list_devices(buf *out)
{
    backend *cpu = backend_cpu_new(0);
    buf_printf(out, "  %s\n", cpu->name);
    cpu->ops->free(cpu);
    list_gpus(out);
}
