/* sgmv_expand.cuh - y[row, c] += sum over r of v[row, r] B[r, c], for tiles of up to 16 rows
 *
 * Bound by reading B. v is mma's A operand, B its B operand. v is float32 and must not lose its lower bits, so it is
 * passed as the sum of two 16-bit terms. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH
#define PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH

#include "backend/cuda/sgmv.cuh"

enum {
    EXPAND_WARPS = 4, /* no measurement is kept of this, EXPAND_BLOCKS and EXPAND_AHEAD */
    EXPAND_THREADS = 32 * EXPAND_WARPS,
    EXPAND_STEP = 64, /* columns a warp multiplies at once: 8 (16 bytes) in each of the 8 lanes that share a rank */
    EXPAND_STRIDE = EXPAND_WARPS * EXPAND_STEP, /* columns from one step of a warp to its next */
    EXPAND_BLOCKS = 4,                          /* on an SM */
    EXPAND_AHEAD = 2,                           /* fragments of B, 2 KB each, that a warp has in flight */
};

/* The columns of y: part i has out[i] of them, from col[i] on, for blocks[i] blocks of `steps` steps. */
typedef struct { int n, steps, cols, out[MAX_PARTS], col[MAX_PARTS], blocks[MAX_PARTS]; } expand_columns;

/* One part of one tile. */
template <typename T> struct expand_part {
    const T *b;     /* [rank, out] */
    T *y;           /* its first row and column */
    const float *v; /* its first row and rank */
    int n_rows, rank, out, y_cols, v_cols;
};

/* Loads v of a rank group: lane 4g + t has its ranks t, t + 4, t + 8 and t + 12 of rows g and, where N is 2, g + 8;
 * zeros where there are none. */
template <int N, typename T>
static __device__ __forceinline__ void expand_load_v(float (&to)[N][4], const expand_part<T> &p, int group)
{
    int g = lane_id() >> 2, r = RANK_GROUP * group + (lane_id() & 3);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool there = g + 8 * i < p.n_rows && r + 4 * j < p.rank;
            to[i][j] = there ? p.v[(size_t)(g + 8 * i) * p.v_cols + r + 4 * j] : 0.0f;
        }
}

/* Returns the largest finite number of T. */
template <typename T> __device__ __forceinline__ float largest();
template <> __device__ __forceinline__ float largest<f16>()
{
    return 65504.0f;
}
template <> __device__ __forceinline__ float largest<bf16>()
{
    return 0x1.fep127f;
}

/* Splits v into mma's A operand: each number is the sum of its value rounded to T and the rest, also of T, so that
 * nearly all its bits count. The rounded term is clamped to finite numbers, so that the sum stays finite. Up to 8 rows
 * (N = 1) share one operand, rounded terms in rows 0 to 7 and rests in rows 8 to 15; more rows have one operand for
 * each. */
template <typename T, int N>
static __device__ __forceinline__ void expand_split(unsigned (&a)[N][4], const float (&v)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float clamped[4], rest[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            clamped[j] = fminf(fmaxf(v[i][j], -largest<T>()), largest<T>());
            rest[j] = v[i][j] - to_float(from_float<T>(clamped[j]));
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            a[0][2 * j + i] = pack<T>(clamped[2 * j], clamped[2 * j + 1]);
            a[N - 1][2 * j + (N == 1 ? 1 : i)] = pack<T>(rest[2 * j], rest[2 * j + 1]);
        }
    }
}

/* A fragment of B, RANK_GROUP ranks by 64 columns; a lane has eight columns of each of four ranks. */
typedef union {
    uint4 row[4];
    unsigned at[4][4];
} b_fragment;

/* d[i] += v B over 64 columns: product i has every 8th of them, 8n + i as its column n. So lane 4g + t holds columns 8g
 * to 8g + 7 of its four ranks of B. */
template <typename T, int N>
static __device__ __forceinline__ void expand_multiply(float (&d)[8][4], const unsigned (&a)[N][4], const b_fragment &b)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned halves = i & 1 ? 0x7632 : 0x5410;
        unsigned pairs[2] = {__byte_perm(b.at[0][i >> 1], b.at[1][i >> 1], halves),
                             __byte_perm(b.at[2][i >> 1], b.at[3][i >> 1], halves)};
#pragma unroll
        for (int j = 0; j < N; j++)
            mma<T>(d[i], a[j], pairs);
    }
}

/* Loads y of one step, the columns from col on: lane 4g + t has columns 16t to 16t + 15 of rows g and, where N is 2,
 * g + 8. */
template <int N, typename T>
static __device__ __forceinline__ void expand_load_y(uint4 (&y)[2 * N], const expand_part<T> &p, int col)
{
    int g = lane_id() >> 2, c = col + 16 * (lane_id() & 3);
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        if (g + 8 * (i >> 1) < p.n_rows && c + 8 * (i & 1) < p.out)
            y[i] = *(const uint4 *)(p.y + (size_t)(g + 8 * (i >> 1)) * p.y_cols + c + 8 * (i & 1));
}

