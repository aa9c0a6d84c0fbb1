/* cuda_copy.c - batches of copies beside the ops: a stream for each direction, so that the link is used both ways
 *
 * Two events around each batch tell when it is done and how long it took. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct { cudaEvent_t from, to; } copy_batch;

typedef struct {
    cudaStream_t stream;
    copy_batch *batch; /* [n_made]; the first n are under way, oldest first; the others are free */
    size_t cap;
    int n, n_made;
} lane;

struct copier {
    lane lane[N_COPY_LANES];
    cudaEvent_t ops; /* recorded behind the ops that the latest behind_ops batch waits for */
};

int cuda_copy_open(cuda_backend *cu, err *e)
{
    copier *c = cu->copier = XNEW(copier);
    if (cuda_keep(cu, cudaEventCreateWithFlags(&c->ops, cudaEventDisableTiming), "event") ||
        cuda_keep(cu, cudaStreamCreateWithFlags(&c->lane[COPY_OUT].stream, cudaStreamNonBlocking), "stream") ||
        cuda_keep(cu, cudaStreamCreateWithFlags(&c->lane[COPY_IN].stream, cudaStreamNonBlocking), "stream"))
        return cuda_report(cu, e);
    return 0;
}

void cuda_copy_close(cuda_backend *cu)
{
    copier *c = cu->copier;
    if (!c)
        return;
    for (int i = 0; i < N_COPY_LANES; i++) {
        lane *l = &c->lane[i];
        for (int k = 0; k < l->n_made; k++) {
            cudaEventDestroy(l->batch[k].from);
            cudaEventDestroy(l->batch[k].to);
        }
        free(l->batch);
        if (l->stream)
            cudaStreamDestroy(l->stream);
    }
    if (c->ops)
        cudaEventDestroy(c->ops);
    free(c);
}

/* Returns the lane's next batch, a free one or a new one. */
static copy_batch *add_batch(cuda_backend *cu, lane *l)
{
    if (l->n == l->n_made) {
        l->batch = xgrow(l->batch, &l->cap, (size_t)l->n_made + 1, sizeof *l->batch);
        copy_batch *b = &l->batch[l->n_made++];
        *b = (copy_batch){0};
        cuda_keep(cu, cudaEventCreate(&b->from), "event");
        cuda_keep(cu, cudaEventCreate(&b->to), "event");
    }
    return &l->batch[l->n++];
}

void cuda_copy_begin(backend *be, copy_lane way, const copy_piece *piece, int n, bool behind_ops)
{
    cuda_backend *cu = cuda_of(be);
    lane *l = &cu->copier->lane[way];
    cuda_use(cu);
    copy_batch *b = add_batch(cu, l);
    if (behind_ops) {
        cuda_keep(cu, cudaEventRecord(cu->copier->ops, cu->stream), "copy");
        cuda_keep(cu, cudaStreamWaitEvent(l->stream, cu->copier->ops, 0), "copy");
    }
    cuda_keep(cu, cudaEventRecord(b->from, l->stream), "copy");
    for (int i = 0; i < n; i++)
        cuda_keep(cu,
                  cudaMemcpyAsync(piece[i].dst, piece[i].src, piece[i].bytes,
                                  way == COPY_OUT ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, l->stream),
                  "copy");
    cuda_keep(cu, cudaEventRecord(b->to, l->stream), "copy");
}

/* A batch that failed counts as done; collect() reports the failure. */
bool cuda_copy_ended(backend *be, copy_lane way, bool wait, double *seconds)
{
    cuda_backend *cu = cuda_of(be);
    lane *l = &cu->copier->lane[way];
    float ms = 0;
    if (l->n == 0)
        return false;
    cuda_use(cu);
    copy_batch b = l->batch[0];
    cudaError_t status = wait ? cudaEventSynchronize(b.to) : cudaEventQuery(b.to);
    if (status == cudaErrorNotReady) {
        cudaGetLastError(); /* clears it as the last error, which would be taken for a failure */
        return false;
    }
    if (!cuda_keep(cu, status, "copy"))
        cuda_keep(cu, cudaEventElapsedTime(&ms, b.from, b.to), "copy");
    memmove(l->batch, l->batch + 1, (size_t)(--l->n) * sizeof *l->batch);
    l->batch[l->n] = b;
    *seconds = ms * 1e-3;
    return true;
}

void cuda_copy_order(backend *be)
{
    cuda_backend *cu = cuda_of(be);
    cuda_use(cu);
    for (int i = 0; i < N_COPY_LANES; i++) {
        const lane *l = &cu->copier->lane[i];
        if (l->n > 0)
            cuda_keep(cu, cudaStreamWaitEvent(cu->stream, l->batch[l->n - 1].to, 0), "copy");
    }
}
