/* cuda_backend.c - the op table on an NVIDIA GPU: memory, uploads, failures
 *
 * Ops run on one stream, in order. Weights and adapters are uploaded on a second stream, from pinned staging memory, so
 * that loading an adapter does not hold up the steps meanwhile; pages of the KvCache go to the host and back on two
 * more (cuda_copy.c). Device memory comes from the driver's pool, which keeps what is released: once it has grown,
 * alloc and release do not stop the device. alloc waits until the second stream is idle. Threads other than the one
 * that opened the device may alloc, release and upload. */
#include "backend/cuda/cuda.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define STAGING_BYTES ((size_t)16 << 20) /* of each of two; no measurement is kept */
#define MIB (1024.0 * 1024.0)
#define CUDA_MAX_HEAD_DIM 256               /* of attention's kernels */
#define CUDA_MAX_VOCAB 262144               /* the most that a single block can sample from (cuda_sample.cu) */
#define CUDA_MIN_SHARED ((size_t)164 << 10) /* of an SM, which attention's grids assume */

/* Returns the bytes of free memory, those that the pool holds and does not use included. */
static size_t cuda_available(backend *be)
{
    cuda_backend *cu = cuda_of(be);
    size_t free_bytes = 0, total = 0;
    uint64_t held = 0, used = 0;
    cuda_use(cu);
    cuda_keep(cu, cudaMemGetInfo(&free_bytes, &total), "memory info");
    cuda_keep(cu, cudaMemPoolGetAttribute(cu->memory, cudaMemPoolAttrReservedMemCurrent, &held), "memory info");
    cuda_keep(cu, cudaMemPoolGetAttribute(cu->memory, cudaMemPoolAttrUsedMemCurrent, &used), "memory info");
    return free_bytes + (size_t)(held - used);
}

static size_t cuda_memory(backend *be)
{
    size_t free_bytes = 0, total = 0;
    cuda_use(cuda_of(be));
    cuda_keep(cuda_of(be), cudaMemGetInfo(&free_bytes, &total), "memory info");
    return total;
}

void *cuda_alloc(backend *be, size_t bytes, err *e)
{
    cuda_backend *cu = cuda_of(be);
    void *p = NULL;
    cudaSetDevice(cu->device); /* the loader's thread has not set one */
    cudaError_t status = cudaMallocFromPoolAsync(&p, bytes ? bytes : 1, cu->memory, cu->uploads);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* clears the error: lack of memory is not a failure of the device */
        err_set(e, "GPU %d has not enough memory for another %.0f MiB; %.0f MiB are free", cu->device,
                (double)bytes / MIB, (double)cuda_available(be) / MIB);
        return NULL;
    }
    if (cuda_keep(cu, status, "alloc") || cuda_keep(cu, cudaMemsetAsync(p, 0, bytes, cu->uploads), "alloc") ||
        cuda_keep(cu, cudaStreamSynchronize(cu->uploads), "alloc")) {
        cuda_report(cu, e);
        return NULL;
    }
    return p;
}

/* Releases in order with the ops: those queued before may still use the memory. */
void cuda_release(backend *be, void *p)
{
    cuda_keep(cuda_of(be), cudaFreeAsync(p, cuda_of(be)->stream), "release");
}

static void *cuda_alloc_host(backend *be, size_t bytes)
{
    void *p = NULL;
    cudaSetDevice(cuda_of(be)->device);
    if (cudaHostAlloc(&p, bytes, 0) != cudaSuccess)
        cudaGetLastError();
    return p;
}

static void cuda_release_host(backend *be, void *p)
{
    (void)be;
    cudaFreeHost(p);
}

static bool is_pinned(const void *p)
{
    struct cudaPointerAttributes a;
    return cudaPointerGetAttributes(&a, p) == cudaSuccess && a.type == cudaMemoryTypeHost;
}

/* Returns when all is copied. Pinned memory is copied directly; other memory goes through two pinned buffers in turn,
 * so that one is filled while the other is being copied. */
