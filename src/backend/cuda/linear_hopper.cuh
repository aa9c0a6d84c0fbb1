/* linear_hopper.cuh - instructions of sm_90a that the skinny product is made of, one per function
 *
 * Tensor copies put boxes of a matrix into shared memory and count their bytes on a barrier there; the
 * warpgroup product (wgmma) reads its operands from there, or the first from registers. A box is some rows by 64 columns;
 * of 16-bit numbers (128 bytes) it is stored in the 128-byte swizzle and begins at a multiple of 1024. */
#ifndef PUNICA_BACKEND_CUDA_LINEAR_HOPPER_CUH
#define PUNICA_BACKEND_CUDA_LINEAR_HOPPER_CUH

#include <cuda.h>

#include "backend/cuda/mailbox.cuh"
#include "backend/cuda/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A barrier whose phases (counted from 0) end when so many have arrived and all expected bytes are there. */
static __device__ __forceinline__ void barrier_set(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* After barriers were set: the copy engine and peers will see them. */
static __device__ __forceinline__ void barriers_set()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(barrier)) : "memory");
}

/* Wait for the end of the phase of this parity. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, int parity)
{
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
}

/* Arrive, and let the phase last until so many bytes more have been copied. */
static __device__ __forceinline__ void expect_bytes(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/* Copy so many bytes (a multiple of 16, as are the addresses); they count on the barrier. */
static __device__ __forceinline__ void copy_row(void *to, const void *from, int bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

/* A place in a ring; its parity changes each time round. */
typedef struct { int slot, parity; } ring_place;

static __device__ __forceinline__ void step_on(ring_place &r, int n_stages)
{
    if (++r.slot == n_stages) {
        r.slot = 0;
        r.parity ^= 1;
    }
}

/* What is read once should not push other things out of L2. */
static __device__ __forceinline__ uint64_t policy_read_once()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ uint64_t policy_keep()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Copy what the map's second and third dimension have from `row` and `box` on, as many as its box has (rows, and 64s of
 * columns); the bytes count on the barrier. What lies outside the matrix is zero. */
static __device__ __forceinline__ void copy_boxes(void *to, const CUtensorMap *map, int row, int box, uint64_t *barrier,
                                                  uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :: "r"(shared_address(to)), "l"(map), "r"(0), "r"(row), "r"(box), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* How wgmma finds an operand in a box: the address in units of 16 bytes, groups of 8 rows 1024 bytes
 * apart, 128-byte swizzle. The next 16 numbers along a row are 2 units on. */
static __device__ __forceinline__ uint64_t operand(const void *box)
{
    unsigned address = shared_address(box);
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

#define ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(d, i) ACC4(d, i), ACC4(d, i + 4), ACC4(d, i + 8), ACC4(d, i + 12)

#define WGMMA_8(type, d, a, b)                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;" \
                 : ACC4(d, 0) : "l"(a), "l"(b))

#define WGMMA_32(type, d, a, b)                                                                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                    \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1, 0, 0;"           \
                 : ACC16(d, 0) : "l"(a), "l"(b))

#define WGMMA_64(type, d, a, b)                                                                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                    \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"     \
                 "%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"                                   \
                 : ACC16(d, 0), ACC16(d, 16) : "l"(a), "l"(b))

/* d [64, N] += A [64, 16] B [16, N], asynchronously, by a warpgroup; N is 8, 32 or 64. Warp w, lane 4 g + t
 * holds of each 8 columns j: d[4 j ..] = (16 w + g, 8 j + 2 t), (.., + 1), (16 w + g + 8, ..), (.., + 1). */
template <typename T, int N> static __device__ __forceinline__ void wgmma(float *d, uint64_t a, uint64_t b)
{
    constexpr bool half = sizeof(T) == sizeof(f16) && __is_same(T, f16);
    if constexpr (N == 8)
        if constexpr (half) WGMMA_8("f16", d, a, b); else WGMMA_8("bf16", d, a, b);
    else if constexpr (N == 32)
        if constexpr (half) WGMMA_32("f16", d, a, b); else WGMMA_32("bf16", d, a, b);
    else
        if constexpr (half) WGMMA_64("f16", d, a, b); else WGMMA_64("bf16", d, a, b);
}

#define WGMMA_A_8(type, d, a, b)                                                                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type                                     \
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"                                               \
                 : ACC4(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define WGMMA_A_32(type, d, a, b)                                                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                    \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;" \
                 : ACC16(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define WGMMA_A_64(type, d, a, b)                                                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                    \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"     \
                 "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"                        \
                 : ACC16(d, 0), ACC16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* The same with A in registers, 16 rows to a warp, laid out as in mma.cuh. */
template <typename T, int N> static __device__ __forceinline__ void wgmma_a(float *d, const unsigned *a, uint64_t b)
{
    constexpr bool half = __is_same(T, f16);
    if constexpr (N == 8)
        if constexpr (half) WGMMA_A_8("f16", d, a, b); else WGMMA_A_8("bf16", d, a, b);
    else if constexpr (N == 32)
        if constexpr (half) WGMMA_A_32("f16", d, a, b); else WGMMA_A_32("bf16", d, a, b);
    else
        if constexpr (half) WGMMA_A_64("f16", d, a, b); else WGMMA_A_64("bf16", d, a, b);
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait until all but the N latest groups are done. */
template <int N> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

/* Send two floats to a peer (addresses as of at_peer); their 8 bytes count on its barrier. */
static __device__ __forceinline__ void send_2(unsigned to, float a, float b, unsigned barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                 :: "r"(to), "f"(a), "f"(b), "r"(barrier) : "memory");
}

/* This warp's number, in a way that tells the compiler that it is one for all lanes: wgmma wants that. */
static __device__ __forceinline__ int warp_index()
{
    return __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 5), 0);
}

#endif
#endif
