/* sgmv_prompt.cuh - SGMV where segments have many rows: the shrink, and strips of the expand
 *
 * In steps with prompts and many rows (step_shape.prompt_tiles) a tile is up to PROMPT_TILE rows of one adapter, or of
 * none: tiles cover all rows, so that the ops that the expand is fused with (cuda_prompt.cu) can work by tiles too.
 * What counts here is how often x, y and the weights are read: x once, weights once for every tile, y only by the op
 * that would read it anyway. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_PROMPT_CUH
#define PUNICA_BACKEND_CUDA_SGMV_PROMPT_CUH

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/sgmv_expand.cuh"

enum {
    /* No measurement is kept of the sizes of the ring, and of the blocks on an SM. */
    PROMPT_WARPS = 4, /* of the shrink: 16 rows each */
    PROMPT_THREADS = 32 * PROMPT_WARPS,
    PROMPT_STEP = 64,  /* inputs of a stage */
    PROMPT_RANKS = 64, /* multiplied in one pass over x */
    PROMPT_STAGES = 6,
    PROMPT_STAGE_BYTES = (PROMPT_TILE + PROMPT_RANKS) * PROMPT_STEP * 2,
    PROMPT_SHARED = PROMPT_STAGES * PROMPT_STAGE_BYTES,
    PROMPT_SHRINK_BLOCKS = 2, /* on an SM */
    PROMPT_BLOCKS = 3,        /* of the ops that the expand is fused with */
};

static_assert(PROMPT_TILE == 16 * PROMPT_WARPS, "a warp has 16 rows of a tile");
static_assert(PROMPT_SHARED >= PROMPT_TILE * PROMPT_RANKS * (int)sizeof(float), "partial sums lie where the ring was");

/* The parts of a tile's adapter at a site; all ranks are 0 where there is no adapter. total: the sum of the ranks. */
typedef struct {
    const void *a[MAX_PARTS];
    float scale[MAX_PARTS];
    int rank[MAX_PARTS], total;
} prompt_parts;

static __device__ __forceinline__ prompt_parts prompt_open(const sgmv_tile &tile, int site)
{
    prompt_parts p = {};
    if (!tile.table)
        return p;
    const lora_entry *e = tile.table + site;
#pragma unroll
    for (int i = 0; i < MAX_PARTS; i++) {
        p.a[i] = e->a[i];
        p.scale[i] = e->scale[i];
        p.total += p.rank[i] = e->rank[i];
    }
    return p;
}

/* Returns the part that has rank r, counted through all parts; r becomes the rank within that part. */
static __device__ __forceinline__ int prompt_part_of(const prompt_parts &p, int &r)
{
    int part = r < p.rank[0] ? 0 : r < p.rank[0] + p.rank[1] ? 1 : 2;
    r -= part == 0 ? 0 : part == 1 ? p.rank[0] : p.rank[0] + p.rank[1];
    return part;
}

/* The rows of x and A that a thread copies from: thread 8 i + c copies chunk c (16 bytes) of rows i, i + 16, i + 32 and
 * i + 48 of a stage. NULL: zeros are stored. any: a readable address. */
template <typename T> struct prompt_sources { const T *x[4], *a[4], *any; };

template <typename T>
static __device__ __forceinline__ void prompt_copy(unsigned to, const T *const (&rows)[4], const T *any, int k, int k1)
{
    int c = (int)threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool there = rows[i] && k + 8 * c < k1;
        copy_16(to + chunk_offset<PROMPT_STEP>((int)threadIdx.x / 8 + 16 * i, c), there ? rows[i] + k + 8 * c : any,
                there);
    }
}

/* d += x A^T over one stage: the warp's 16 rows by up to n_ranks ranks, 8 to each d[i]. */
template <typename T>
static __device__ __forceinline__ void prompt_multiply(float (&d)[PROMPT_RANKS / 8][4], unsigned x, int n_ranks)
{
    unsigned a = x + PROMPT_TILE * PROMPT_STEP * 2 + by_columns<PROMPT_STEP>();
    x += warp_id() * 16 * PROMPT_STEP * 2 + by_rows<PROMPT_STEP>();
#pragma unroll
    for (int k = 0; k < PROMPT_STEP / 16; k++) {
        unsigned rows[4];
        load_matrices(rows, x ^ k * 32);
#pragma unroll
        for (int i = 0; i < PROMPT_RANKS / 16; i++)
            if (16 * i < n_ranks) {
                unsigned ranks[4];
                load_matrices(ranks, (a ^ k * 32) + i * 16 * PROMPT_STEP * 2);
                mma<T>(d[2 * i], rows, ranks);
                mma<T>(d[2 * i + 1], rows, ranks + 2);
            }
    }
}

