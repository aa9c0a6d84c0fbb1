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
        for (int i = warp_id(); i < e->rank[part] * tile.n_rows; i += SHRINK_WARPS) {
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

/* Block (i, j) owns columns from i * EXPAND_THREADS of tile j, a thread one of them. */
template <typename T>
static __global__ void expand_plain(step s, int site, expand_columns c, T *y, const float *v, int v_cols)
{
    wait_for_previous();
    int col = (int)(blockIdx.x * EXPAND_THREADS + threadIdx.x), part = c.n - 1;
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

/* Pieces that the inputs are cut into: with few tiles many, so that all SMs have something to read. */
static int shrink_splits(const cuda_backend *cu)
{
    int splits = cu->arch >= 90 ? SHRINK_SPLITS : 1;
    while (splits > 1 && splits * cu->shape.max_tiles > 2 * cu->n_sms)
        splits /= 2;
    return splits;
}

template <typename T>
static void run_shrink(cuda_backend *cu, float *v, int v_cols, const T *x, int in, int site)
{
    int max_tiles = cu->shape.max_tiles;
    if (in % 8 != 0) {
        launch(cu, "sgmv_shrink", shrink_plain<T>, max_tiles, SHRINK_THREADS, 0, cu->step, site, x, in, v,
               v_cols);
        return;
    }
    int splits = shrink_splits(cu), groups = (v_cols + SGMV_GROUP - 1) / SGMV_GROUP;
    int apart = cu->n_sms / (splits * max_tiles);
    dim3 grid((unsigned)splits, (unsigned)max_tiles, (unsigned)(apart < 1 ? 1 : apart < groups ? apart : groups));
    launch_clusters(cu, "sgmv_shrink", shrink_tiles<T>, grid, SHRINK_THREADS, 0, (unsigned)splits, cu->step, site,
                    x, in, v, v_cols);
}

/* Steps for each warp: with few tiles few, so that there are four blocks for each SM. */
static void divide_columns(expand_columns *c, const cuda_backend *cu)
{
    c->steps = EXPAND_STEPS;
    long wanted = 4 * cu->n_sms * 9 / 10;
    while (c->steps > 1 && (long)cu->shape.max_tiles * (c->cols / (c->steps * EXPAND_STRIDE)) < wanted)
        c->steps /= 2;
    for (int i = 0; i < c->n; i++)
        c->blocks[i] = (c->out[i] + c->steps * EXPAND_STRIDE - 1) / (c->steps * EXPAND_STRIDE);
}

template <typename T>
static void run_expand(cuda_backend *cu, T *y, const float *v, int v_cols, expand_columns *c, bool wide, int site)
{
    unsigned max_tiles = (unsigned)cu->shape.max_tiles;
    if (!wide) {
        dim3 grid((unsigned)(c->cols + EXPAND_THREADS - 1) / EXPAND_THREADS, max_tiles);
        launch(cu, "sgmv_expand", expand_plain<T>, grid, EXPAND_THREADS, 0, cu->step, site, *c, y, v, v_cols);
        return;
    }
    divide_columns(c, cu);
    dim3 grid((unsigned)(c->blocks[0] + c->blocks[1] + c->blocks[2]), max_tiles);
    size_t shared = expand_shared(c->steps, v_cols < LORA_MAX_RANK ? v_cols : LORA_MAX_RANK);
    if (shared > 48 << 10)
        cuda_keep(cu, cudaFuncSetAttribute(expand_tiles<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                  "sgmv_expand");
    launch(cu, "sgmv_expand", expand_tiles<T>, grid, EXPAND_THREADS, shared, cu->step, site, *c, y, v, v_cols);
}

void cuda_sgmv_shrink(backend *be, tensor *v, const tensor *x, const batch *b, int site)
{
    (void)b;
    CHECK(v->type == DTYPE_F32 && x->type == be->act && v->rows == x->rows);
    cuda_backend *cu = cuda_of(be);
    if (cu->shape.max_tiles == 0)
        return;
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
    if (cu->shape.max_tiles == 0)
        return;
    if (be->act == DTYPE_F16)
        run_expand(cu, (f16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
    else
        run_expand(cu, (bf16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
}
