/* sgmv_expand.cuh - y[row, c] += sum over r of v[row, r] B[r, c] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH
#define PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH

#include "backend/cuda/sgmv.cuh"

enum {
    EXPAND_WARPS = 4,
    EXPAND_THREADS = 32 * EXPAND_WARPS,
    EXPAND_STEP = 64,           /* columns a warp multiplies at once */
    EXPAND_STRIDE = EXPAND_WARPS * EXPAND_STEP,
    EXPAND_STEPS = 4,           /* of a warp at most */
    EXPAND_AHEAD = 2,           /* pieces of B, 2 KB each, that a warp has in flight */
};

/* The columns of y: part i has out[i] of them, from col[i], for `blocks` blocks of `steps` steps. */
typedef struct { int n, steps, cols, out[3], col[3], blocks[3]; } expand_columns;

/* Floats from row to row of v in shared memory, such that a warp's reads meet no bank twice. */
static __host__ __device__ __forceinline__ int expand_v_stride(int rank)
{
    return (rank + SGMV_GROUP - 1) / SGMV_GROUP * SGMV_GROUP + 4;
}

/* Bytes of shared memory for adapters of up to this rank. */
static inline size_t expand_shared(int steps, int rank)
{
    return (size_t)SGMV_TILE * (EXPAND_STRIDE * steps * 2 + expand_v_stride(rank) * 4);
}

/* One part of one tile. */
template <typename T> struct expand_part {
    const T *b;                 /* [rank, out] */
    T *y;                       /* its first row and column */
    const float *v;             /* its first row and rank */
    int n_rows, rank, out, y_cols, v_cols;
};

/* v of the tile into shared memory, with zeros up to a whole group of ranks. */
template <int N, typename T>
static __device__ __forceinline__ void expand_copy_v(float *to, const expand_part<T> &p)
{
    int stride = expand_v_stride(p.rank), first = (int)threadIdx.x / SGMV_GROUP;
#pragma unroll 2
    for (int r = (int)threadIdx.x % SGMV_GROUP; r < stride - 4; r += SGMV_GROUP)
#pragma unroll
        for (int i = 0; i < N; i++) {
            int row = first + 8 * i;
            if (row < p.n_rows)
                to[row * stride + r] = r < p.rank ? p.v[(size_t)row * p.v_cols + r] : 0.0f;
        }
}

/* y of the warp's columns into shared memory, each lane for itself: lane 4g + t has columns 16t to 16t + 15 of
 * row g and, where N is 2, g + 8 of a step. */
template <int N, typename T>
static __device__ __forceinline__ void expand_copy_y(uint4 *to, const expand_part<T> &p, int col, int steps)
{
    int g = lane_id() >> 2, c = col + 16 * (lane_id() & 3);
    for (int i = 0; i < steps; i++, c += EXPAND_STRIDE)
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            int row = g + 8 * (j >> 1), at = c + 8 * (j & 1);
            copy_16(to + (2 * N * i + j) * EXPAND_THREADS, p.y + (size_t)row * p.y_cols + at,
                    row < p.n_rows && at < p.out);
        }
    copy_commit();
}

/* v as the left operand, each number as the sum of two of T: lane 4g + t has ranks t, t + 4, t + 8, t + 12 of
 * rows g and g + 8. Up to 8 rows (N = 1) have the greater terms in rows 0 to 7 and the lesser in rows 8 to 15 of
 * one operand; more have an operand of each. */
template <typename T, int N>
static __device__ __forceinline__ void expand_load_v(unsigned (&a)[N][4], const float *v, int stride)
{
    v += (lane_id() >> 2) * stride + (lane_id() & 3);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x[4], rest[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = v[8 * i * stride + 4 * j];
            rest[j] = x[j] - to_float(from_float<T>(x[j]));
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            a[0][2 * j + i] = pack<T>(x[2 * j], x[2 * j + 1]);
            a[N - 1][2 * j + (N == 1 ? 1 : i)] = pack<T>(rest[2 * j], rest[2 * j + 1]);
        }
    }
}

/* Four rows of B, eight columns each, of one lane. */
typedef union { uint4 row[4]; unsigned at[4][4]; } expand_piece;

/* d[i] += v B for 64 columns, of which 8n + i is column n of product i: lane 4g + t has columns 8g to 8g + 7 of
 * its four ranks. */
template <typename T, int N>
static __device__ __forceinline__ void expand_multiply(float (&d)[8][4], const unsigned (&a)[N][4],
                                                       const expand_piece &b)
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

