/* punica_kernels.c - see punica_kernels.h
 *
 * The kernels and their launchers are the engine's (backend/cuda/sgmv.h). A plan holds the tiles and tables that they
 * read, in device memory. */
#include "kernels/punica_kernels.h"

#include <stdint.h>
#include <stdlib.h>

#include "backend/cuda/sgmv.h"
#include "base/mem.h"

_Static_assert(PUNICA_MAX_PARTS == MAX_PARTS, "a segment of a plan is a site");

#define EXPORT __attribute__((visibility("default")))

/* Offsets in the one block of a plan that kernels read: the number of tiles, the tiles, then a table of one entry for
 * each segment. */
typedef struct { size_t tiles, tables, bytes; } layout;

struct punica_sgmv_plan {
    int device, arch, n_sms;
    device_failure failure; /* of the call at hand */
    dtype type;
    punica_sgmv_shape shape;
    layout at;
    char *device_block; /* [at.bytes] */
    char *host_block;   /* [at.bytes] pinned */
    cudaEvent_t copied; /* host_block to device_block */
    float *v;           /* [max_rows, v_cols] for lora_add */
    int n_tiles;        /* as set last */
};

static _Thread_local err last;

static bool keep(punica_sgmv_plan *p, cudaError_t status, const char *what)
{
    return device_failure_keep(&p->failure, p->device, status, what);
}

/* Returns 0, or -1 with this call's failure in `last`, and clears it. */
static int result(punica_sgmv_plan *p)
{
    int failed = device_failure_report(&p->failure, &last);
    p->failure.happened = false;
    return failed;
}

