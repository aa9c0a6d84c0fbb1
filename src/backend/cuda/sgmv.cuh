/* sgmv.cuh - what the SGMV kernels share
 *
 * Weights go from memory straight into the registers that feed the tensor cores: which input or column of a
 * matrix stands for which index of a product is free as long as both operands agree, so that every lane reads
 * 16 bytes of a row at a time and nothing is rearranged in shared memory. Tensor cores are used for single rows
 * too: weights are the large operand, and what is wasted on absent rows is arithmetic that would idle.
 *
 * The first weights are read before wait_for_previous(): nobody writes them. The kernels are short, so what
 * comes after it is kept short too: few instructions, no indices to be worked out, no barrier that can be
 * done without. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_CUH
#define PUNICA_BACKEND_CUDA_SGMV_CUH

#include "backend/cuda/kernel.cuh"
#include "backend/cuda/mma.cuh"

enum { SGMV_GROUP = 16 }; /* ranks handled at once */

static_assert(SGMV_TILE == 16, "a tile is the 16 rows, or twice the 8 columns, of a tensor core product");

static __device__ __forceinline__ int lane_id()
{
    return (int)threadIdx.x & 31;
}
static __device__ __forceinline__ int warp_id()
{
    return (int)threadIdx.x >> 5;
}
static __device__ __forceinline__ int groups_of(int rank)
{
    return (rank + SGMV_GROUP - 1) / SGMV_GROUP;
}

/* Grids are sized for max_tiles tiles before it is known how many there are. If these are half as many or fewer, each
 * gets 2, 4 ... times its share of the grid: 2 to the power that is returned. */
static __device__ __forceinline__ int spare_power(int n, int max_tiles)
{
    int power = __clz(n) - __clz(max_tiles);
    return power > 0 && n << power > max_tiles ? power - 1 : power;
}

/* For blocks and warps without work, which then return. They leave their registers to the next kernel at once: for
 * grids to end in order it is enough that one block of each waits for the grid before. */
static __device__ __forceinline__ void leave_idle()
{
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0)
        wait_for_previous();
}

/* x[i] without an address: arrays in registers cannot be indexed. */
template <typename V> static __device__ __forceinline__ V pick(const V (&x)[MAX_PARTS], int i)
{
    return i == 0 ? x[0] : i == 1 ? x[1] : x[2];
}

/* Ranks of the parts before this one: where its columns of v begin. */
static __device__ __forceinline__ int rank_offset(const lora_entry *e, int part)
{
    return (part > 0 ? e->rank[0] : 0) + (part > 1 ? e->rank[1] : 0);
}

/* 16 bytes that are read once; zeros where there are none. Volatile: stays before wait_for_previous(). */
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