void cuda_upload(backend *be, void *dst, const void *src, size_t bytes)
{
    cuda_backend *cu = cuda_of(be);
    cudaError_t status = cudaSetDevice(cu->device);
    if (is_pinned(src)) {
        cuda_keep(cu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cu->uploads), "upload");
        cuda_keep(cu, cudaStreamSynchronize(cu->uploads), "upload");
        return;
    }
    pthread_mutex_lock(&cu->upload_lock);
    for (size_t at = 0, i = 0; at < bytes && status == cudaSuccess; at += STAGING_BYTES, i = !i) {
        size_t n = bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;
        if ((status = cudaEventSynchronize(cu->staged[i])) != cudaSuccess)
            break;
        memcpy(cu->staging[i], (const char *)src + at, n);
        status = cudaMemcpyAsync((char *)dst + at, cu->staging[i], n, cudaMemcpyHostToDevice, cu->uploads);
        if (status == cudaSuccess)
            status = cudaEventRecord(cu->staged[i], cu->uploads);
    }
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(cu->uploads);
    pthread_mutex_unlock(&cu->upload_lock);
    cuda_keep(cu, status, "upload");
}

static void cuda_download(backend *be, void *dst, const void *src, size_t bytes)
{
    cuda_backend *cu = cuda_of(be);
    cuda_keep(cu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, cu->stream), "download");
    cuda_keep(cu, cudaStreamSynchronize(cu->stream), "download");
}

static int cuda_sync(backend *be, err *e)
{
    cuda_backend *cu = cuda_of(be);
    cuda_keep(cu, cudaStreamSynchronize(cu->stream), "an earlier op");
    return cuda_report(cu, e);
}

/* Copies a host matrix to the device as type `to`. */
static void put(cuda_backend *cu, void *dst, const tensor *host, dtype to)
{
    if (host->type == to) {
        cuda_upload(&cu->base, dst, host->data, tensor_bytes(host));
        return;
    }
    size_t bytes = (size_t)host->rows * (size_t)host->cols * dtype_size(to);
    void *converted = xmalloc(bytes);
    tensor_convert(converted, to, host);
    cuda_upload(&cu->base, dst, converted, bytes);
    free(converted);
}

/* Returns memory that lives as long as the backend, or NULL with e set. */
static void *hold(cuda_backend *cu, size_t bytes, err *e)
{
    void *p = cuda_alloc(&cu->base, bytes, e);
    if (!p)
        return NULL;
    cu->held = xgrow(cu->held, &cu->held_cap, (size_t)cu->n_held + 1, sizeof *cu->held);
    return cu->held[cu->n_held++] = p;
}

/* F32 vectors stay F32. */
static int cuda_adopt(backend *be, tensor *t, err *e)
{
    cuda_backend *cu = cuda_of(be);
    dtype to = t->rows == 1 && t->type == DTYPE_F32 ? DTYPE_F32 : be->act;
    tensor there = {.type = to, .rows = t->rows, .cols = t->cols};
    if (!(there.data = hold(cu, tensor_bytes(&there), e)))
        return -1;
    put(cu, there.data, t, to);
    *t = there;
    return cuda_report(cu, e);
}

/* Uploads an F8 matrix into slabs, through the scratch, as many rows at once as fit. */
static void put_slabs(cuda_backend *cu, char *dst, const tensor *host)
{
    size_t cols = (size_t)host->cols;
    int at_once = (int)(FP8_SCRATCH / cols / 8 * 8);
    for (int row = 0; row < host->rows; row += at_once) {
        int n = host->rows - row < at_once ? host->rows - row : at_once;
        cuda_upload(&cu->base, cu->unpacked, (const char *)host->data + (size_t)row * cols, (size_t)n * cols);
        cuda_fp8_pack(cu, dst + (size_t)row * cols, cu->unpacked, n, host->cols);
    }
    cuda_keep(cu, cudaStreamSynchronize(cu->uploads), "FP8 weights");
}

static bool lies_in_slabs(const tensor *t)
{
    return t->type == DTYPE_F8 && cuda_fp8_in_slabs(t->rows, t->cols);
}

