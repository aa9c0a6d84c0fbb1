/* launch.c - see launch.h */
#include "backend/cuda/launch.h"

void device_failure_init(device_failure *f)
{
    *f = (device_failure){.happened = false};
    CHECK(pthread_mutex_init(&f->lock, NULL) == 0);
}

void device_failure_deinit(device_failure *f)
{
    pthread_mutex_destroy(&f->lock);
}

void device_failure_set(device_failure *f, const err *e)
{
    pthread_mutex_lock(&f->lock);
    if (!f->happened)
        f->first = *e;
    f->happened = true;
    pthread_mutex_unlock(&f->lock);
}

bool device_failure_keep(device_failure *f, int device, cudaError_t status, const char *what)
{
    err e;
    if (status == cudaSuccess)
        return false;
    err_set(&e, "GPU %d: %s: %s", device, what, cudaGetErrorString(status));
    device_failure_set(f, &e);
    return true;
}

int device_failure_report(device_failure *f, err *e)
{
    pthread_mutex_lock(&f->lock);
    bool happened = f->happened;
    if (happened)
        *e = f->first;
    pthread_mutex_unlock(&f->lock);
    return happened ? -1 : 0;
}

bool device_failure_happened(device_failure *f)
{
    err ignored;
    return device_failure_report(f, &ignored) != 0;
}
