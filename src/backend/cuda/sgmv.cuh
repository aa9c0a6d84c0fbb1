/* sgmv.cuh - what the SGMV kernels share
 *
 * Weights go from global memory straight into the registers of mma fragments. A product may sum over k in any order, so
 * the inputs that a fragment's places along k stand for can be chosen, as long as both operands agree: they are chosen
 * so that every lane reads 16 contiguous bytes of a row, and nothing is shuffled through shared memory. Tensor cores
 * are used for single rows too: weights are the large operand, and the arithmetic wasted on absent rows would idle.
 *
 * The first weights are read before wait_for_previous(), as nobody writes them. The kernels take a few microseconds, so
 * little comes after it: few instructions, no index arithmetic, no avoidable barrier. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_CUH
#define PUNICA_BACKEND_CUDA_SGMV_CUH

#include "backend/cuda/kernel.cuh"
#include "backend/cuda/mma.cuh"

enum { RANK_GROUP = 16 }; /* ranks multiplied at once: m of mma.m16n8k16 in the shrink, k in the expand */

static_assert(SGMV_TILE == 16, "a tile is the 16 rows, or twice the 8 columns, of a tensor core product");

static __device__ __forceinline__ int lane_id()
{
    return (int)threadIdx.x & 31;
}
static __device__ __forceinline__ int warp_id()
{
    return (int)threadIdx.x >> 5;
}
static __device__ __forceinline__ int rank_groups(int rank)
{
    return (rank + RANK_GROUP - 1) / RANK_GROUP;
}

/* Returns the log2 of how many times as many blocks each of n tiles has: floor(log2(max_tiles / n)). Grids are sized
 * for max_tiles tiles, since a recorded launch does not know how many there will be. */
static __device__ __forceinline__ int log2_spare(int n, int max_tiles)
{
    int log2 = __clz(n) - __clz(max_tiles);
    return log2 > 0 && n << log2 > max_tiles ? log2 - 1 : log2;
}

/* Called by blocks and warps without work, before they exit. Only block 0 waits for the preceding kernel, which is
 * enough for kernels to end in order (kernel.cuh); the others free their registers for the next kernel at once. */
static __device__ __forceinline__ void leave_idle()
{
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0)
        wait_for_previous();
}

/* Returns x[i] without indexing: an array that is indexed by a variable cannot stay in registers. */
template <typename V> static __device__ __forceinline__ V pick(const V (&x)[MAX_PARTS], int i)
{
    return i == 0 ? x[0] : i == 1 ? x[1] : x[2];
}

/* Returns the ranks of the parts before this one: its first column of v. */
static __device__ __forceinline__ int rank_offset(const lora_entry *e, int part)
{
    return (part > 0 ? e->rank[0] : 0) + (part > 1 ? e->rank[1] : 0);
}

/* Loads 16 bytes that are read only once, past L1; returns zeros where there are none. Volatile, so that the compiler
 * does not move the load past wait_for_previous(). */
static __device__ __forceinline__ uint4 load_weights(const void *from, bool there)
{
    uint4 w = {};
    if (there)
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(from));
    return w;
}

#endif