/* Returns the offset of a part, where the one before ends at `at`: 16-bit parts follow each other without a gap, as do
 * F8 parts in slabs. */
static size_t place_after(const linear *w, int part, size_t at)
{
    const tensor *before = &w->part[part - 1].w, *t = &w->part[part].w;
    bool joined = before->type == DTYPE_F8 || t->type == DTYPE_F8 ? lies_in_slabs(before) && lies_in_slabs(t) : true;
    return joined ? at : (at + 255) / 256 * 256;
}

static int adopt_weights(cuda_backend *cu, linear *w, err *e)
{
    size_t place[MAX_PARTS], bytes = 0;
    for (int i = 0; i < w->n; i++) {
        tensor held = w->part[i].w;
        held.type = backend_weight_type(&cu->base, held.type);
        place[i] = i ? place_after(w, i, bytes) : 0;
        bytes = place[i] + tensor_bytes(&held);
        if (held.type == DTYPE_F8 && !cu->unpacked && !(cu->unpacked = hold(cu, FP8_SCRATCH, e)))
            return -1;
    }
    char *to = hold(cu, bytes, e);
    if (!to)
        return -1;
    for (int i = 0; i < w->n; i++) {
        tensor *t = &w->part[i].w;
        dtype held = backend_weight_type(&cu->base, t->type);
        if (lies_in_slabs(t))
            put_slabs(cu, to + place[i], t);
        else
            put(cu, to + place[i], t, held);
        t->data = to + place[i];
        t->type = held;
    }
    return 0;
}

/* Uploads scales in the layout of fp8.cuh: for a matrix in slabs from [pieces, rows] to [rows / 8, pieces, 8]. */
static void put_scales(cuda_backend *cu, float *dst, const proj *p)
{
    int pieces = p->scale.rows, rows = p->scale.cols;
    const float *from = p->scale.data;
    float *moved = xmalloc(tensor_bytes(&p->scale));
    bool in_slabs = lies_in_slabs(&p->w);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < pieces; i++)
            moved[in_slabs ? (row / 8 * pieces + i) * 8 + row % 8 : i * rows + row] =
                from[(size_t)i * (size_t)rows + (size_t)row];
    cuda_upload(&cu->base, dst, moved, tensor_bytes(&p->scale));
    free(moved);
}

static int adopt_scales(cuda_backend *cu, linear *w, err *e)
{
    size_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        bytes += w->part[i].scale.data ? tensor_bytes(&w->part[i].scale) : 0;
    if (bytes == 0)
        return 0;
    char *at = hold(cu, bytes, e);
    if (!at)
        return -1;
    for (int i = 0; i < w->n; i++) {
        tensor *t = &w->part[i].scale;
        if (!t->data)
            continue;
        put_scales(cu, (float *)at, &w->part[i]);
        t->data = at;
        at += tensor_bytes(t);
    }
    return 0;
}

static int adopt_biases(cuda_backend *cu, linear *w, err *e)
{
    size_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        bytes += w->part[i].bias.data ? tensor_bytes(&w->part[i].bias) : 0;
    if (bytes == 0)
        return 0;
    char *at = hold(cu, bytes, e);
    if (!at)
        return -1;
    for (int i = 0; i < w->n; i++) {
        tensor *t = &w->part[i].bias;
        if (!t->data)
            continue;
        CHECK(t->type == DTYPE_F32);
        cuda_upload(&cu->base, at, t->data, tensor_bytes(t));
        t->data = at;
        at += tensor_bytes(t);
    }
    return 0;
}

static int cuda_adopt_linear(backend *be, linear *w, err *e)
{
    cuda_backend *cu = cuda_of(be);
    if (adopt_weights(cu, w, e) || adopt_scales(cu, w, e) || adopt_biases(cu, w, e))
        return -1;
    return cuda_report(cu, e);
}

static size_t cuda_lora_table_bytes(backend *be, int n_sites)
{
    (void)be;
    return (size_t)n_sites * sizeof(lora_entry);
}