/* d += x A^T over inputs [k0, k1), of all rows and n_ranks ranks. Where `early`, the first stages of A are loaded
 * before the wait for the preceding kernel: nobody writes weights. */
template <typename T>
static __device__ __forceinline__ void prompt_sum(float (&d)[PROMPT_RANKS / 8][4], const prompt_sources<T> &from,
                                                  int k0, int k1, int n_ranks, unsigned ring, bool early)
{
    constexpr unsigned A = PROMPT_TILE * PROMPT_STEP * 2;
    int n = (k1 - k0 + PROMPT_STEP - 1) / PROMPT_STEP;
    for (int i = 0; i < PROMPT_STAGES - 1; i++)
        prompt_copy(ring + i * PROMPT_STAGE_BYTES + A, from.a, from.any, k0 + i * PROMPT_STEP, k1);
    if (early)
        wait_for_previous();
    for (int i = 0; i < PROMPT_STAGES - 1; i++) {
        prompt_copy(ring + i * PROMPT_STAGE_BYTES, from.x, from.any, k0 + i * PROMPT_STEP, k1);
        copy_commit();
    }
    for (int i = 0; i < n; i++) {
        copy_wait<PROMPT_STAGES - 2>();
        __syncthreads(); /* all have stage i and are done with the one before */
        unsigned next = ring + (i + PROMPT_STAGES - 1) % PROMPT_STAGES * PROMPT_STAGE_BYTES;
        int k = k0 + (i + PROMPT_STAGES - 1) * PROMPT_STEP;
        prompt_copy(next + A, from.a, from.any, k, k1);
        prompt_copy(next, from.x, from.any, k, k1);
        copy_commit();
        prompt_multiply<T>(d, ring + i % PROMPT_STAGES * PROMPT_STAGE_BYTES, n_ranks);
    }
    copy_wait<0>();
    __syncthreads(); /* the ring is free */
}

/* Stores v of one row and rank, scaled, unless the tile has no such row or rank. */
static __device__ __forceinline__ void prompt_store(float *v, int v_cols, const sgmv_tile &tile, const prompt_parts &p,
                                                    int row, int rank, float sum)
{
    if (row >= tile.n_rows || rank >= p.total)
        return;
    int r = rank;
    v[(size_t)(tile.row + row) * v_cols + rank] = pick(p.scale, prompt_part_of(p, r)) * sum;
}

enum { PROMPT_CLUSTER = 8 }; /* the largest portable cluster size */

/* Adds up d over the blocks of the cluster, a share of the rows in each block, and stores v. */
static __device__ __forceinline__ void prompt_gather(const float (&d)[PROMPT_RANKS / 8][4], float *partial, float *v,
                                                     int v_cols, const sgmv_tile &tile, const prompt_parts &p, int from)
{
    int g = lane_id() >> 2, t = lane_id() & 3, splits = (int)gridDim.x, n = PROMPT_TILE / splits * PROMPT_RANKS;
#pragma unroll
    for (int i = 0; i < PROMPT_RANKS / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            partial[(16 * warp_id() + g + 8 * (j >> 1)) * PROMPT_RANKS + 8 * i + 2 * t + (j & 1)] = d[i][j];
    cluster_arrive();
    cluster_wait();
    for (int i = (int)blockIdx.x * n + (int)threadIdx.x; i < ((int)blockIdx.x + 1) * n; i += PROMPT_THREADS) {
        float sum = 0.0f;
        for (int peer = 0; peer < splits; peer++)
            sum += load_from_peer(partial + i, (unsigned)peer);
        prompt_store(v, v_cols, tile, p, i / PROMPT_RANKS, from + i % PROMPT_RANKS, sum);
    }
    cluster_arrive();
    cluster_wait(); /* before a ring is filled again or a block exits */
}

/* v[row, r] = scale * sum over k of x[row, k] A[r, k]. Cluster blockIdx.y owns that tile, each of its gridDim.x blocks
 * a range of the inputs, each warp 16 rows. x and A pass through a ring in shared memory: PROMPT_SHARED bytes. */
template <typename T>
static __global__ void __launch_bounds__(PROMPT_THREADS, PROMPT_SHRINK_BLOCKS)
    prompt_shrink(const sgmv_tile *tiles, int site, const T *x, int in, float *v, int v_cols)
{
    extern __shared__ __align__(1024) char shared[];
    sgmv_tile tile = tiles[blockIdx.y];
    prompt_parts p = prompt_open(tile, site);
    let_next_start();
    if (p.total == 0) {
        leave_idle();
        return;
    }
    int steps = (in + PROMPT_STEP - 1) / PROMPT_STEP,
        span = (steps + (int)gridDim.x - 1) / (int)gridDim.x * PROMPT_STEP;
    int k0 = min(in, (int)blockIdx.x * span), k1 = min(in, k0 + span), first = (int)threadIdx.x / 8;
    prompt_sources<T> from = {};
    from.any = x;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + 16 * i < tile.n_rows)
            from.x[i] = x + (size_t)(tile.row + first + 16 * i) * in;
    for (int rank = 0; rank < p.total; rank += PROMPT_RANKS) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = rank + first + 16 * i, part = prompt_part_of(p, r);
            from.a[i] = rank + first + 16 * i < p.total ? (const T *)pick(p.a, part) + (size_t)r * in : NULL;
        }
        float d[PROMPT_RANKS / 8][4] = {};
        prompt_sum<T>(d, from, k0, k1, p.total - rank, shared_address(shared), rank == 0);
        if (gridDim.x > 1) {
            prompt_gather(d, (float *)shared, v, v_cols, tile, p, rank);
            continue;
        }
        int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
        for (int i = 0; i < PROMPT_RANKS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                prompt_store(v, v_cols, tile, p, 16 * warp_id() + g + 8 * (j >> 1), rank + 8 * i + 2 * t + (j & 1),
                             d[i][j]);
    }
}

