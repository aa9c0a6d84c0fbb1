/* kernel.cuh - what kernels share: number types, 16-byte vectors, block sums, overlapped launches
 *
 * Overlapped launches (programmatic dependent launch, Hopper): a kernel may start while the preceding one drains.
 * Rule for every kernel launched by launch(): every block calls wait_for_previous() before it reads or writes what
 * earlier kernels touch, and block 0 in any case, so that a kernel never ends before the preceding one. Before the call
 * a block may read only weights, the batch's metadata (written by a copy that the stream orders), keys and values of
 * positions that no kernel of the same invocation writes and, once all blocks of a shrink have arrived
 * (step.v_arrivals), that shrink's v and whatever was written before its kernel. let_next_start() may be called once
 * the block has little work left. */
#ifndef PUNICA_BACKEND_CUDA_KERNEL_CUH
#define PUNICA_BACKEND_CUDA_KERNEL_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "backend/cuda/cuda.h"
}

typedef __half f16;
typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(f16 x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float to_float(bf16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ f16 from_float<f16>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* N numbers that are loaded and stored in one access; N * sizeof(T) is at most 16 bytes. */
template <typename T, int N> struct alignas(N * sizeof(T)) vec { T at[N]; };

/* Load and store N numbers as floats. The address is aligned to N numbers or to 16 bytes, whichever is less. */
template <int N, typename T> static __device__ __forceinline__ void load_n(float (&to)[N], const T *from)
{
    constexpr int W = N * sizeof(T) <= 16 ? N : 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i += W) {
        vec<T, W> v = *(const vec<T, W> *)(from + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            to[i + j] = to_float(v.at[j]);
    }
}

template <int N, typename T> static __device__ __forceinline__ void store_n(T *to, const float (&from)[N])
{
    constexpr int W = N * sizeof(T) <= 16 ? N : 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i += W) {
        vec<T, W> v;
#pragma unroll
        for (int j = 0; j < W; j++)
            v.at[j] = from_float<T>(from[i + j]);
        *(vec<T, W> *)(to + i) = v;
    }
}

/* Returns the number of the KvCache block (batch.h) that holds the keys (kind 0) or values (1) of a head in the page of
 * this slot. */
static __device__ __forceinline__ size_t kv_block(const kv_cache &kv, int slot, int layer, int kind, int head)
{
    return (((size_t)(slot / kv.page_len) * kv.n_layers + layer) * 2 + kind) * kv.n_kv_heads + head;
}

static __device__ __forceinline__ float silu(float x)
{
    return __fdividef(x, 1.0f + __expf(-x));
}

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int i = 16; i > 0; i >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int i = 16; i > 0; i >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

/* Returns the sum of x over the block, in every thread. shared: [32] floats. The block is whole warps. */
static __device__ __forceinline__ float block_sum(float x, float *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0)
        shared[warp] = x;
    __syncthreads();
    return warp_sum(lane < n_warps ? shared[lane] : 0.0f);
}

enum { MAX_THREADS = 1024 }; /* of a block */

static inline int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Returns how many threads to give a row of `cols` numbers, n numbers each: whole warps, at most `most`. */
static inline unsigned threads_for(int cols, int n, int most)
{
    int threads = divide_up(divide_up(cols, n), 32) * 32;
    return (unsigned)(threads < most ? threads : most);
}

/* Allows a kernel this much dynamic shared memory, which may exceed the default limit of 48 KiB. */
template <typename... P>
static void allow_shared(const launch_context &on, const char *name, void (*kernel)(P...), size_t bytes)
{
    cudaSetDevice(on.device);
    device_failure_keep(on.failure, on.device,
                        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), name);
}

/* Launches a kernel on the context's stream, in clusters of `cluster` blocks along x (more than 1: Hopper only); keeps
 * a failure under this name. */
template <typename... P, typename... A>
static void launch_clusters(const launch_context &on, const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                            size_t shared, unsigned cluster, A... args)
{
    cudaLaunchAttribute attr[2];
    cudaLaunchConfig_t c = {};
    cudaSetDevice(on.device); /* one thread may drive several */
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = on.stream;
    c.attrs = attr;
    if (on.overlaps_launches) {
        attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attr[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attr[c.numAttrs].val.clusterDim.x = cluster;
        attr[c.numAttrs].val.clusterDim.y = attr[c.numAttrs].val.clusterDim.z = 1;
        c.numAttrs++;
    }
    if (grid.x > 0 && grid.y > 0 && grid.z > 0)
        device_failure_keep(on.failure, on.device, cudaLaunchKernelEx(&c, kernel, P(args)...), name);
}

template <typename... P, typename... A>
static void launch(const launch_context &on, const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared, A... args)
{
    launch_clusters(on, name, kernel, grid, block, shared, 1, args...);
}

/* Calls f<T>(cu, ...), where T is the act type. */
#define BY_ACT(f, cu, ...) ((cu)->base.act == DTYPE_F16 ? f<f16>(cu, __VA_ARGS__) : f<bf16>(cu, __VA_ARGS__))

#endif
