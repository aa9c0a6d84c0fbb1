/* hopper.cuh - instructions of sm_90a that the skinny product and the attention of prefills use, one per function
 *
 * Bulk tensor copies (TMA) put boxes of a matrix into shared memory and complete on an mbarrier there; wgmma reads its
 * operands from there, or A from registers. A box is some rows by 64 columns; one of 16-bit numbers (rows of 128 bytes)
 * has the 128-byte swizzle and begins at a multiple of 1024. */
#ifndef PUNICA_BACKEND_CUDA_HOPPER_CUH
#define PUNICA_BACKEND_CUDA_HOPPER_CUH

#include <cuda.h>

#include "backend/cuda/st_async.cuh"
#include "backend/cuda/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Initialises an mbarrier whose phases complete when this many threads have arrived and all expected bytes have
 * come. */
static __device__ __forceinline__ void mbarrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Makes the initialisation of mbarriers visible to the async proxy and to the other blocks of the cluster. */
static __device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(barrier)) : "memory");
}

/* Waits until the phase of this parity has completed. */
static __device__ __forceinline__ void mbarrier_wait(uint64_t *barrier, int parity)
{
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

/* Arrives, and makes the phase expect this many more bytes. */
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Starts a bulk copy, which completes on the mbarrier; `bytes` and both addresses are multiples of 16. */
static __device__ __forceinline__ void bulk_copy(void *to, const void *from, int bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* The stage of a pipeline that is used next, and the parity of its mbarriers' phase, which flips with each round of the
 * ring. */
typedef struct { int stage, parity; } pipeline_state;

static __device__ __forceinline__ void pipeline_advance(pipeline_state &at, int n_stages)
{
    if (++at.stage == n_stages) {
        at.stage = 0;
        at.parity ^= 1;
    }
}

/* Returns an L2 cache policy for what is read once: evict first. */
static __device__ __forceinline__ uint64_t policy_read_once()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Returns an L2 cache policy for what is read again: evict last. */
static __device__ __forceinline__ uint64_t policy_keep()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Starts a bulk tensor copy of the box at (row, box) in the second and third dimension of the map (rows, and 64s of
 * columns); it completes on the mbarrier. Zeros are filled in for what lies outside the matrix. */
static __device__ __forceinline__ void tensor_copy(void *to, const CUtensorMap *map, int row, int box,
                                                   uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(0), "r"(row), "r"(box), "r"(shared_address(barrier)),
                   "l"(policy)
                 : "memory");
}

/* Returns the matrix descriptor of a wgmma operand in shared memory with 128-byte swizzle; addresses in it are in units
 * of 16 bytes. K-major: groups of 8 rows are stride_bytes apart, and the next 16 numbers of a row are 2 units on.
 * MN-major (a transposed B): groups of 8 along k are stride_bytes apart, 64s of columns leading_bytes. */
static __device__ __forceinline__ uint64_t matrix_descriptor(const void *at, int leading_bytes, int stride_bytes)
{
    unsigned address = shared_address(at);
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(stride_bytes >> 4) << 32 | (uint64_t)1 << 62;
}

/* Returns the descriptor of a box, K-major. */
static __device__ __forceinline__ uint64_t box_descriptor(const void *box)
{
    return matrix_descriptor(box, 16, 1024);
}

#define ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC8(d, i) ACC4(d, i), ACC4(d, i + 4)
#define ACC16(d, i) ACC8(d, i), ACC8(d, i + 8)
#define ACC32(d, i) ACC16(d, i), ACC16(d, i + 16)

/* The names of operands 0 to n - 1 of an instruction. */
#define NAMES_4 "%0,%1,%2,%3"
#define NAMES_16 NAMES_4 ",%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_24 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_32 NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_56 \
    NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_64 NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"

#define WGMMA_8(type, d, a, b, add)                                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " {" NAMES_4 "}, %4, %5, %6, 1, 1, 0, 0;" \
                 : ACC4(d, 0)                                                                                         \
                 : "l"(a), "l"(b), "n"(add))

#define WGMMA_32(type, d, a, b, add)                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" NAMES_16 \
                 "}, %16, %17, %18, 1, 1, 0, 0;"                                           \
                 : ACC16(d, 0)                                                             \
                 : "l"(a), "l"(b), "n"(add))

#define WGMMA_48(type, d, a, b, add)                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type " {" NAMES_24 \
                 "}, %24, %25, %26, 1, 1, 0, 0;"                                           \
                 : ACC16(d, 0), ACC8(d, 16)                                                \
                 : "l"(a), "l"(b), "n"(add))

#define WGMMA_64(type, d, a, b, add)                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" NAMES_32 \
                 "}, %32, %33, %34, 1, 1, 0, 0;"                                           \
                 : ACC32(d, 0)                                                             \
                 : "l"(a), "l"(b), "n"(add))

#define WGMMA_112(type, d, a, b, add)                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n112k16.f32." type "." type " {" NAMES_56 \
                 "}, %56, %57, %58, 1, 1, 0, 0;"                                            \
                 : ACC32(d, 0), ACC16(d, 32), ACC8(d, 48)                                   \
                 : "l"(a), "l"(b), "n"(add))

