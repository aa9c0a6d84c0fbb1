/* linear_shrink.cuh - SGMV shrink in pieces, for warps that ride along with a dense product
 *
 *   v_parts[s][row, offset of part i + r] = scale_i * sum over k in piece s of x[row, k] A_i[r, k]
 *
 * A unit is (tile, piece): the rows of one adapter, all its ranks, one piece of the input dimension. A
 * block takes every so-manyth unit; within them its warps take turns at 16 ranks, which a warp multiplies
 * with the tile's 16 rows on tensor cores, straight from global memory: the order of the inputs
 * within 32 of them does not matter to the sum, so each lane feeds the 8 neighbours that it loaded. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_SHRINK_CUH

#include "backend/cuda/mma.cuh"

typedef struct {
    const sgmv_tile *tile;
    const int *n_tiles;
    const void *x;              /* [rows, in] */
    float *v_parts;
    int site, in;
    int n_pieces, piece;
    int v_stride;               /* floats from row to row of v_parts */
} shrink_job;

enum { SHRINK_RANKS = 16, SHRINK_STEPS = 4, SHRINK_WARPS = 3 };

/* 8 numbers of a row at k, zeros from `to` on. WIDE: rows are whole 16-byte vectors. */
template <typename T, bool WIDE> static __device__ __forceinline__ uint4 load_8(const T *row, int k, int to)
{
    if constexpr (WIDE) {
        return k < to ? *(const uint4 *)(row + k) : make_uint4(0, 0, 0, 0);
    } else {
        vec<T, 8> v;
        for (int i = 0; i < 8; i++)
            v.at[i] = k + i < to ? row[k + i] : from_float<T>(0.0f);
        return *(const uint4 *)&v;
    }
}

/* d[rows g and g + 8, ranks 2 t ..] += over the 32 inputs whose numbers 8 t .. 8 t + 7 lane 4 g + t holds. */
template <typename T>
static __device__ __forceinline__ void mma_32(float d[4], const uint4 &x_lo, const uint4 &x_hi, const uint4 &a)
{
    unsigned x0[4] = {x_lo.x, x_hi.x, x_lo.y, x_hi.y}, a0[2] = {a.x, a.y};
    unsigned x1[4] = {x_lo.z, x_hi.z, x_lo.w, x_hi.w}, a1[2] = {a.z, a.w};
    mma<T>(d, x0, a0);
    mma<T>(d, x1, a1);
}

/* One warp: up to 16 ranks of the tile's rows over inputs [from, to). a: their first row; v: where the
 * first row's first of them goes. */
template <typename T, bool WIDE>
static __device__ void shrink_ranks(float *v, int v_stride, const T *x, int n_rows, const T *a, int n_ranks, int in,
                                    int from, int to, float scale)
{
    const uint4 zero = make_uint4(0, 0, 0, 0);
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const T *x_lo = x + (size_t)g * in, *x_hi = x_lo + (size_t)8 * in;
    const T *a_lo = a + (size_t)g * in, *a_hi = a_lo + (size_t)8 * in;
    float d[2][4] = {};
    for (int k0 = from + 8 * t; k0 < to + 8 * t; k0 += 32 * SHRINK_STEPS) {
        uint4 as[SHRINK_STEPS][2];
#pragma unroll
        for (int i = 0; i < SHRINK_STEPS; i++) {
            as[i][0] = g < n_ranks ? load_8<T, WIDE>(a_lo, k0 + 32 * i, to) : zero;
            as[i][1] = g + 8 < n_ranks ? load_8<T, WIDE>(a_hi, k0 + 32 * i, to) : zero;
        }
#pragma unroll
        for (int i = 0; i < SHRINK_STEPS; i++) {
            uint4 lo = g < n_rows ? load_8<T, WIDE>(x_lo, k0 + 32 * i, to) : zero;
            uint4 hi = g + 8 < n_rows ? load_8<T, WIDE>(x_hi, k0 + 32 * i, to) : zero;
            mma_32<T>(d[0], lo, hi, as[i][0]);
            mma_32<T>(d[1], lo, hi, as[i][1]);
        }
    }
    for (int i = 0; i < 8; i++) {
        int row = g + (i & 2) * 4, rank = (i & 4) * 2 + 2 * t + (i & 1);
        if (row < n_rows && rank < n_ranks)
            v[(size_t)row * v_stride + rank] = scale * d[i >> 2][i & 3];
    }
}

/* Units first, first + stride, ..., by `n_warps` warps of which this is number `warp`. */
template <typename T, bool WIDE>
static __device__ void shrink_units(const shrink_job &job, int first, int stride, int warp, int n_warps)
{
    int n_units = *job.n_tiles * job.n_pieces, turn = 0;
    for (int unit = first; unit < n_units; unit += stride) {
        const sgmv_tile tile = job.tile[unit / job.n_pieces];
        const lora_entry *entry = tile.table + job.site;
        int piece = unit % job.n_pieces, from = piece * job.piece, offset = 0;
        int to = from + job.piece < job.in ? from + job.piece : job.in;
        float *v = job.v_parts + ((size_t)piece * FUSED_ROWS + tile.row) * job.v_stride;
        const T *x = (const T *)job.x + (size_t)tile.row * job.in;
        for (int part = 0; part < 3; part++) {
            int rank = entry->rank[part];
            for (int r = 0; r < rank; r += SHRINK_RANKS)
                if (turn++ % n_warps == warp)
                    shrink_ranks<T, WIDE>(v + offset + r, job.v_stride, x, tile.n_rows,
                                          (const T *)entry->a[part] + (size_t)r * job.in, rank - r, job.in, from, to,
                                          entry->scale[part]);
            offset += rank;
        }
    }
}

/* Bring A of this block's units into L2, one row of a piece per lane; WIDE rows only. */
static __device__ __forceinline__ void prefetch_units(const shrink_job &job, int first, int stride, int thread, int n_threads)
{
#if __CUDA_ARCH__ >= 900
    int n_units = *job.n_tiles * job.n_pieces;
    for (int unit = first; unit < n_units; unit += stride) {
        const lora_entry *entry = job.tile[unit / job.n_pieces].table + job.site;
        int from = unit % job.n_pieces * job.piece;
        int to = from + job.piece < job.in ? from + job.piece : job.in;
        for (int part = 0; part < 3 && from < to; part++)
            for (int r = thread; r < entry->rank[part]; r += n_threads)
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                             :: "l"((const char *)entry->a[part] + 2 * ((size_t)r * job.in + from)), "r"(2 * (to - from)));
    }
#endif
}

#endif