EXPORT const char *punica_kernels_error(void)
{
    return last.msg;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static int check_shape(const punica_sgmv_shape *s)
{
    if (s->type != PUNICA_F16 && s->type != PUNICA_BF16)
        return err_set(&last, "type %d is neither PUNICA_F16 nor PUNICA_BF16", (int)s->type);
    if (s->n_parts < 1 || s->n_parts > PUNICA_MAX_PARTS)
        return err_set(&last, "%d parts; 1 to %d are possible", s->n_parts, PUNICA_MAX_PARTS);
    if (s->in < 1 || s->max_rows < 1 || s->max_segments < 1)
        return err_set(&last, "in %d, max_rows %d, max_segments %d: all must be positive", s->in, s->max_rows,
                       s->max_segments);
    if (s->max_rank < 1 || s->max_rank > LORA_MAX_RANK)
        return err_set(&last, "max_rank %d is not within 1 to %d", s->max_rank, LORA_MAX_RANK);
    for (int i = 0; i < s->n_parts; i++)
        if (s->out[i] < 1)
            return err_set(&last, "out %d of part %d must be positive", s->out[i], i);
    return 0;
}

static int open_device(punica_sgmv_plan *p)
{
    struct cudaDeviceProp is;
    if (keep(p, cudaGetDevice(&p->device), "find") || keep(p, cudaGetDeviceProperties(&is, p->device), "describe"))
        return result(p);
    p->arch = 10 * is.major + is.minor;
    p->n_sms = is.multiProcessorCount;
    if (is.major < 8)
        return err_set(&last, "GPU %d (%s) is sm_%d%d; sm_80 or newer is needed", p->device, is.name, is.major,
                       is.minor);
    return 0;
}

static layout lay_out(const punica_sgmv_shape *s)
{
    layout l = {.tiles = 16};
    l.tables = l.tiles + (size_t)s->max_rows * sizeof(sgmv_tile);
    l.bytes = l.tables + (size_t)s->max_segments * sizeof(lora_entry);
    return l;
}

static int claim(punica_sgmv_plan *p)
{
    size_t v_bytes = (size_t)p->shape.max_rows * (size_t)punica_sgmv_v_cols(p) * sizeof(float);
    if (keep(p, cudaMalloc((void **)&p->device_block, p->at.bytes), "memory of a plan") ||
        keep(p, cudaMalloc((void **)&p->v, v_bytes), "memory of a plan") ||
        keep(p, cudaHostAlloc((void **)&p->host_block, p->at.bytes, 0), "pinned memory of a plan") ||
        keep(p, cudaEventCreateWithFlags(&p->copied, cudaEventDisableTiming), "event of a plan") ||
        keep(p, cudaMemset(p->device_block, 0, p->at.bytes), "memory of a plan") ||
        keep(p, cudaStreamSynchronize(cudaStreamLegacy), "memory of a plan"))
        return result(p);
    return 0;
}

EXPORT int punica_sgmv_plan_new(punica_sgmv_plan **plan, const punica_sgmv_shape *shape)
{
    *plan = NULL;
    if (check_shape(shape))
        return -1;
    punica_sgmv_plan *p = XNEW(punica_sgmv_plan);
    p->shape = *shape;
    p->at = lay_out(shape);
    p->type = shape->type == PUNICA_F16 ? DTYPE_F16 : DTYPE_BF16;
    device_failure_init(&p->failure);
    if (open_device(p) || claim(p)) {
        punica_sgmv_plan_free(p);
        return -1;
    }
    *plan = p;
    return 0;
}

EXPORT void punica_sgmv_plan_free(punica_sgmv_plan *p)
{
    if (!p)
        return;
    if (p->copied)
        cudaEventDestroy(p->copied);
    cudaFreeHost(p->host_block);
    cudaFree(p->v);
    cudaFree(p->device_block);
    device_failure_deinit(&p->failure);
    free(p);
}

EXPORT int punica_sgmv_v_cols(const punica_sgmv_plan *p)
{
    return p->shape.n_parts * p->shape.max_rank;
}

static int check_segments(const punica_sgmv_shape *s, int n, const int *indptr, const punica_lora *adapter)
{
    if (n < 0 || n > s->max_segments)
        return err_set(&last, "%d segments; the plan was made for up to %d", n, s->max_segments);
    if (n > 0 && (indptr[0] < 0 || indptr[n] > s->max_rows))
        return err_set(&last, "rows %d to %d; the plan was made for %d rows", indptr[0], indptr[n], s->max_rows);
    for (int i = 0; i < n; i++)
        if (indptr[i + 1] < indptr[i])
            return err_set(&last, "segment %d ends at row %d before it begins at %d", i, indptr[i + 1], indptr[i]);
    for (int i = 0; i < n * s->n_parts; i++) {
        const punica_lora *l = &adapter[i];
        if (l->rank < 0 || l->rank > s->max_rank)
            return err_set(&last, "segment %d has rank %d; the plan was made for up to %d", i / s->n_parts, l->rank,
                           s->max_rank);
        if (l->rank > 0 && (!l->a || !l->b || !aligned(l->a) || !aligned(l->b)))
            return err_set(&last, "segment %d: a or b is missing or not aligned to 16 bytes", i / s->n_parts);
    }
    return 0;
}

static lora_entry entry_of(const punica_lora *adapter, int n_parts)
{
    lora_entry e = {.rank = {0}};
    for (int i = 0; i < n_parts; i++) {
        e.a[i] = adapter[i].a;
        e.b[i] = adapter[i].b;
        e.rank[i] = adapter[i].rank;
        e.scale[i] = adapter[i].scale;
    }
    return e;
}

EXPORT int punica_sgmv_plan_set(punica_sgmv_plan *p, int n_segments, const int *indptr, const punica_lora *adapter,
                                punica_stream stream)
{
    if (check_segments(&p->shape, n_segments, indptr, adapter))
        return -1;
    if (keep(p, cudaEventSynchronize(p->copied), "an earlier setting of the plan"))
        return result(p);
    sgmv_tile *tile = (sgmv_tile *)(p->host_block + p->at.tiles);
    lora_entry *table = (lora_entry *)(p->host_block + p->at.tables);
    const lora_entry *there = (const lora_entry *)(p->device_block + p->at.tables);
    int n_tiles = 0, n_parts = p->shape.n_parts;
    for (int i = 0; i < n_segments; i++) {
        table[i] = entry_of(adapter + i * n_parts, n_parts);
        for (int row = indptr[i], left; row < indptr[i + 1]; row += SGMV_TILE) {
            left = indptr[i + 1] - row;
            tile[n_tiles++] = (sgmv_tile){there + i, row, left < SGMV_TILE ? left : SGMV_TILE};
        }
    }
    *(int *)p->host_block = p->n_tiles = n_tiles;
    size_t used = p->at.tables + (size_t)n_segments * sizeof(lora_entry);
    if (!keep(p, cudaMemcpyAsync(p->device_block, p->host_block, used, cudaMemcpyHostToDevice, stream), "set a plan"))
        keep(p, cudaEventRecord(p->copied, stream), "set a plan");
    return result(p);
}

/* Writes the tiles as set last; -1 with the failure kept. While a graph is captured, the grid is made for the largest
 * batch. */
static int find_tiles(punica_sgmv_plan *p, punica_stream stream, sgmv_tiles *tiles)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (keep(p, cudaStreamIsCapturing(stream, &status), "look at the stream"))
        return -1;
    *tiles = (sgmv_tiles){.tile = (const sgmv_tile *)(p->device_block + p->at.tiles),
                          .n_tiles = (const int *)p->device_block,
                          .max_tiles = status == cudaStreamCaptureStatusNone ? p->n_tiles : p->shape.max_rows};
    return 0;
}