static void cuda_bind_lora(backend *be, lora *l, void *memory)
{
    lora_entry *table = XNEW_ARRAY(lora_entry, (size_t)l->n_sites);
    for (int i = 0; i < l->n_sites * MAX_PARTS; i++) {
        int site = i / MAX_PARTS, part = i % MAX_PARTS;
        const lora_part *p = &l->site[site].part[part];
        CHECK(p->rank == 0 || (p->a.type == be->act && p->b.type == be->act));
        table[site].rank[part] = p->rank;
        table[site].scale[part] = p->scale;
        table[site].a[part] = p->a.data;
        table[site].b[part] = p->b.data;
    }
    cuda_upload(be, memory, table, (size_t)l->n_sites * sizeof *table);
    free(table);
    l->table = memory;
}

static int cuda_reserve(backend *be, const extent *x, err *e)
{
    cuda_backend *cu = cuda_of(be);
    if (x->h.head_dim > CUDA_MAX_HEAD_DIM)
        return err_set(e, "heads of %d are not supported on a GPU; %d is the most", x->h.head_dim, CUDA_MAX_HEAD_DIM);
    if (x->vocab > CUDA_MAX_VOCAB)
        return err_set(e, "a vocabulary of %d is not supported on a GPU; %d is the most", x->vocab, CUDA_MAX_VOCAB);
    void *old[] = {cu->v_partials, cu->attention_partials};
    for (int i = 0; i < 2; i++)
        if (old[i])
            cuda_release(be, old[i]);
    cu->limit = *x;
    cu->attention_partials_bytes = cuda_attention_scratch(x);
    cu->v_partials = cuda_alloc(be, (size_t)SGMV_SPLITS * FUSED_ROWS * (size_t)x->max_rank_sum * sizeof(float), e);
    cu->attention_partials = cuda_alloc(be, cu->attention_partials_bytes, e);
    if (!cu->v_partials || !cu->attention_partials || cuda_step_reserve(cu, x, e) || cuda_sampler_reserve(cu, x, e))
        return err_wrap(e, "scratch for %d rows", x->max_rows);
    return 0;
}

static void destroy_locks(cuda_backend *cu)
{
    device_failure_deinit(&cu->failure);
    pthread_mutex_destroy(&cu->upload_lock);
}

/* Waits for the device first. Frees everything even when the device has failed. */
static void cuda_free(backend *be)
{
    if (!be)
        return;
    cuda_backend *cu = cuda_of(be);
    cudaSetDevice(cu->device);
    cudaDeviceSynchronize();
    cuda_step_free(cu);
    cuda_sampler_free(cu);
    cuda_copy_close(cu);
    cuda_linear_deinit(cu);
    for (int i = 0; i < cu->n_held; i++)
        cudaFreeAsync(cu->held[i], cu->stream);
    free(cu->held);
    void *scratch[] = {cu->v_partials, cu->attention_partials};
    for (int i = 0; i < 2; i++)
        if (scratch[i])
            cudaFreeAsync(scratch[i], cu->stream);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(cu->staged[i]);
        cudaFreeHost(cu->staging[i]);
    }
    cudaStreamSynchronize(cu->stream);
    if (cu->memory)
        cudaMemPoolTrimTo(cu->memory, 0);
    cudaStreamDestroy(cu->stream);
    cudaStreamDestroy(cu->uploads);
    destroy_locks(cu);
    free(cu);
}

static const backend_ops cuda_ops = {
    .begin = cuda_begin,
    .end = cuda_end,
    .forget = cuda_forget,
    .embed = cuda_embed,
    .rms_norm = cuda_rms_norm,
    .add_rms_norm = cuda_add_rms_norm,
    .linear = cuda_linear,
    .sgmv_shrink = cuda_sgmv_shrink,
    .sgmv_expand = cuda_sgmv_expand,
    .head_norm = cuda_head_norm,
    .rope_append = cuda_rope_append,
    .attention = cuda_attention,
    .silu_mul = cuda_silu_mul,
    .gather = cuda_gather,
    .linear_shrink = cuda_linear_shrink,
    .expand_rope_append = cuda_expand_rope_append,
    .expand_add_rms_norm = cuda_expand_add_rms_norm,
    .expand_silu_mul = cuda_expand_silu_mul,
    .expand = cuda_expand,
    .sample = cuda_sample,
    .collect = cuda_collect,
    .reserve = cuda_reserve,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy_begin = cuda_copy_begin,
    .copy_ended = cuda_copy_ended,
    .copy_order = cuda_copy_order,
    .available = cuda_available,
    .memory = cuda_memory,
    .adopt = cuda_adopt,
    .adopt_linear = cuda_adopt_linear,
    .lora_table_bytes = cuda_lora_table_bytes,
    .bind_lora = cuda_bind_lora,
    .read_bandwidth = cuda_read_bandwidth,
    .sync = cuda_sync,
    .free = cuda_free,
};