#define WGMMA_128(type, d, a, b, add)                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" NAMES_64 \
                 "}, %64, %65, %66, 1, 1, 0, 0;"                                            \
                 : ACC32(d, 0), ACC32(d, 32)                                                \
                 : "l"(a), "l"(b), "n"(add))

/* d [64, N] += A [64, 16] B [16, N], asynchronously, by a warpgroup; d = A B without ADD. N is 8, 32, 48, 64, 112 or
 * 128. Lane 4 g + t of warp w holds of the j-th 8 columns, in d[4 j] to d[4 j + 3]: row 16 w + g, columns 8 j + 2 t and
 * the next; row 16 w + g + 8, the same columns. */
template <typename T, int N, bool ADD = true>
static __device__ __forceinline__ void wgmma(float *d, uint64_t a, uint64_t b)
{
    constexpr bool half = __is_same(T, f16);
    if constexpr (N == 8)
        if constexpr (half)
            WGMMA_8("f16", d, a, b, ADD);
        else
            WGMMA_8("bf16", d, a, b, ADD);
    else if constexpr (N == 32)
        if constexpr (half)
            WGMMA_32("f16", d, a, b, ADD);
        else
            WGMMA_32("bf16", d, a, b, ADD);
    else if constexpr (N == 48)
        if constexpr (half)
            WGMMA_48("f16", d, a, b, ADD);
        else
            WGMMA_48("bf16", d, a, b, ADD);
    else if constexpr (N == 64)
        if constexpr (half)
            WGMMA_64("f16", d, a, b, ADD);
        else
            WGMMA_64("bf16", d, a, b, ADD);
    else if constexpr (N == 112)
        if constexpr (half)
            WGMMA_112("f16", d, a, b, ADD);
        else
            WGMMA_112("bf16", d, a, b, ADD);
    else if constexpr (half)
        WGMMA_128("f16", d, a, b, ADD);
    else
        WGMMA_128("bf16", d, a, b, ADD);
}

#define REGISTERS(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

#define WGMMA_A_8(type, d, a, b)                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " {" NAMES_4 \
                 "}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"                                     \
                 : ACC4(d, 0)                                                            \
                 : REGISTERS(a), "l"(b))

#define WGMMA_A_32(type, d, a, b)                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" NAMES_16 \
                 "}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;"                                  \
                 : ACC16(d, 0)                                                             \
                 : REGISTERS(a), "l"(b))

#define WGMMA_A_48(type, d, a, b)                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type " {" NAMES_24 \
                 "}, {%24,%25,%26,%27}, %28, 1, 1, 1, 0;"                                  \
                 : ACC16(d, 0), ACC8(d, 16)                                                \
                 : REGISTERS(a), "l"(b))

#define WGMMA_A_64(type, d, a, b, transposed)                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" NAMES_32 \
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, %37;"                                \
                 : ACC32(d, 0)                                                             \
                 : REGISTERS(a), "l"(b), "n"(transposed))

#define WGMMA_A_128(type, d, a, b, transposed)                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" NAMES_64 \
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, %69;"                                 \
                 : ACC32(d, 0), ACC32(d, 32)                                                \
                 : REGISTERS(a), "l"(b), "n"(transposed))

/* wgmma() with A in registers, 16 rows to a warp, laid out as in mma.cuh; N is 8, 32, 48 or 64. */
template <typename T, int N> static __device__ __forceinline__ void wgmma_a(float *d, const unsigned *a, uint64_t b)
{
    constexpr bool half = __is_same(T, f16);
    if constexpr (N == 8)
        if constexpr (half)
            WGMMA_A_8("f16", d, a, b);
        else
            WGMMA_A_8("bf16", d, a, b);
    else if constexpr (N == 32)
        if constexpr (half)
            WGMMA_A_32("f16", d, a, b);
        else
            WGMMA_A_32("bf16", d, a, b);
    else if constexpr (N == 48)
        if constexpr (half)
            WGMMA_A_48("f16", d, a, b);
        else
            WGMMA_A_48("bf16", d, a, b);
    else if constexpr (half)
        WGMMA_A_64("f16", d, a, b, 0);
    else
        WGMMA_A_64("bf16", d, a, b, 0);
}

/* wgmma_a() with B MN-major; N is 64 or 128. */
template <typename T, int N> static __device__ __forceinline__ void wgmma_a_t(float *d, const unsigned *a, uint64_t b)
{
    constexpr bool half = __is_same(T, f16);
    if constexpr (N == 64)
        if constexpr (half)
            WGMMA_A_64("f16", d, a, b, 1);
        else
            WGMMA_A_64("bf16", d, a, b, 1);
    else if constexpr (half)
        WGMMA_A_128("f16", d, a, b, 1);
    else
        WGMMA_A_128("bf16", d, a, b, 1);
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the N latest groups of products are done. */
template <int N> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

/* Stores two floats to a peer's shared memory (addresses from at_peer()); their 8 bytes complete on its mbarrier. */
static __device__ __forceinline__ void st_async_2(unsigned to, float a, float b, unsigned barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                 :
                 : "r"(to), "f"(a), "f"(b), "r"(barrier)
                 : "memory");
}

/* Returns this warp's number; by a shuffle, so that the compiler knows it to be uniform, as wgmma requires. */
static __device__ __forceinline__ int warp_index()
{
    return __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 5), 0);
}

#endif
#endif