/* Stores y + d and clears d. */
template <int N, typename T>
static __device__ __forceinline__ void expand_store(const expand_part<T> &p, int col, const uint4 (&y)[2 * N],
                                                    float (&d)[8][4])
{
    int g = lane_id() >> 2, c = col + 16 * (lane_id() & 3);
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        float sum[8];
        load_n(sum, (const T *)&y[i]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[j] += N == 1 ? d[j][i] + d[j][i + 2] : d[j][i];
        if (g + 8 * (i >> 1) < p.n_rows && c + 8 * (i & 1) < p.out)
            store_n(p.y + (size_t)(g + 8 * (i >> 1)) * p.y_cols + c + 8 * (i & 1), sum);
    }
    memset(d, 0, sizeof d);
}

/* Computes a warp's columns from col on, `steps` steps of them; in each step all rank groups, one fragment of B after
 * the other. EXPAND_AHEAD fragments are prefetched; the next rank group of v is loaded while one is multiplied, the
 * next step's y when one is stored. */
template <int N, typename T>
static __device__ __forceinline__ void expand_run(const expand_part<T> &p, int col, int steps)
{
    int t = lane_id() & 3, c = col + 8 * (lane_id() >> 2), n_groups = rank_groups(p.rank);
    int ranks_left = p.rank - t, cols_left = p.out - c, reads_left = steps * n_groups;
    const T *b = p.b + (size_t)t * p.out + c;
    b_fragment fragment[EXPAND_AHEAD];
    auto prefetch = [&](b_fragment &to) {
        if (--reads_left < 0)
            return;
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.row[i] = load_weights(b + (size_t)(4 * i) * p.out, cols_left > 0 && 4 * i < ranks_left);
        ranks_left -= RANK_GROUP;
        b += (size_t)RANK_GROUP * p.out;
        if (ranks_left + t > 0)
            return;
        b += EXPAND_STRIDE - (size_t)RANK_GROUP * n_groups * p.out;
        ranks_left = p.rank - t;
        cols_left -= EXPAND_STRIDE;
    };
#pragma unroll
    for (int i = 0; i < EXPAND_AHEAD; i++)
        prefetch(fragment[i]);
    wait_for_previous();

    uint4 y[2 * N];
    float v[N][4], d[8][4] = {};
    unsigned a[N][4];
    expand_load_v<N>(v, p, 0);
    expand_load_y<N>(y, p, col);
    expand_split<T, N>(a, v);
    for (int group = 0;;)
#pragma unroll
        for (int i = 0; i < EXPAND_AHEAD; i++) {
            bool last = group + 1 == n_groups;
            if (n_groups > 1)
                expand_load_v<N>(v, p, last ? 0 : group + 1);
            expand_multiply<T, N>(d, a, fragment[i]);
            prefetch(fragment[i]);
            group = last ? 0 : group + 1;
            if (last) {
                expand_store<N>(p, col, y, d);
                col += EXPAND_STRIDE;
                if (--steps == 0)
                    return;
                expand_load_y<N>(y, p, col);
            }
            if (n_groups > 1)
                expand_split<T, N>(a, v);
        }
}

/* The grid is for gridDim.y tiles: block (i, tile) owns block i of the columns of all parts. Where there are fewer
 * tiles, 2^spare blocks share these columns. A warp owns every fourth step (64 columns) of its block. No shared
 * memory. */
template <typename T>
static __global__ void __launch_bounds__(EXPAND_THREADS, EXPAND_BLOCKS)
    expand_tiles(const sgmv_tile *tiles, const int *n_tiles, int site, expand_columns c, T *y, const float *v,
                 int v_cols)
{
    let_next_start();
    sgmv_tile tile = tiles[blockIdx.y];
    int block = (int)blockIdx.x, part = 0, rank = 0, before = 0, n = *n_tiles;
    for (; block >= pick(c.blocks, part); part++)
        block -= pick(c.blocks, part);
    int spare = log2_spare(n, (int)gridDim.y), at = (int)blockIdx.y >> spare;
    const T *b = NULL;
    if (at < n) {
        if (spare > 0)
            tile = tiles[at];
        const lora_entry *e = tile.table + site;
        rank = e->rank[part];
        b = (const T *)e->b[part];
        before = rank_offset(e, part);
    }
    expand_part<T> p = {b,
                        y + (size_t)tile.row * c.cols + pick(c.col, part),
                        v + (size_t)tile.row * v_cols + before,
                        tile.n_rows,
                        rank,
                        pick(c.out, part),
                        c.cols,
                        v_cols};
    int block_steps = (c.steps + (1 << spare) - 1) >> spare;
    int col =
        ((block << spare) + (int)blockIdx.y - (at << spare)) * block_steps * EXPAND_STRIDE + EXPAND_STEP * warp_id();
    int steps = min(block_steps, (p.out - col + EXPAND_STRIDE - 1) / EXPAND_STRIDE);
    if (rank == 0 || steps <= 0)
        leave_idle();
    else if (tile.n_rows > 8)
        expand_run<2>(p, col, steps);
    else
        expand_run<1>(p, col, steps);
}

#endif