/* y = from + d for one step, columns from col; clears d. */
template <int N, typename T>
static __device__ __forceinline__ void expand_store(const expand_part<T> &p, int col, const uint4 *from,
                                                    float (&d)[8][4])
{
    int g = lane_id() >> 2, c = col + 16 * (lane_id() & 3);
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        int row = g + 8 * (i >> 1), at = c + 8 * (i & 1);
        if (row >= p.n_rows || at >= p.out)
            continue;
        float sum[8];
        load_n(sum, (const T *)(from + i * EXPAND_THREADS));
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[j] += N == 1 ? d[j][i] + d[j][i + 2] : d[j][i];
        store_n(p.y + (size_t)row * p.y_cols + at, sum);
    }
    memset(d, 0, sizeof d);
}

/* Columns from col, `steps` steps of them, with all ranks: pieces of B go by step, and by group of ranks within
 * it. */
template <int N, typename T>
static __device__ __forceinline__ void expand_run(const expand_part<T> &p, int col, int steps, char *shared)
{
    uint4 *y = (uint4 *)shared + threadIdx.x;
    float *v = (float *)(shared + SGMV_TILE * EXPAND_STRIDE * steps * 2);
    int t = lane_id() & 3, c = col + 8 * (lane_id() >> 2);
    int stride = expand_v_stride(p.rank), n_groups = groups_of(p.rank);
    expand_piece piece[EXPAND_AHEAD];
    const T *b = p.b + (size_t)t * p.out + c;
    int ranks_left = p.rank - t;
    int steps_left = c < p.out ? min(steps, (p.out - c + EXPAND_STRIDE - 1) / EXPAND_STRIDE) : 0;
    auto read = [&](expand_piece &to) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.row[i] = load_weights(b + (size_t)(4 * i) * p.out, steps_left > 0 && 4 * i < ranks_left);
        ranks_left -= SGMV_GROUP;
        b += (size_t)SGMV_GROUP * p.out;
        if (ranks_left + t <= 0) {
            b += EXPAND_STRIDE - (size_t)SGMV_GROUP * n_groups * p.out;
            ranks_left = p.rank - t;
            steps_left--;
        }
    };
#pragma unroll
    for (int i = 0; i < EXPAND_AHEAD; i++)
        read(piece[i]);
    wait_for_previous();
    expand_copy_y<N>(y, p, col, steps);
    expand_copy_v<N>(v, p);
    copy_wait<0>();
    __syncthreads();

    float d[8][4] = {};
    unsigned a[N][4];
    expand_load_v<T, N>(a, v, stride);
    for (int at = 0, group = 0; at < steps;) {
#pragma unroll
        for (int i = 0; i < EXPAND_AHEAD; i++) {
            expand_multiply<T, N>(d, a, piece[i]);
            read(piece[i]);
            if (++group == n_groups) {
                if (at < steps)
                    expand_store<N>(p, col + at * EXPAND_STRIDE, y + 2 * N * at * EXPAND_THREADS, d);
                group = 0;
                at++;
            }
            if (n_groups > 1)
                expand_load_v<T, N>(a, v + SGMV_GROUP * group, stride);
        }
    }
}

/* Block (i, tile): block i of the columns of all parts. A warp owns every fourth 64 columns of the block.
 * Shared memory: y of the block, then v of the tile, see expand_shared(). */
template <typename T>
static __global__ void __launch_bounds__(EXPAND_THREADS, 4)
expand_tiles(step s, int site, expand_columns c, T *y, const float *v, int v_cols)
{
    extern __shared__ __align__(16) char shared[];
    let_next_start();
    sgmv_tile tile = s.tile[blockIdx.y];
    int block = (int)blockIdx.x, part = 0, rank = 0, before = 0;
    for (; block >= pick(c.blocks, part); part++)
        block -= pick(c.blocks, part);
    const T *b = NULL;
    if ((int)blockIdx.y < s.n[COUNT_TILES]) {
        const lora_entry *e = tile.table + site;
        rank = e->rank[part];
        b = (const T *)e->b[part];
        before = rank_offset(e, part);
    }
    if (rank == 0) {
        wait_for_previous();
        return;
    }
    expand_part<T> p = {b, y + (size_t)tile.row * c.cols + pick(c.col, part),
                        v + (size_t)tile.row * v_cols + before, tile.n_rows, rank, pick(c.out, part), c.cols, v_cols};
    int col = block * c.steps * EXPAND_STRIDE + EXPAND_STEP * warp_id();
    if (tile.n_rows > 8)
        expand_run<2>(p, col, c.steps, shared);
    else
        expand_run<1>(p, col, c.steps, shared);
}

#endif