/* overlaps: the launch overlaps the kernel before, which must keep kernel.cuh's rules and write no weights. */
static launch_context context_of(punica_sgmv_plan *p, punica_stream stream, bool overlaps)
{
    return (launch_context){stream, p->device, p->n_sms, p->arch, overlaps && p->arch >= 90, &p->failure};
}

static int queue_expand(punica_sgmv_plan *p, void *y, const float *v, punica_stream stream, bool after_shrink)
{
    const punica_sgmv_shape *s = &p->shape;
    int cols = 0;
    for (int i = 0; i < s->n_parts; i++)
        cols += s->out[i];
    tensor from = {(float *)v, DTYPE_F32, s->max_rows, punica_sgmv_v_cols(p)};
    tensor to = {y, p->type, s->max_rows, cols};
    launch_context on = context_of(p, stream, after_shrink);
    sgmv_tiles tiles;
    if (find_tiles(p, stream, &tiles) == 0)
        sgmv_launch_expand(&on, &tiles, &to, &from, 0, s->n_parts, s->out);
    return result(p);
}

EXPORT int punica_sgmv_shrink(punica_sgmv_plan *p, float *v, const void *x, punica_stream stream)
{
    const punica_sgmv_shape *s = &p->shape;
    if (!aligned(x))
        return err_set(&last, "x is not aligned to 16 bytes");
    tensor from = {(void *)x, p->type, s->max_rows, s->in};
    tensor to = {v, DTYPE_F32, s->max_rows, punica_sgmv_v_cols(p)};
    launch_context on = context_of(p, stream, false);
    sgmv_tiles tiles;
    if (find_tiles(p, stream, &tiles) == 0)
        sgmv_launch_shrink(&on, &tiles, &to, &from, 0);
    return result(p);
}

EXPORT int punica_sgmv_expand(punica_sgmv_plan *p, void *y, const float *v, punica_stream stream)
{
    if (!aligned(y))
        return err_set(&last, "y is not aligned to 16 bytes");
    return queue_expand(p, y, v, stream, false);
}

EXPORT int punica_lora_add(punica_sgmv_plan *p, void *y, const void *x, punica_stream stream)
{
    if (!aligned(y))
        return err_set(&last, "y is not aligned to 16 bytes");
    return punica_sgmv_shrink(p, p->v, x, stream) || queue_expand(p, y, p->v, stream, true) ? -1 : 0;
}