/* A strip is 16 rows by 64 columns of y. The warps of a block have different rows of the tile and the same columns, so
 * that B is read by one warp and found in L1 by the others. v is made into mma's A operand once for all strips of a
 * warp. Lane 4g + t holds of rows g and g + 8 columns 8t to 8t + 7 and 32 + 8t to 32 + 8t + 7, as 4 runs of 8:
 * x[2h + i] is row g + 8h, columns from 8t + 32i on. */
enum {
    STRIP_ROWS = 16,
    STRIP_COLS = 64,
    TILE_STRIPS = PROMPT_TILE / STRIP_ROWS,
    STRIP_GROUPS = 4, /* rank groups whose operand is kept (rank 64); beyond, operands are made again for each strip */
};

/* v of rank groups as A operands, rounded terms (i = 0) and rests (1) of expand_split(): the registers of lane l are
 * kept[group][i][l]. */
typedef uint4 strip_operands[STRIP_GROUPS][2][32];

/* Returns one part of a tile's adapter, for the rows from `row` on. Its rank is 0 where there is no adapter or no
 * row. */
template <typename T>
static __device__ __forceinline__ expand_part<T> strip_part(const sgmv_tile &tile, int site, int part, int row, int out,
                                                            const float *v, int v_cols)
{
    expand_part<T> p = {};
    p.n_rows = tile.n_rows - row;
    p.out = out;
    p.v_cols = v_cols;
    if (!tile.table || p.n_rows <= 0)
        return p;
    const lora_entry *e = tile.table + site;
    p.rank = e->rank[part];
    p.b = (const T *)e->b[part];
    p.v = v + (size_t)(tile.row + row) * v_cols + rank_offset(e, part);
    return p;
}

template <typename T>
static __device__ __forceinline__ void strip_operand(unsigned (&a)[2][4], const expand_part<T> &p, int group)
{
    float v[2][4];
    expand_load_v<2>(v, p, group);
    expand_split<T, 2>(a, v);
}

/* Makes the operands that are kept; each warp makes its own. */
template <typename T>
static __device__ __forceinline__ void strip_make_operands(strip_operands &kept, const expand_part<T> &p)
{
    for (int group = 0; group < min((int)STRIP_GROUPS, rank_groups(p.rank)); group++) {
        unsigned a[2][4];
        strip_operand(a, p, group);
#pragma unroll
        for (int i = 0; i < 2; i++)
            kept[group][i][lane_id()] = make_uint4(a[i][0], a[i][1], a[i][2], a[i][3]);
    }
    __syncwarp();
}

/* Loads B of a rank group for the strip of columns from col on: lane 4g + t has the eight columns that
 * expand_multiply() takes as column n = g of its products. */
