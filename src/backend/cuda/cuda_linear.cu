/* cuda_linear.cu - products with the base model's weights, alone and with the adapters' shrink
 *
 * The parts of a linear are back to back in device memory, so that it is one matrix W [n, k]. There are three kernels:
 *
 *   skinny   few rows of x on Hopper: our own kernel (linear_skinny.cuh)
 *   cuBLASLt more rows, or other chips (cuda_blas.c)
 *   plain    rows that are not whole 16-byte vectors: correct but slow, for small models
 *
 * FP8 weights: skinny takes up to FP8_SKINNY_ROWS rows, 64 at a time. For more rows, and on other chips, the weights
 * are unpacked to 16 bits for cuBLASLt, as many rows of W at once as the scratch holds. plain takes odd shapes.
 *
 * In fused invocations the shrink of the site's adapters is fused with the skinny kernel; where skinny cannot run, it
 * is a kernel of its own. Either way it leaves partial sums of v in v_partials. */
#include <limits.h>
#include <stdlib.h>

#include "backend/cuda/linear_skinny.cuh"
#include "backend/cuda/tensor_map.cuh"

extern "C" {
#include "base/mem.h"
}

enum {
    SKINNY_SHARED = 208 * 1024, /* leaves a few KB of an SM to the small kernels before and after */
    MAX_STAGE = 16 * 1024,      /* bytes of W in a stage; no measurement is kept of this and MAX_STAGES */
    /* Percent of the ring that is filled before wait_for_previous(); 0, 85 and 100 made a layer 0.9 to 1.0 % slower
     * without adapters (docs/lab/decode-step.md). */
    EARLY_PERCENT = 70,
    /* With fewer rows to a tile the cluster is doubled. Not tuned, but below the 64 rows of a warpgroup; tiles of 32
     * rows for o and down were the same within 0.3 % (docs/lab/decode-step.md). */
    MIN_TILE_ROWS = 40,
    FP8_SKINNY_ROWS = 448, /* of x: for more, 16-bit copies of FP8 weights and cuBLASLt are faster (docs/lab/fp8.md) */
    MAX_SPLITS = 8,        /* the largest portable cluster size */
    MAX_STAGES = 48,
    /* Without clusters 1 SM of so many (4 of 132) gets no tile. Not tuned: with tiles on all of them a layer was the
     * same within 0.3 % (docs/lab/decode-step.md). */
    SMS_PER_IDLE_SM = 32,
};

struct skinny_limits {
    int max_clusters[MAX_SPLITS + 1]; /* by cluster size: how many clusters of any instance of skinny run at once */
};

static bool aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* Returns whether rows of x and W are whole 16-byte vectors and F8 weights are in slabs. */
static bool is_wide(const dense_product *p)
{
    return p->k % 8 == 0 && aligned(p->x, 16) && aligned(p->w, 16) && (p->w_type != DTYPE_F8 || p->in_slabs);
}

static weights_kind kind_of(const dense_product *p)
{
    return p->w_type != DTYPE_F8 ? AS_ACT : p->n_scales == 1 ? FP8_ROW_SCALES : FP8_BLOCK_SCALES;
}

/* Skinny. */

static int padded_rows(int m)
{
    return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : m <= 48 ? 48 : 64;
}

/* Returns the tile height with which each of `slots` clusters has the same number of tiles, as few as possible. */
static int tile_rows_for(int n, int slots)
{
    int each = divide_up(n, slots * SKINNY_TILE);
    return divide_up(divide_up(n, slots * each), 8) * 8;
}

/* Chooses the smallest clusters whose tiles have MIN_TILE_ROWS rows or more: a warpgroup multiplies 64 rows in any
 * case. */
