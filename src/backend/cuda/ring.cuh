/* ring.cuh - parts of matrices on their way into shared memory, counted on barriers
 *
 * One warp copies, others work on what has arrived. A stage of the ring has two barriers in shared memory:
 * `full` completes a phase when all that belongs to the stage is there, `empty` when every working warp has
 * said that it is done with it. For each stage the copying warp calls, with all its lanes,
 *
 *   announce(full, bytes);      the bytes that copy_rows will bring; what lane 0 stored before is seen
 *   copy_rows(...);             any number of times; on Hopper a row is one bulk copy
 *   copy_word(...);             4 bytes, by single lanes
 *   queued_rows(full);          or, when there were words, queued_words(full)
 *
 * and `full` is set for ROWS_ARRIVALS or WORDS_ARRIVALS. */
#ifndef PUNICA_BACKEND_CUDA_RING_CUH
#define PUNICA_BACKEND_CUDA_RING_CUH

#include "backend/cuda/mma.cuh"

/* Copies of single lanes are counted by lane; those of rows too where they are made of them. */
enum {
    WORDS_ARRIVALS = 33,
#if __CUDA_ARCH__ >= 900
    ROWS_ARRIVALS = 1,
#else
    ROWS_ARRIVALS = WORDS_ARRIVALS,
#endif
};

static __device__ __forceinline__ void barrier_set(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* After barriers were set and before a block barrier: the copy engine sees them. */
static __device__ __forceinline__ void barriers_set()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(shared_address(barrier)) : "memory");
}

/* Wait for the end of the phase of this parity; phases count from 0. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, int parity)
{
    int done = 0;
    while (!done)
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#endif
}

static __device__ __forceinline__ void announce(uint64_t *full, int bytes)
{
    if ((threadIdx.x & 31) == 0) {
#if __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                     :: "r"(shared_address(full)), "r"(bytes) : "memory");
#else
        barrier_arrive(full);
#endif
    }
    __syncwarp();
}

/* n rows of `bytes` (a multiple of 16), strides in bytes, everything aligned to 16. */
static __device__ __forceinline__ void copy_rows(void *to, int to_stride, const void *from, size_t from_stride, int n,
                                                 int bytes, uint64_t *full)
{
    int lane = (int)threadIdx.x & 31;
#if __CUDA_ARCH__ >= 900
    for (int i = lane; i < n; i += 32)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(shared_address(to) + (unsigned)(i * to_stride)), "l"((const char *)from + i * from_stride),
                        "r"(bytes), "r"(shared_address(full)) : "memory");
#else
    for (int i = 0; i < n; i++)
        for (int at = 16 * lane; at < bytes; at += 16 * 32)
            copy_16((char *)to + i * to_stride + at, (const char *)from + i * from_stride + at, true);
#endif
}

static __device__ __forceinline__ void copy_word(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(shared_address(to)), "l"(from) : "memory");
}

static __device__ __forceinline__ void queued_words(uint64_t *full)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(shared_address(full)) : "memory");
}

static __device__ __forceinline__ void queued_rows(uint64_t *full)
{
#if __CUDA_ARCH__ < 900
    queued_words(full);
#endif
}

#endif
