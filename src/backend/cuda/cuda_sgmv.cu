/* cuda_sgmv.cu - the adapters' products as ops of their own: v = scale * x A^T, then y += v B
 *
 * For invocations with prefills and for large batches; decodes of up to FUSED_ROWS rows have both in the
 * kernels around them. sgmv_shrink.cuh and sgmv_expand.cuh hold the kernels for rows of whole 16-byte vectors
 * (lora_place aligns matrices to more than that); the plain ones here take any shape. */
#include "backend/cuda/sgmv_expand.cuh"
#include "backend/cuda/sgmv_shrink.cuh"

/* A block owns a tile, a warp one rank of one row at a time, a lane every 32nd input. */
template <typename T>
static __global__ void shrink_plain(step s, int site, const T *x, int in, float *v, int v_cols)
{
    wait_for_previous();
    if ((int)blockIdx.x >= s.n[COUNT_TILES])
        return;
    sgmv_tile tile = s.tile[blockIdx.x];
    const lora_entry *e = tile.table + site;
    for (int part = 0; part < 3; part++)
        for (int i = warp_id(); i < e->rank[part] * tile.n_rows; i += SGMV_WARPS) {
            int r = i / tile.n_rows, row = tile.row + i % tile.n_rows;
            const T *a = (const T *)e->a[part] + (size_t)r * in, *from = x + (size_t)row * in;
            float sum = 0.0f;
            for (int k = lane_id(); k < in; k += 32)
                sum += to_float(a[k]) * to_float(from[k]);
            sum = warp_sum(sum);
            if (lane_id() == 0)
                v[(size_t)row * v_cols + rank_offset(e, part) + r] = e->scale[part] * sum;
        }
}

/* Block (i, j) owns columns from i * SGMV_WORKERS of tile j, a thread one of them. */
template <typename T>
static __global__ void expand_plain(step s, int site, expand_columns c, T *y, const float *v, int v_cols)
{
    wait_for_previous();
    int col = (int)(blockIdx.x * SGMV_WORKERS + threadIdx.x), part = c.n - 1;
    if ((int)blockIdx.y >= s.n[COUNT_TILES] || col >= c.cols)
        return;
    while (col < pick(c.col, part))
        part--;
    sgmv_tile tile = s.tile[blockIdx.y];
    const lora_entry *e = tile.table + site;
    int out = pick(c.out, part);
    const T *b = (const T *)e->b[part] + col - pick(c.col, part);
    for (int row = tile.row; e->rank[part] > 0 && row < tile.row + tile.n_rows; row++) {
        const float *from = v + (size_t)row * v_cols + rank_offset(e, part);
        float sum = 0.0f;
        for (int r = 0; r < e->rank[part]; r++)
            sum += from[r] * to_float(b[(size_t)r * out]);
        T *to = y + (size_t)row * c.cols + col;
        *to = from_float<T>(to_float(*to) + sum);
    }
}

/* A ring is more shared memory than a kernel may have unasked. All of an SM's is asked for, so that a block of
 * the next kernel fits in before the last one of this has gone. */
template <typename... P> static void allow_ring(cuda_backend *cu, void (*kernel)(P...))
{
    cuda_keep(cu, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SGMV_RING), "sgmv");
    cuda_keep(cu, cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), "sgmv");
}

/* Units of shrink, at most, when every adapter has the largest ranks. */
static long max_shrink_units(const cuda_backend *cu, int rank_sum)
{
    return (long)cu->shape.max_tiles * (rank_sum / SGMV_GROUP + 3);
}

template <typename T> static void run_shrink(cuda_backend *cu, float *v, int v_cols, const T *x, int in, int site)
{
    int max_tiles = cu->shape.max_tiles;
    if (in % 8 != 0) {
        launch(cu, "sgmv_shrink", shrink_plain<T>, max_tiles, SGMV_WORKERS, 0, cu->step, site, x, in, v, v_cols);
        return;
    }
    int cluster = cu->arch >= 90 ? SHRINK_CLUSTER : 1;
    long most = cu->n_sms / cluster, wanted = max_shrink_units(cu, v_cols);
    unsigned blocks = (unsigned)(cluster * (wanted < most ? wanted : most));
    allow_ring(cu, shrink_tiles<T>);
    launch_clusters(cu, "sgmv_shrink", shrink_tiles<T>, blocks, SGMV_THREADS, SGMV_RING, (unsigned)cluster, cu->step,
                    site, cluster, x, in, v, v_cols);
}

template <typename T>
static void run_expand(cuda_backend *cu, T *y, const float *v, int v_cols, const expand_columns *c, bool wide, int site)
{
    int max_tiles = cu->shape.max_tiles;
    if (!wide) {
        dim3 grid((unsigned)(c->cols + SGMV_WORKERS - 1) / SGMV_WORKERS, (unsigned)max_tiles);
        launch(cu, "sgmv_expand", expand_plain<T>, grid, SGMV_WORKERS, 0, cu->step, site, *c, y, v, v_cols);
        return;
    }
    long wanted = (long)max_tiles * (c->cols / 64 + c->n);
    unsigned blocks = (unsigned)(wanted < cu->n_sms ? wanted : cu->n_sms);
    allow_ring(cu, expand_tiles<T>);
    launch(cu, "sgmv_expand", expand_tiles<T>, blocks, SGMV_THREADS, SGMV_RING, cu->step, site, *c, y, v, v_cols);
}

void cuda_sgmv_shrink(backend *be, tensor *v, const tensor *x, const batch *b, int site)
{
    (void)b;
    CHECK(v->type == DTYPE_F32 && x->type == be->act && v->rows == x->rows);
    cuda_backend *cu = cuda_of(be);
    if (be->act == DTYPE_F16)
        run_shrink(cu, (float *)v->data, v->cols, (const f16 *)x->data, x->cols, site);
    else
        run_shrink(cu, (float *)v->data, v->cols, (const bf16 *)x->data, x->cols, site);
}

void cuda_sgmv_expand(backend *be, tensor *y, const tensor *v, const batch *b, int site, const linear *w)
{
    (void)b;
    CHECK(v->type == DTYPE_F32 && y->type == be->act && v->rows == y->rows);
    cuda_backend *cu = cuda_of(be);
    expand_columns c = {.n = w->n};
    bool wide = true;
    for (int i = 0; i < w->n; i++) {
        c.out[i] = w->part[i].w.rows;
        c.col[i] = c.cols;
        c.cols += c.out[i];
        wide = wide && c.out[i] % 8 == 0;
    }
    CHECK(c.cols == y->cols);
    if (be->act == DTYPE_F16)
        run_expand(cu, (f16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
    else
        run_expand(cu, (bf16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
}
