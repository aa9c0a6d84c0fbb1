/* cluster.cuh - blocks of a cluster: a barrier, and each other's shared memory (Hopper)
 *
 * A peer's shared memory may be accessed only while the peer is known to run: there is a cluster barrier before the
 * first access and one after the last. Before Hopper a cluster is one block: the barrier is __syncthreads(), and the
 * only peer is the block itself. */
#ifndef PUNICA_BACKEND_CUDA_CLUSTER_CUH
#define PUNICA_BACKEND_CUDA_CLUSTER_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* The barrier of all threads of the cluster. What is written before the arrive is visible after the wait. */
static __device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

/* Returns the address in block `peer` of what `at` points to in this block's shared memory. */
static __device__ __forceinline__ uint32_t at_peer(const void *at, unsigned peer)
{
    uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
    uint32_t here = (uint32_t)__cvta_generic_to_shared(at);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(peer));
#endif
    return there;
}

static __device__ __forceinline__ void store_to_peer(float *at, unsigned peer, float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" : : "r"(at_peer(at, peer)), "f"(value) : "memory");
#else
    *at = value;
#endif
}

static __device__ __forceinline__ void store_to_peer(unsigned long long *at, unsigned peer, unsigned long long value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.u64 [%0], %1;" : : "r"(at_peer(at, peer)), "l"(value) : "memory");
#else
    *at = value;
#endif
}

static __device__ __forceinline__ float load_from_peer(const float *at, unsigned peer)
{
#if __CUDA_ARCH__ >= 900
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at_peer(at, peer)) : "memory");
    return value;
#else
    return *at;
#endif
}

static __device__ __forceinline__ float2 load_from_peer(const float2 *at, unsigned peer)
{
#if __CUDA_ARCH__ >= 900
    float2 value;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(value.x), "=f"(value.y)
                 : "r"(at_peer(at, peer))
                 : "memory");
    return value;
#else
    return *at;
#endif
}

static __device__ __forceinline__ unsigned load_from_peer(const unsigned *at, unsigned peer)
{
#if __CUDA_ARCH__ >= 900
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(at_peer(at, peer)) : "memory");
    return value;
#else
    return *at;
#endif
}

#endif
