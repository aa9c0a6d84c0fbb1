/* sgmv.cuh - what the SGMV kernels share
 *
 * Weights go from memory straight into the registers that feed the tensor cores: which input or column of a
 * matrix stands for which index of a product is free as long as both operands agree, so that every lane reads
 * 16 bytes of a row at a time and nothing is rearranged in shared memory. Tensor cores are used for single rows
 * too: weights are the large operand, and what is wasted on absent rows is arithmetic that would idle.
 *
 * The first weights are read before wait_for_previous(), as no kernel writes them; x, y and v after it. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_CUH
#define PUNICA_BACKEND_CUDA_SGMV_CUH

#include "backend/cuda/kernel.cuh"
#include "backend/cuda/mma.cuh"

enum { SGMV_GROUP = 16 };       /* ranks handled at once */

static_assert(SGMV_TILE == 16, "a tile is the 16 rows, or twice the 8 columns, of a tensor core product");

static __device__ __forceinline__ int lane_id() { return (int)threadIdx.x & 31; }
static __device__ __forceinline__ int warp_id() { return (int)threadIdx.x >> 5; }
static __device__ __forceinline__ int groups_of(int rank) { return (rank + SGMV_GROUP - 1) / SGMV_GROUP; }

/* One of three without an address: arrays in registers cannot be indexed. */
template <typename V> static __device__ __forceinline__ V pick(const V (&x)[3], int i)
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
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(from));
    return w;
}

#endif
