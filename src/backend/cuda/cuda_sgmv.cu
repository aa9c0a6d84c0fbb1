/* cuda_sgmv.cu - the adapters' products as ops of their own: v = scale * x A^T, then y += v B
 *
 * The launchers (sgmv.h) serve the ops below and libpunica_kernels.so. In the engine they are for invocations with
 * prompts and for large batches; in decodes of up to FUSED_ROWS rows both products are fused with the kernels around
 * them. The kernels of sgmv_shrink.cuh and sgmv_expand.cuh are for tiles of up to SGMV_TILE rows, those of
 * sgmv_prompt.cuh for prompt_tiles; their rows must be whole 16-byte vectors (lora_place aligns matrices to more than
 * that). The plain ones here take any shape. */
#include "backend/cuda/sgmv_prompt.cuh"
#include "backend/cuda/sgmv_shrink.cuh"

/* The shrink. A block owns a tile, a warp one rank of one row at a time, a lane every 32nd input. */
template <typename T>
static __global__ void shrink_plain(const sgmv_tile *tiles, const int *n_tiles, int site, const T *x, int in, float *v,
                                    int v_cols)
{
    wait_for_previous();
    if ((int)blockIdx.x >= *n_tiles)
        return;
    sgmv_tile tile = tiles[blockIdx.x];
    if (!tile.table)
        return;
    const lora_entry *e = tile.table + site;
    for (int part = 0; part < MAX_PARTS; part++)
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

/* The expand. Block (i, j) owns columns from i * EXPAND_THREADS on of tile j, a thread one of them. */
template <typename T>
static __global__ void expand_plain(const sgmv_tile *tiles, const int *n_tiles, int site, expand_columns c, T *y,
                                    const float *v, int v_cols)
{
    wait_for_previous();
    int col = (int)(blockIdx.x * EXPAND_THREADS + threadIdx.x), part = c.n - 1;
    if ((int)blockIdx.y >= *n_tiles || col >= c.cols)
        return;
    while (col < pick(c.col, part))
        part--;
    sgmv_tile tile = tiles[blockIdx.y];
    if (!tile.table)
        return;
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

/* Returns the blocks for each prompt tile, in a cluster: as many as the SMs run at once, up to PROMPT_CLUSTER. */
static unsigned prompt_splits(const launch_context &on, const sgmv_tiles &t)
{
    unsigned splits = on.arch >= 90 ? PROMPT_CLUSTER : 1;
    while (splits > 1 && (unsigned)t.max_tiles * splits > (unsigned)(PROMPT_SHRINK_BLOCKS * on.n_sms))
        splits /= 2;
    return splits;
}

template <typename T>
static void run_prompt_shrink(const launch_context &on, const sgmv_tiles &t, float *v, int v_cols, const T *x, int in,
                              int site)
{
    unsigned splits = prompt_splits(on, t);
    allow_shared(on, "sgmv_shrink", prompt_shrink<T>, PROMPT_SHARED);
    launch_clusters(on, "sgmv_shrink", prompt_shrink<T>, dim3(splits, (unsigned)t.max_tiles), PROMPT_THREADS,
                    PROMPT_SHARED, splits, t.tile, site, x, in, v, v_cols);
}

/* Where adapters' ranks may differ much, grids are finer, so that SMs that finish early take another block: a shrink
 * has z-slices, which share a tile's rank groups, an expand several waves of blocks. Half the slices, or a third of the
 * blocks, made a step with ranks from 3 to 128 2 to 3 % slower (docs/lab/decode-grid.md). */
enum { HEAVY_GRID_Z = 8, HEAVY_WAVES = 3 };

/* Returns the log2 of the blocks per tile in a z-slice where there are max_tiles tiles: up to SHRINK_CLUSTER, while
 * there are at most two blocks to an SM (not tuned). With few tiles split-K thus gives all SMs something to read. */
static int shrink_log2_min_blocks(const launch_context &on, int max_tiles)
{
    int log2 = on.arch >= 90 ? 3 : 0; /* SHRINK_CLUSTER, where there are clusters */
    while (log2 > 0 && max_tiles << log2 > 2 * on.n_sms)
        log2--;
    return log2;
}

template <typename T>
static void run_shrink(const launch_context &on, const sgmv_tiles &t, float *v, int v_cols, const T *x, int in,
                       int site)
{
    if (in % 8 != 0) {
        launch(on, "sgmv_shrink", shrink_plain<T>, t.max_tiles, SHRINK_THREADS, 0, t.tile, t.n_tiles, site, x, in, v,
               v_cols);
        return;
    }
    if (t.prompt_tiles) {
        run_prompt_shrink(on, t, v, v_cols, x, in, site);
        return;
    }
    /* In clusters even where max_tiles leaves a tile one block: a batch of fewer tiles can then split k. */
    int cluster = on.arch >= 90 ? SHRINK_CLUSTER : 1, log2_min_blocks = shrink_log2_min_blocks(on, t.max_tiles),
        blocks = t.max_tiles << log2_min_blocks;
    int n_rank_groups = (v_cols + RANK_GROUP - 1) / RANK_GROUP, slices = t.heavy ? HEAVY_GRID_Z : on.n_sms / blocks;
    dim3 grid((unsigned)cluster, (unsigned)((blocks + cluster - 1) / cluster),
              (unsigned)(slices < 1               ? 1
                         : slices < n_rank_groups ? slices
                                                  : n_rank_groups));
    launch_clusters(on, "sgmv_shrink", shrink_tiles<T>, grid, SHRINK_THREADS, 0, (unsigned)cluster, t.tile, t.n_tiles,
                    t.max_tiles, log2_min_blocks, site, x, in, v, v_cols);
}

/* Divides the columns among blocks, `steps` steps for each warp. Returns the number of blocks of all tiles. */
static long divide_columns(expand_columns *c, int steps, int max_tiles)
{
    long blocks = 0;
    c->steps = steps;
    for (int i = 0; i < c->n; i++)
        blocks += c->blocks[i] = (c->out[i] + steps * EXPAND_STRIDE - 1) / (steps * EXPAND_STRIDE);
    return blocks * max_tiles;
}

/* Chooses how many steps a warp has: a number that makes a single wave of at least 9/10 of the blocks that run at once,
 * if there is one. Else the largest of 4, 2 and 1 that makes no fewer blocks: many short blocks leave less of a last
 * wave idle than few long ones. Heavy batches: at least HEAVY_WAVES waves. No measurement of the other numbers is
 * kept. */
static void choose_steps(expand_columns *c, const launch_context &on, const sgmv_tiles &t)
{
    long one_wave = EXPAND_BLOCKS * on.n_sms, least = t.heavy ? HEAVY_WAVES * one_wave : one_wave * 9 / 10;
    for (int steps = 1; !t.heavy && steps <= 8; steps++) {
        long blocks = divide_columns(c, steps, t.max_tiles);
        if (blocks >= least && blocks <= one_wave)
            return;
    }
    for (int steps = 4; steps > 0; steps /= 2)
        if (divide_columns(c, steps, t.max_tiles) >= least)
            return;
}

template <typename T>
static void run_expand(const launch_context &on, const sgmv_tiles &t, T *y, const float *v, int v_cols,
                       expand_columns *c, bool wide, int site)
{
    unsigned max_tiles = (unsigned)t.max_tiles;
    if (!wide) {
        dim3 grid((unsigned)(c->cols + EXPAND_THREADS - 1) / EXPAND_THREADS, max_tiles);
        launch(on, "sgmv_expand", expand_plain<T>, grid, EXPAND_THREADS, 0, t.tile, t.n_tiles, site, *c, y, v, v_cols);
        return;
    }
    if (t.prompt_tiles) {
        for (int i = 0; i < c->n; i++)
            c->blocks[i] = (c->out[i] + STRIP_COLS - 1) / STRIP_COLS;
        dim3 grid((unsigned)(c->blocks[0] + c->blocks[1] + c->blocks[2]), max_tiles);
        launch(on, "sgmv_expand", prompt_expand<T>, grid, PROMPT_THREADS, 0, t.tile, site, *c, y, v, v_cols);
        return;
    }
    choose_steps(c, on, t);
    dim3 grid((unsigned)(c->blocks[0] + c->blocks[1] + c->blocks[2]), max_tiles);
    launch(on, "sgmv_expand", expand_tiles<T>, grid, EXPAND_THREADS, 0, t.tile, t.n_tiles, site, *c, y, v, v_cols);
}

void sgmv_launch_shrink(const launch_context *on, const sgmv_tiles *t, tensor *v, const tensor *x, int site)
{
    CHECK(v->type == DTYPE_F32 && v->rows == x->rows);
    if (t->max_tiles == 0)
        return;
    if (x->type == DTYPE_F16)
        run_shrink(*on, *t, (float *)v->data, v->cols, (const f16 *)x->data, x->cols, site);
    else
        run_shrink(*on, *t, (float *)v->data, v->cols, (const bf16 *)x->data, x->cols, site);
}

void sgmv_launch_expand(const launch_context *on, const sgmv_tiles *t, tensor *y, const tensor *v, int site,
                        int n_parts, const int *out)
{
    CHECK(v->type == DTYPE_F32 && v->rows == y->rows);
    expand_columns c = {.n = n_parts};
    bool wide = true;
    for (int i = 0; i < n_parts; i++) {
        c.out[i] = out[i];
        c.col[i] = c.cols;
        c.cols += out[i];
        wide = wide && out[i] % 8 == 0;
    }
    CHECK(c.cols == y->cols);
    if (t->max_tiles == 0)
        return;
    if (y->type == DTYPE_F16)
        run_expand(*on, *t, (f16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
    else
        run_expand(*on, *t, (bf16 *)y->data, (const float *)v->data, v->cols, &c, wide, site);
}

/* The ops. */

static sgmv_tiles sgmv_tiles_of(const cuda_backend *cu)
{
    return {cu->step.tile, cu->step.n + COUNT_TILES, cu->shape.max_tiles, cu->shape.prompt_tiles, cu->shape.heavy};
}

void cuda_sgmv_shrink(backend *be, tensor *v, const tensor *x, const batch *b, int site)
{
    (void)b;
    CHECK(x->type == be->act);
    launch_context on = context_of(cuda_of(be));
    sgmv_tiles tiles = sgmv_tiles_of(cuda_of(be));
    sgmv_launch_shrink(&on, &tiles, v, x, site);
}

void cuda_sgmv_expand(backend *be, tensor *y, const tensor *v, const batch *b, int site, const linear *w)
{
    (void)b;
    CHECK(y->type == be->act);
    launch_context on = context_of(cuda_of(be));
    sgmv_tiles tiles = sgmv_tiles_of(cuda_of(be));
    int out[MAX_PARTS];
    for (int i = 0; i < w->n; i++)
        out[i] = w->part[i].w.rows;
    sgmv_launch_expand(&on, &tiles, y, v, site, w->n, out);
}
