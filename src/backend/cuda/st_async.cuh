/* st_async.cuh - stores to another block's shared memory that complete on its mbarrier (st.async, Hopper)
 *
 * A cluster barrier orders all memory of all blocks and costs more than the reduction it guards. Here every store
 * completes on an mbarrier of the receiving block, and only that block waits. The mbarriers of all blocks must be
 * initialised before the first store: st_async_init(), cluster_arrive_relaxed(), and cluster_wait() before st_async().
 * The kernel must be launched in clusters of 2 blocks or more, or st.async fails. Before Hopper there are no clusters:
 * a block stores to itself, and the wait is __syncthreads(). */
#ifndef PUNICA_BACKEND_CUDA_ST_ASYNC_CUH
#define PUNICA_BACKEND_CUDA_ST_ASYNC_CUH

#include "backend/cuda/cluster.cuh"

/* Arrives like cluster_arrive(), but orders no memory: after the wait only the initialisation of mbarriers is
 * visible. */
static __device__ __forceinline__ void cluster_arrive_relaxed()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

/* Initialises an mbarrier for one arrival per phase, the one of st_async_expect(). Called by one thread of the block.
 */
static __device__ __forceinline__ void st_async_init(uint64_t *barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(barrier))
                 : "memory");
#endif
}

/* Arrives, and makes the phase expect n floats in all; some of them may have come already. */
static __device__ __forceinline__ void st_async_expect(uint64_t *barrier, int n)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(barrier)), "r"(4 * n)
                 : "memory");
#endif
}

/* Stores value to *at in block `peer` and completes on that block's *barrier; both addresses are those of this
 * block. */
static __device__ __forceinline__ void st_async(float *at, uint64_t *barrier, unsigned peer, float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 to, box;"
                 " mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 box, %1, %2;"
                 " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [box]; }"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"((uint32_t)__cvta_generic_to_shared(barrier)),
                   "r"(peer), "r"(__float_as_uint(value))
                 : "memory");
#else
    *at = value;
#endif
}

/* Waits until phase i, counted from 0, has completed. */
static __device__ __forceinline__ void st_async_wait(uint64_t *barrier, int i)
{
#if __CUDA_ARCH__ >= 900
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;"
                     " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"((uint32_t)__cvta_generic_to_shared(barrier)), "r"(i & 1)
                     : "memory");
#else
    __syncthreads();
#endif
}

#endif