static void choose_tiles(const skinny_limits *limits, skinny_job *job)
{
    for (int splits = 1; splits <= MAX_SPLITS; splits *= 2) {
        int slots = limits->max_clusters[splits];
        if (splits > 1 && (job->n > slots * SKINNY_TILE || job->n_boxes < 4 * splits))
            return;
        job->splits = splits;
        job->tile_rows = tile_rows_for(job->n, splits == 1 ? slots - slots / SMS_PER_IDLE_SM : slots);
        job->n_tiles = divide_up(job->n, job->tile_rows);
        if (job->tile_rows >= MIN_TILE_ROWS)
            return;
    }
}

/* Chooses the boxes of a stage, of which 4 or fewer divide a block's range of k, and as many stages as fit. Returns the
 * bytes of shared memory, enough for the last 64 rows of a tile, which may reach past its box: what is read there is
 * not used. */
static size_t choose_ring(weights_kind kind, skinny_job *job)
{
    int overshoot = (64 - job->tile_rows % 64) % 64 * w_row_bytes(kind);
    int other = partials_bytes(*job) + overshoot + 16 + (job->shrinks ? RING_BYTES : 0);
    job->boxes = kind == AS_ACT ? 4 : FP8_BOXES;
    while (kind == AS_ACT && job->boxes > 1 &&
           (job->n_boxes / job->splits % job->boxes != 0 || job->boxes * job->tile_rows * BOX_ROW > MAX_STAGE))
        job->boxes /= 2;
    int stage = job->boxes * (job->tile_rows * w_row_bytes(kind) + padded_rows(job->m) * BOX_ROW) + 16;
    stage += kind == FP8_BLOCK_SCALES ? divide_up(job->tile_rows * (int)sizeof(float), 128) * 128 : 0;
    int n = (SKINNY_SHARED - other) / stage;
    job->n_stages = n < MAX_STAGES ? n : MAX_STAGES;
    job->n_early = divide_up(job->n_stages * EARLY_PERCENT, 100);
    return (size_t)(job->n_stages * stage + other);
}