template <typename T>
static __device__ __forceinline__ b_fragment strip_load_b(const expand_part<T> &p, int col, int group)
{
    b_fragment b = {};
    int g = lane_id() >> 2, r = RANK_GROUP * group + (lane_id() & 3), c = col + 8 * (g >> 1) + 32 * (g & 1);
    const T *from = p.b + (size_t)r * p.out + c;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c < p.out && r + 4 * i < p.rank)
            b.row[i] = *(const uint4 *)(from + (size_t)(4 * i) * p.out);
    return b;
}

/* x += v B for the strip of columns from col on; b: of rank group 0. */
template <typename T>
static __device__ __forceinline__ void strip_add(float (&x)[4][8], const expand_part<T> &p, int col, b_fragment b,
                                                 const strip_operands &kept)
{
    if (p.rank == 0)
        return;
    float d[8][4] = {};
    for (int group = 0; group < rank_groups(p.rank); group++) {
        unsigned a[2][4];
        if (group > 0)
            b = strip_load_b(p, col, group);
        if (group < STRIP_GROUPS) {
            *(uint4 *)a[0] = kept[group][0][lane_id()];
            *(uint4 *)a[1] = kept[group][1][lane_id()];
        } else {
            strip_operand(a, p, group);
        }
        expand_multiply<T, 2>(d, a, b);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j] += d[j][i];
}

/* Returns whether x[i] of a strip is within the matrix, and where it is. */
static __device__ __forceinline__ bool strip_has(int i, int n_rows, int col, int cols)
{
    return (lane_id() >> 2) + 8 * (i >> 1) < n_rows && col + 8 * (lane_id() & 3) + 32 * (i & 1) < cols;
}

static __device__ __forceinline__ size_t strip_place(int i, int col, size_t stride)
{
    return ((lane_id() >> 2) + 8 * (i >> 1)) * stride + (size_t)(col + 8 * (lane_id() & 3) + 32 * (i & 1));
}

/* A strip of a matrix in the matrix's own type: it is converted later, so that its loads can be in flight. */
template <typename T> struct strip_raw { vec<T, 16 / sizeof(T)> at[4][8 * sizeof(T) / 16]; };

/* Loads a strip; zeros outside the matrix. */
template <typename T>
static __device__ __forceinline__ strip_raw<T> strip_load(const T *from, size_t stride, int n_rows, int col, int cols)
{
    strip_raw<T> x;
    memset(&x, 0, sizeof x);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (strip_has(i, n_rows, col, cols))
#pragma unroll
            for (int j = 0; j < (int)(8 * sizeof(T) / 16); j++)
                x.at[i][j] = ((const vec<T, 16 / sizeof(T)> *)(from + strip_place(i, col, stride)))[j];
    return x;
}

/* x += the strip. */
template <typename T>
static __device__ __forceinline__ void strip_accumulate(float (&x)[4][8], const strip_raw<T> &from)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j] += to_float(from.at[i][j * sizeof(T) / 16].at[j % (16 / sizeof(T))]);
}

template <typename T>
static __device__ __forceinline__ void strip_store(T *to, const float (&x)[4][8], size_t stride, int n_rows, int col,
                                                   int cols)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (strip_has(i, n_rows, col, cols))
            store_n(to + strip_place(i, col, stride), x[i]);
}

/* y[row, c] += sum over r of v[row, r] B[r, c]. Block (i, tile) owns the i-th 64 columns of a tile, a warp 16 of its
 * rows. Shared memory: v, 16 KB. */
template <typename T>
static __global__ void __launch_bounds__(PROMPT_THREADS)
    prompt_expand(const sgmv_tile *tiles, int site, expand_columns c, T *y, const float *v, int v_cols)
{
    __shared__ strip_operands kept[PROMPT_WARPS];
    sgmv_tile tile = tiles[blockIdx.y];
    int block = (int)blockIdx.x, part = 0, row = warp_id() * STRIP_ROWS;
    for (; block >= pick(c.blocks, part); part++)
        block -= pick(c.blocks, part);
    int col = block * STRIP_COLS, out = pick(c.out, part);
    expand_part<T> p = strip_part<T>(tile, site, part, row, out, v, v_cols);
    wait_for_previous();
    let_next_start();
    if (p.rank == 0)
        return;
    T *place = y + (size_t)(tile.row + row) * c.cols + pick(c.col, part);
    strip_raw<T> raw = strip_load(place, c.cols, p.n_rows, col, out);
    b_fragment b = strip_load_b(p, col, 0);
    strip_make_operands(kept[warp_id()], p);
    float x[4][8] = {};
    strip_accumulate(x, raw);
    strip_add(x, p, col, b, kept[warp_id()]);
    strip_store(place, x, c.cols, p.n_rows, col, out);
}

#endif
