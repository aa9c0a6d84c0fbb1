/* sgmv.cuh - how the SGMV kernels divide their work and feed themselves
 *
 * The work of a call is what the adapters' true ranks make it, so only the device knows it. Every block
 * counts the units of all tiles, laid end to end, and takes an equal share of them: blocks are about as
 * many as SMs whatever the batch, and mixed ranks and segments of all lengths fill them evenly.
 *
 * A block is one warp that copies and eight that work, with a ring between them (ring.cuh). A stage holds
 * weights, and the rows of x, or of y and v, that go with them. Weights are never written by the kernel before, so
 * the copying warp fills the ring with them before it waits for that kernel. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_CUH
#define PUNICA_BACKEND_CUDA_SGMV_CUH

#include "backend/cuda/kernel.cuh"
#include "backend/cuda/ring.cuh"

enum {
    SGMV_WARPS = 8,             /* that work; warp SGMV_WARPS copies */
    SGMV_WORKERS = 32 * SGMV_WARPS,
    SGMV_THREADS = SGMV_WORKERS + 32,
    SGMV_GROUP = 16,            /* ranks handled at once */
    SGMV_STAGES = 8,            /* at most */
    SGMV_RING = 64 << 10,       /* bytes; those of shrink and expand fit one SM together */
};

static_assert(SGMV_TILE == 16, "a tile is the 16 rows, or twice the 8 columns, of a tensor core product");

typedef struct { uint64_t full[SGMV_STAGES], empty[SGMV_STAGES]; } sgmv_barriers;

static __device__ __forceinline__ int lane_id() { return (int)threadIdx.x & 31; }
static __device__ __forceinline__ int warp_id() { return (int)threadIdx.x >> 5; }
static __device__ __forceinline__ int groups_of(int rank) { return (rank + SGMV_GROUP - 1) / SGMV_GROUP; }

/* Ranks of the parts before this one: where its columns of v begin. */
static __device__ __forceinline__ int rank_offset(const lora_entry *e, int part)
{
    return (part > 0 ? e->rank[0] : 0) + (part > 1 ? e->rank[1] : 0);
}

static __device__ __forceinline__ void set_barriers(sgmv_barriers *b, int full_arrivals)
{
    if (threadIdx.x < SGMV_STAGES) {
        barrier_set(&b->full[threadIdx.x], full_arrivals);
        barrier_set(&b->empty[threadIdx.x], SGMV_WARPS);
        barriers_set();
    }
    __syncthreads();
}

/* A place in the ring; phases alternate each time it comes round. */
typedef struct { int stage, n_stages, phase; } ring_place;

static __device__ __forceinline__ void ring_next(ring_place &p)
{
    if (++p.stage == p.n_stages) {
        p.stage = 0;
        p.phase ^= 1;
    }
}

/* All tiles' units, and the most rows a tile has. */
typedef struct { int units, rows; } work_sum;

/* units(entry): those of a tile. Called by a whole warp, as is find_work. */
template <typename W> static __device__ __forceinline__ work_sum sum_work(const step &s, int n_tiles, int site, W units)
{
    work_sum sum = {};
#pragma unroll 4
    for (int i = lane_id(); i < n_tiles; i += 32) {
        sgmv_tile t = s.tile[i];
        sum.units += units(t.table + site);
        sum.rows = max(sum.rows, t.n_rows);
    }
    sum.units = __reduce_add_sync(0xffffffffu, sum.units);
    sum.rows = __reduce_max_sync(0xffffffffu, sum.rows);
    return sum;
}

typedef struct { int tile, before; } work_place;

/* The tile that unit `at` belongs to, and the units before that tile. */
template <typename W>
static __device__ __forceinline__ work_place find_work(const step &s, int n_tiles, int site, W units, int at)
{
    int before = 0;
    for (int first = 0; first < n_tiles; first += 32) {
        int i = first + lane_id(), own = i < n_tiles ? units(s.tile[i].table + site) : 0, upto = own;
        for (int j = 1; j < 32; j *= 2) {
            int below = __shfl_up_sync(0xffffffffu, upto, j);
            upto += lane_id() >= j ? below : 0;
        }
        unsigned past = __ballot_sync(0xffffffffu, before + upto > at);
        if (past) {
            int lane = __ffs((int)past) - 1;
            return work_place{first + lane, before + __shfl_sync(0xffffffffu, upto - own, lane)};
        }
        before += __shfl_sync(0xffffffffu, upto, 31);
    }
    return work_place{n_tiles, before};
}

/* Where share i of n begins. */
static __device__ __forceinline__ int share_begin(int total, int i, int n)
{
    return (int)((long long)total * i / n);
}

/* A barrier of the working warps. */
static __device__ __forceinline__ void workers_sync()
{
    asm volatile("bar.sync 1, %0;" :: "n"((int)SGMV_WORKERS) : "memory");
}

#endif