/* Returns the map of a matrix [rows, k], seen as [k / 64, rows, 64], in boxes of [boxes, box_rows, 64]. */
static CUtensorMap box_map(cuda_backend *cu, const void *data, int rows, int k, int boxes, int box_rows)
{
    boxed_array a = {3,
                     act_map_type(cu),
                     {BOX, (cuuint64_t)rows, (cuuint64_t)k / BOX},
                     {(cuuint64_t)k * 2, BOX_ROW},
                     {BOX, (cuuint32_t)box_rows, (cuuint32_t)boxes}};
    return map_of(cu, "linear", data, a, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Return the maps of an F8 matrix in slabs, [rows / 8, k / 64, 512 bytes], and of its scales, [rows / 8, pieces, 8
 * floats], with the first two dimensions swapped. */
static CUtensorMap slab_map(cuda_backend *cu, const dense_product *p, int boxes, int box_rows)
{
    boxed_array a = {3,
                     CU_TENSOR_MAP_DATA_TYPE_INT32,
                     {SLAB_BOX / 4, (cuuint64_t)p->n / SLAB, (cuuint64_t)p->k / BOX},
                     {(cuuint64_t)p->k * SLAB, SLAB_BOX},
                     {SLAB_BOX / 4, (cuuint32_t)box_rows / SLAB, (cuuint32_t)boxes}};
    return map_of(cu, "linear", p->w, a, CU_TENSOR_MAP_SWIZZLE_NONE);
}

static CUtensorMap scale_map_of(cuda_backend *cu, const dense_product *p, int box_rows)
{
    cuuint64_t bytes = SLAB * sizeof(float), pieces = (cuuint64_t)p->n_scales;
    boxed_array a = {3,
                     CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                     {SLAB, (cuuint64_t)p->n / SLAB, pieces},
                     {pieces * bytes, bytes},
                     {SLAB, (cuuint32_t)box_rows / SLAB, 1}};
    return map_of(cu, "linear", p->scale, a, CU_TENSOR_MAP_SWIZZLE_NONE);
}

template <typename T, int M, weights_kind KIND>
static void launch_skinny(cuda_backend *cu, const dense_product *p, const skinny_job &job, size_t shared,
                          const shrink_job &shrink)
{
    CUtensorMap x_map = box_map(cu, p->x, p->m, p->k, job.boxes, M), scale_map = {};
    CUtensorMap w_map = KIND == AS_ACT ? box_map(cu, p->w, p->n, p->k, job.boxes, job.tile_rows)
                                       : slab_map(cu, p, job.boxes, job.tile_rows);
    if (KIND == FP8_BLOCK_SCALES)
        scale_map = scale_map_of(cu, p, job.tile_rows);
    int clusters = cu->skinny_limits->max_clusters[job.splits];
    unsigned grid = (unsigned)((job.n_tiles < clusters ? job.n_tiles : clusters) * job.splits);
    unsigned block = (unsigned)(divide_up(job.tile_rows, 64) * 128 + (job.shrinks ? 96 : 32));
    launch_clusters(context_of(cu), "linear", skinny<T, M, KIND>, grid, block, shared, (unsigned)job.splits, w_map,
                    x_map, scale_map, job, shrink);
    /* After a failure the launch may be missing, and no arrivals would come. */
    cu->v_expected = job.shrinks && !device_failure_happened(&cu->failure) ? (int)grid : 0;
}

template <typename T, int M>
static void launch_skinny_kind(cuda_backend *cu, const dense_product *p, const skinny_job &job, size_t shared,
                               const shrink_job &s)
{
    switch (kind_of(p)) {
    case AS_ACT: launch_skinny<T, M, AS_ACT>(cu, p, job, shared, s); break;
    case FP8_ROW_SCALES: launch_skinny<T, M, FP8_ROW_SCALES>(cu, p, job, shared, s); break;
    case FP8_BLOCK_SCALES: launch_skinny<T, M, FP8_BLOCK_SCALES>(cu, p, job, shared, s); break;
    }
}

template <typename T>
static void launch_skinny_rows(cuda_backend *cu, const dense_product *p, const skinny_job &job, size_t shared,
                               const shrink_job &s)
{
    switch (padded_rows(p->m)) {
    case 8: launch_skinny_kind<T, 8>(cu, p, job, shared, s); break;
    case 16: launch_skinny_kind<T, 16>(cu, p, job, shared, s); break;
    case 32: launch_skinny_kind<T, 32>(cu, p, job, shared, s); break;
    case 48: launch_skinny_kind<T, 48>(cu, p, job, shared, s); break;
    default: launch_skinny_kind<T, 64>(cu, p, job, shared, s); break;
    }
}

/* shrink: NULL where the launch has no fused LoRA shrink. */
static void run_skinny(cuda_backend *cu, const dense_product *p, const shrink_job *shrink)
{
    skinny_job job = {};
    job.y = p->y;
    job.bias = p->bias;
    job.scale = p->scale;
    job.m = p->m, job.n = p->n, job.ldy = p->ldy;
    job.n_boxes = p->k / BOX;
    job.f32 = p->y_type == DTYPE_F32;
    job.paired = p->ldy % 2 == 0 && aligned(p->y, 2 * dtype_size(p->y_type));
    job.wide = p->ldy % 8 == 0 && aligned(p->y, 16);
    job.shrinks = shrink != NULL;
    choose_tiles(cu->skinny_limits, &job);
    size_t shared = choose_ring(kind_of(p), &job);
    shrink_job none = {};
    if (cu->base.act == DTYPE_F16)
        launch_skinny_rows<f16>(cu, p, job, shared, shrink ? *shrink : none);
    else
        launch_skinny_rows<bf16>(cu, p, job, shared, shrink ? *shrink : none);
}

static bool fits_skinny(const cuda_backend *cu, const dense_product *p)
{
    return cu->arch == 90 && p->m <= SKINNY_ROWS && p->k % BOX == 0 && is_wide(p);
}

/* Plain. */

enum { LINEAR_PLAIN_ROWS = 8, LINEAR_PLAIN_WARPS = 4 }; /* of a block; no measurement is kept */

/* Returns a weight of any type and layout. */
template <typename T> static __device__ __forceinline__ float weight_at(const dense_product &p, int row, int col)
{
    if (p.w_type != DTYPE_F8)
        return to_float(((const T *)p.w)[(size_t)row * p.k + col]);
    size_t at = p.in_slabs
                    ? (size_t)(row / SLAB) * SLAB * p.k + col / BOX * SLAB_BOX + byte_in_box<T>(row % SLAB, col % BOX)
                    : (size_t)row * p.k + col;
    int piece = p.n_scales > 1 ? col / SCALE_BLOCK : 0;
    float scale = p.scale[p.in_slabs ? (row / SLAB * p.n_scales + piece) * SLAB + row % SLAB : piece * p.n + row];
    unsigned two = widen_pair(((const uint8_t *)p.w)[at]);
    return __low2float(*(__half2 *)&two) * scale;
}

/* y = x W^T + bias. A warp owns one row of W and LINEAR_PLAIN_ROWS of x; its lanes go along k. */
template <typename T, typename O> static __global__ void plain(dense_product p)
{
    int m = p.m, n = p.n, k = p.k, ldy = p.ldy;
    const T *x = (const T *)p.x;
    O *y = (O *)p.y;
    const float *bias = p.bias;
    wait_for_previous();
    int col = blockIdx.x * LINEAR_PLAIN_WARPS + threadIdx.x / 32, row = blockIdx.y * LINEAR_PLAIN_ROWS,
        lane = threadIdx.x & 31;
    if (col >= n)
        return;
    float sum[LINEAR_PLAIN_ROWS] = {};
    for (int i = lane; i < k; i += 32) {
        float weight = weight_at<T>(p, col, i);
        for (int j = 0; j < LINEAR_PLAIN_ROWS; j++)
            if (row + j < m)
                sum[j] += weight * to_float(x[(size_t)(row + j) * k + i]);
    }
    for (int j = 0; j < LINEAR_PLAIN_ROWS; j++) {
        float total = warp_sum(sum[j]) + (bias ? bias[col] : 0.0f);
        if (lane == 0 && row + j < m)
            y[(size_t)(row + j) * ldy + col] = from_float<O>(total);
    }
}

template <typename T> static void run_plain(cuda_backend *cu, const dense_product *p)
{
    dim3 grid((unsigned)divide_up(p->n, LINEAR_PLAIN_WARPS), (unsigned)divide_up(p->m, LINEAR_PLAIN_ROWS));
    if (p->y_type == DTYPE_F32)
        launch(context_of(cu), "linear", plain<T, float>, grid, LINEAR_PLAIN_WARPS * 32, 0, *p);
    else
        launch(context_of(cu), "linear", plain<T, T>, grid, LINEAR_PLAIN_WARPS * 32, 0, *p);
}

/* cuBLASLt. */

/* Copies the bias to every row of y. A thread owns one column. */
template <typename O> static __global__ void fill_bias(O *y, const float *bias, int m, int n, int ldy)
{
    wait_for_previous();
    let_next_start();
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    for (int row = blockIdx.y; row < m && col < n; row += gridDim.y)
        y[(size_t)row * ldy + col] = from_float<O>(bias[col]);
}

template <typename O> static void run_fill_bias(cuda_backend *cu, const dense_product *p)
{
    dim3 grid((unsigned)divide_up(p->n, 256), (unsigned)(p->m < 64 ? p->m : 64));
    launch(context_of(cu), "linear bias", fill_bias<O>, grid, 256, 0, (O *)p->y, p->bias, p->m, p->n, p->ldy);
}

/* Multiplies by cuBLASLt, which adds to the bias in y. Returns false when it has nothing for this shape; y is then
 * undefined. */
static bool run_blas(cuda_backend *cu, const dense_product *p)
{
    if (p->bias && p->y_type == DTYPE_F32)
        run_fill_bias<float>(cu, p);
    else if (p->bias && cu->base.act == DTYPE_F16)
        run_fill_bias<f16>(cu, p);
    else if (p->bias)
        run_fill_bias<bf16>(cu, p);
    return cuda_blas_multiply(cu, p);
}

/* FP8 weights with more than 64 rows of x. */

/* Returns the product of rows [row, row + n_rows) of x. */
static dense_product rows_of(const dense_product *p, int row, int n_rows)
{
    dense_product part = *p;
    part.x = (const char *)p->x + (size_t)row * (size_t)p->k * 2;
    part.y = (char *)p->y + (size_t)row * (size_t)p->ldy * dtype_size(p->y_type);
    part.m = n_rows;
    return part;
}

static bool fits_skinny_passes(const cuda_backend *cu, const dense_product *p)
{
    dense_product first = rows_of(p, 0, p->m < SKINNY_ROWS ? p->m : SKINNY_ROWS);
    return p->w_type == DTYPE_F8 && p->m <= FP8_SKINNY_ROWS && fits_skinny(cu, &first);
}

static void run_skinny_passes(cuda_backend *cu, const dense_product *p)
{
    for (int row = 0; row < p->m; row += SKINNY_ROWS) {
        dense_product pass = rows_of(p, row, p->m - row < SKINNY_ROWS ? p->m - row : SKINNY_ROWS);
        run_skinny(cu, &pass, NULL);
    }
}

/* Multiplies by cuBLASLt, from 16-bit copies of as many rows of W at once as fit. Returns false when it cannot; y is
 * then undefined. */
static bool run_unpacked(cuda_backend *cu, const dense_product *p)
{
    int step = (int)(FP8_SCRATCH / 2 / (size_t)p->k / 128) * 128;
    step = step > 0 ? step : SLAB;
    for (int row = 0; row < p->n; row += step) {
        int n = p->n - row < step ? p->n - row : step;
        dense_product part = *p;
        part.w = cu->unpacked;
        part.w_type = cu->base.act;
        part.bias = p->bias ? p->bias + row : NULL;
        part.y = (char *)p->y + (size_t)row * dtype_size(p->y_type);
        part.n = n;
        cuda_fp8_unpack(cu, cu->unpacked, p, row, n);
        if (!run_blas(cu, &part))
            return false;
    }
    return true;
}

/* The ops. */

static void multiply(cuda_backend *cu, const dense_product *p)
{
    if (p->m == 0)
        return;
    if (fits_skinny(cu, p))
        run_skinny(cu, p, NULL);
    else if (fits_skinny_passes(cu, p))
        run_skinny_passes(cu, p);
    else if (p->w_type == DTYPE_F8 && is_wide(p) && run_unpacked(cu, p))
        return;
    else if (p->w_type != DTYPE_F8 && is_wide(p) && run_blas(cu, p))
        return;
    else if (cu->base.act == DTYPE_F16)
        run_plain<f16>(cu, p);
    else
        run_plain<bf16>(cu, p);
}

static dense_product product_of(const tensor *y, const tensor *x, const proj *part, int col, int n)
{
    dense_product p = {};
    p.y = (char *)y->data + (size_t)col * dtype_size(y->type);
    p.y_type = y->type;
    p.x = x->data;
    p.w = part->w.data;
    p.w_type = part->w.type;
    p.in_slabs = part->w.type == DTYPE_F8 && cuda_fp8_in_slabs(part->w.rows, part->w.cols);
    p.scale = (const float *)part->scale.data;
    p.n_scales = part->scale.rows;
    p.bias = (const float *)part->bias.data;
    p.m = x->rows, p.n = n, p.k = x->cols, p.ldy = y->cols;
    return p;
}

/* Returns whether part b's weights, scales and bias follow part a's without a gap. */
static bool follows(const proj *a, const proj *b)
{
    if (a->w.type != b->w.type || (const char *)b->w.data != (const char *)a->w.data + tensor_bytes(&a->w))
        return false;
    if (a->w.type == DTYPE_F8 && (!cuda_fp8_in_slabs(a->w.rows, a->w.cols) || a->scale.rows != b->scale.rows ||
                                  (const char *)b->scale.data != (const char *)a->scale.data + tensor_bytes(&a->scale)))
        return false;
    if (!a->bias.data || !b->bias.data)
        return !a->bias.data && !b->bias.data;
    return (const char *)b->bias.data == (const char *)a->bias.data + tensor_bytes(&a->bias);
}

static void check_shapes(const backend *be, const tensor *y, const tensor *x, const linear *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        const proj *part = &w->part[i];
        CHECK(part->w.cols == x->cols && (part->w.type == be->act || part->w.type == DTYPE_F8));
        CHECK(!part->bias.data || (part->bias.type == DTYPE_F32 && part->bias.cols == part->w.rows));
        n += part->w.rows;
    }
    CHECK(y->rows == x->rows && y->cols == n && x->type == be->act && (y->type == be->act || y->type == DTYPE_F32));
}

static bool is_one_matrix(const linear *w)
{
    for (int i = 1; i < w->n; i++)
        if (!follows(&w->part[i - 1], &w->part[i]))
            return false;
    return true;
}

void cuda_linear(backend *be, tensor *y, const tensor *x, const linear *w)
{
    check_shapes(be, y, x, w);
    if (is_one_matrix(w)) {
        dense_product p = product_of(y, x, &w->part[0], 0, y->cols);
        multiply(cuda_of(be), &p);
        return;
    }
    for (int i = 0, col = 0; i < w->n; col += w->part[i++].w.rows) {
        dense_product p = product_of(y, x, &w->part[i], col, w->part[i].w.rows);
        multiply(cuda_of(be), &p);
    }
}

enum { SPLIT_K_WARPS = 4 }; /* of a block; no measurement is kept */

/* The shrink alone. A block owns a tile and a split; its warps take 8 ranks each in turn. */
template <typename T, bool WIDE> static __global__ void shrink_split_k(shrink_job job)
{
    wait_for_previous();
    if ((int)blockIdx.x >= *job.n_tiles)
        return;
    shrink_tile t = tile_at(job, blockIdx.x);
    for (int rank = threadIdx.x / 32 * 8; rank < rank_sum(t); rank += 8 * SPLIT_K_WARPS)
        shrink_ranks<T, WIDE>(job, t, blockIdx.y, rank);
}

static void run_shrink_split_k(cuda_backend *cu, const shrink_job &job, bool wide)
{
    bool half = cu->base.act == DTYPE_F16;
    void (*kernel)(shrink_job) = half   ? wide ? shrink_split_k<f16, true> : shrink_split_k<f16, false>
                                 : wide ? shrink_split_k<bf16, true>
                                        : shrink_split_k<bf16, false>;
    launch(context_of(cu), "shrink", kernel, dim3((unsigned)cu->shape.max_tiles, (unsigned)job.n_splits),
           SPLIT_K_WARPS * 32, 0, job);
}

static shrink_job shrink_of(const cuda_backend *cu, const tensor *x, int site)
{
    shrink_job job = {};
    job.tile = cu->step.tile;
    job.n_tiles = cu->step.n + COUNT_TILES;
    job.x = x->data;
    job.v_partials = cu->v_partials;
    job.arrivals = cu->step.v_arrivals + site;
    job.site = site, job.in = x->cols;
    job.n_splits = sgmv_splits(x->cols), job.split_len = sgmv_split_len(x->cols);
    job.v_stride = cu->limit.max_rank_sum;
    return job;
}

void cuda_linear_shrink(backend *be, tensor *y, const tensor *x, const adapted *a, const batch *b)
{
    cuda_backend *cu = cuda_of(be);
    if (!cu->shape.fused) {
        cuda_linear(be, y, x, a->w);
        if (cu->shape.any_lora)
            cuda_sgmv_shrink(be, a->v, x, b, a->site);
        return;
    }
    check_shapes(be, y, x, a->w);
    cu->v_expected = 0;
    dense_product p = product_of(y, x, &a->w->part[0], 0, y->cols);
    shrink_job shrink = shrink_of(cu, x, a->site);
    if (is_one_matrix(a->w) && fits_skinny(cu, &p) && p.m > 0)
        run_skinny(cu, &p, &shrink);
    else {
        cuda_linear(be, y, x, a->w);
        run_shrink_split_k(cu, shrink, x->cols % 8 == 0 && aligned(x->data, 16));
    }
}

/* Allows the kernel SKINNY_SHARED bytes of shared memory, and lowers max_clusters to how many of its clusters then run
 * at once. */
template <typename T, int M, weights_kind KIND> static void prepare_skinny(cuda_backend *cu)
{
    cuda_keep(cu, cudaFuncSetAttribute(skinny<T, M, KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, SKINNY_SHARED),
              "linear");
    for (unsigned size = 1; size <= MAX_SPLITS; size *= 2) {
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = size;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        cudaLaunchConfig_t c = {};
        c.gridDim = (unsigned)cu->n_sms / size * size;
        c.blockDim = SKINNY_THREADS;
        c.dynamicSmemBytes = SKINNY_SHARED;
        c.attrs = &cluster;
        c.numAttrs = 1;
        int n = 0;
        cuda_keep(cu, cudaOccupancyMaxActiveClusters(&n, skinny<T, M, KIND>, &c), "linear");
        if (n < cu->skinny_limits->max_clusters[size])
            cu->skinny_limits->max_clusters[size] = n;
    }
}

template <typename T, weights_kind KIND> static void prepare_kind(cuda_backend *cu)
{
    prepare_skinny<T, 8, KIND>(cu);
    prepare_skinny<T, 16, KIND>(cu);
    prepare_skinny<T, 32, KIND>(cu);
    prepare_skinny<T, 48, KIND>(cu);
    prepare_skinny<T, 64, KIND>(cu);
}

template <typename T> static void prepare_type(cuda_backend *cu)
{
    prepare_kind<T, AS_ACT>(cu);
    prepare_kind<T, FP8_ROW_SCALES>(cu);
    prepare_kind<T, FP8_BLOCK_SCALES>(cu);
}

static int init_skinny(cuda_backend *cu, err *e)
{
    cudaDriverEntryPointQueryResult found;
    if (cuda_keep(cu,
                  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &cu->encode_map, 12000, cudaEnableDefault,
                                                   &found),
                  "linear"))
        return cuda_report(cu, e);
    if (found != cudaDriverEntryPointSuccess)
        return err_set(e, "GPU %d: the driver is too old (no cuTensorMapEncodeTiled)", cu->device);
    for (int size = 1; size <= MAX_SPLITS; size *= 2)
        cu->skinny_limits->max_clusters[size] = INT_MAX;
    if (cu->base.act == DTYPE_F16)
        prepare_type<f16>(cu);
    else
        prepare_type<bf16>(cu);
    return cuda_report(cu, e);
}

int cuda_linear_init(cuda_backend *cu, err *e)
{
    cu->skinny_limits = XNEW(skinny_limits);
    if (cuda_blas_open(cu, e))
        return -1;
    return cu->arch == 90 ? init_skinny(cu, e) : 0;
}

void cuda_linear_deinit(cuda_backend *cu)
{
    cuda_blas_close(cu);
    free(cu->skinny_limits);
}