static int open_device(cuda_backend *cu, err *e)
{
    struct cudaDeviceProp p;
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return err_set(e, "no NVIDIA GPU found (is the driver installed? try nvidia-smi)");
    if (cu->device < 0 || cu->device >= n)
        return err_set(e, "there is no GPU %d; this machine has %d (cuda:0 to cuda:%d)", cu->device, n, n - 1);
    if (cuda_keep(cu, cudaSetDevice(cu->device), "open") ||
        cuda_keep(cu, cudaGetDeviceProperties(&p, cu->device), "open"))
        return cuda_report(cu, e);
    if (p.major < 8)
        return err_set(e, "GPU %d (%s) is sm_%d%d; sm_80 or newer is needed", cu->device, p.name, p.major, p.minor);
    if (p.sharedMemPerMultiprocessor < CUDA_MIN_SHARED)
        return err_set(
            e,
            "GPU %d (%s) has %zu KiB of shared memory to a multiprocessor; %zu are needed (A100, H100 and their like)",
            cu->device, p.name, p.sharedMemPerMultiprocessor >> 10, CUDA_MIN_SHARED >> 10);
    cu->arch = 10 * p.major + p.minor;
    cu->n_sms = p.multiProcessorCount;
    snprintf(cu->name, sizeof cu->name, "cuda:%d (%.60s, %s)", cu->device, p.name, dtype_name(cu->base.act));
    return 0;
}

static int open_streams(cuda_backend *cu, err *e)
{
    uint64_t keep_all = UINT64_MAX;
    if (cuda_keep(cu, cudaStreamCreateWithFlags(&cu->stream, cudaStreamNonBlocking), "stream") ||
        cuda_keep(cu, cudaStreamCreateWithFlags(&cu->uploads, cudaStreamNonBlocking), "stream") ||
        cuda_keep(cu, cudaDeviceGetDefaultMemPool(&cu->memory, cu->device), "memory pool") ||
        cuda_keep(cu, cudaMemPoolSetAttribute(cu->memory, cudaMemPoolAttrReleaseThreshold, &keep_all), "memory pool"))
        return cuda_report(cu, e);
    for (int i = 0; i < 2; i++)
        if (cuda_keep(cu, cudaHostAlloc(&cu->staging[i], STAGING_BYTES, 0), "pinned host memory") ||
            cuda_keep(cu, cudaEventCreateWithFlags(&cu->staged[i], cudaEventDisableTiming), "event"))
            return cuda_report(cu, e);
    return 0;
}

backend *backend_cuda_new(int device, dtype act, err *e)
{
    CHECK(act != DTYPE_F32);
    cuda_backend *cu = XNEW(cuda_backend);
    cu->base = (backend){.ops = &cuda_ops, .name = cu->name, .act = act, .runs_ahead = true};
    cu->device = device;
    cu->max_recorded = INT_MAX;
    device_failure_init(&cu->failure);
    CHECK(pthread_mutex_init(&cu->upload_lock, NULL) == 0);
    if (open_device(cu, e)) {
        destroy_locks(cu);
        free(cu);
        return NULL;
    }
    if (open_streams(cu, e) || cuda_copy_open(cu, e) || cuda_linear_init(cu, e)) {
        cuda_free(&cu->base);
        return NULL;
    }
    return &cu->base;
}
