/* load.c - see load.h
 *
 * The main thread decodes a batch of distinct adapters; a second thread uploads one more adapter from an image in
 * pinned host memory and drops it again, once in the time of a step, as the engine's loader does. */
#include "bench/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "backend/group.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/decode.h"
#include "bench/median.h"
#include "model/lora.h"

enum { N_COPIES = 20, MAX_LOADS = 4096 };

typedef struct {
    backend *be;
    const lora *image;
    double interval; /* seconds from the beginning of a load to that of the next */
    atomic_bool stop;
    double seconds[MAX_LOADS];
    int n;
    bool failed;
    err e;
} loader;

load_options load_options_default(void)
{
    return (load_options){
        .device = "cpu", .tp = 1, .shape = "llama2-7b", .type = DTYPE_F16, .rank = 16, .batch = 31, .context = 512};
}

static void sleep_until(double when)
{
    double left = when - clock_now();
    if (left > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)},
                  NULL);
}

static void *load_again_and_again(void *arg)
{
    loader *l = arg;
    while (!atomic_load(&l->stop) && l->n < MAX_LOADS && !l->failed) {
        double start = clock_now();
        lora *a = lora_upload(l->image, l->be, &l->e);
        l->seconds[l->n++] = clock_now() - start;
        l->failed = !a;
        lora_free(a, l->be);
        sleep_until(start + l->interval);
    }
    return NULL;
}

/* Seconds of the copy alone: the same bytes from the same memory, while nothing else goes on. Negative with e set. */
static double time_copy(backend *be, const lora *image, err *e)
{
    double seconds[N_COPIES];
    void *to = be->ops->alloc(be, image->bytes, e);
    if (!to)
        return -1;
    for (int i = 0; i < N_COPIES; i++) {
        double start = clock_now();
        be->ops->upload(be, to, image->data, image->bytes);
        seconds[i] = clock_now() - start;
    }
    be->ops->release(be, to);
    return median(seconds, N_COPIES);
}

static int measure(const load_options *o, backend *be, decode_bench *d, loader *l, err *e)
{
    const decode_rows rows = {.batch = o->batch, .context = o->context, .w = WORKLOAD_DISTINCT};
    decode_floor work;
    pthread_t thread;
    double copy = time_copy(be, l->image, e), before = decode_time(d, rows, &work, e);
    if (copy < 0 || before < 0)
        return -1;
    l->interval = before;
    CHECK(pthread_create(&thread, NULL, load_again_and_again, l) == 0);
    double during = decode_time(d, rows, &work, e);
    atomic_store(&l->stop, true);
    pthread_join(thread, NULL);
    if (l->failed)
        *e = l->e;
    if (during < 0 || l->failed)
        return -1;
    double load = median(l->seconds, l->n), size = (double)l->image->bytes;
    printf("adapter of %.1f MB; the copy alone takes %.3f ms (%.1f GB/s)\n", size * 1e-6, copy * 1e3,
           size / copy * 1e-9);
    printf("step of %d decodes: %.3f ms; with an adapter loaded in every step: %.3f ms (%+.1f%%)\n", o->batch,
           before * 1e3, during * 1e3, 100 * (during / before - 1));
    printf("load while decoding, median of %d: %.3f ms, %.2f times the copy\n", l->n, load * 1e3, load / copy);
    return 0;
}

/* Makes an adapter in the memory that the backend copies from fastest. NULL with e set. */
static lora *make_image(backend *be, const model_config *c, int rank, dtype type, err *e)
{
    lora *host = lora_random(c, group_ranks(be), rank, type, 12345);
    void *pinned = be->ops->alloc_host(be, host->bytes);
    if (!pinned) {
        lora_free(host, NULL);
        err_set(e, "not enough host memory that can be pinned for an adapter");
        return NULL;
    }
    memcpy(pinned, host->data, host->bytes);
    lora *image = lora_index(host, pinned);
    lora_free(host, NULL);
    return image;
}

static void drop_image(backend *be, lora *image)
{
    be->ops->release_host(be, image->data);
    image->data = NULL;
    lora_free(image, NULL);
}

int load_run(const load_options *o, err *e)
{
    backend *be = backend_open(o->device, o->tp, o->type, 0, e);
    if (!be)
        return -1;
    decode_options opt = {.shape = o->shape,
                          .n_ranks = 1,
                          .rank = {o->rank},
                          .form = o->form,
                          .max_batch = o->batch,
                          .max_positions = o->batch * o->context,
                          .samples = true};
    decode_bench *d = decode_new(be, &opt, o->type, e);
    int status = -1;
    if (d) {
        const model_config *c = &decode_model(d)->config;
        loader *l = XNEW(loader);
        lora *image = make_image(be, c, o->rank, backend_weight_type(be, c->type), e);
        l->be = be;
        l->image = image;
        printf("punica " PUNICA_VERSION " bench load on %s, %s, rank %d\n", be->name, o->shape, o->rank);
        if (image) {
            status = measure(o, be, d, l, e);
            drop_image(be, image);
        }
        free(l);
    }
    decode_free(d);
    backend_close(be);
    return status;
}
