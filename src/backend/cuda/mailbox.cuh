/* mailbox.cuh - numbers sent to another block of the cluster, who waits for them alone (Hopper)
 *
 * A barrier of the whole cluster orders everybody's memory and costs more than the sum it guards. Here each
 * number counts itself on an mbarrier of the receiving block as it arrives. A box must be open in all blocks
 * before the first number is sent: open, cluster_announce(), and cluster_wait() before sending. The launch must be
 * one of clusters of 2 blocks or more: without, a kernel that sends fails. Before Hopper there are none: a block then
 * sends to itself, and all its threads wait. */
#ifndef PUNICA_BACKEND_CUDA_MAILBOX_CUH
#define PUNICA_BACKEND_CUDA_MAILBOX_CUH

#include "backend/cuda/cluster.cuh"

/* Arrive like cluster_arrive(), but only opened boxes are seen by those who waited. */
static __device__ __forceinline__ void cluster_announce()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

/* By one thread of the block; it takes part in every delivery by mailbox_expect(). */
static __device__ __forceinline__ void mailbox_open(uint64_t *box)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(box))
                 : "memory");
#endif
}

/* The next delivery is of so many numbers. Some of them may be here already. */
static __device__ __forceinline__ void mailbox_expect(uint64_t *box, int n)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(box)), "r"(4 * n)
                 : "memory");
#endif
}

/* *at = value in block `peer`, counted in its box; both addresses are those in our own block. */
static __device__ __forceinline__ void mailbox_send(float *at, uint64_t *box, unsigned peer, float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 to, box;"
                 " mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 box, %1, %2;"
                 " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [box]; }"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"((uint32_t)__cvta_generic_to_shared(box)), "r"(peer),
                   "r"(__float_as_uint(value))
                 : "memory");
#else
    *at = value;
#endif
}

/* Wait for delivery i, from 0, to be complete. */
static __device__ __forceinline__ void mailbox_wait(uint64_t *box, int i)
{
#if __CUDA_ARCH__ >= 900
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;"
                     " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"((uint32_t)__cvta_generic_to_shared(box)), "r"(i & 1)
                     : "memory");
#else
    __syncthreads();
#endif
}

#endif
