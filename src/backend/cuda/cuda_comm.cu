/* cuda_comm.cu - sums over ranks that can read each other's memory: on one GPU, or on several by NVLink or PCIe
 *
 * For the few rows of a decode step a one-shot all-reduce is fastest: every rank reads every part, adds up for itself
 * and goes on to the norm in registers; nothing is sent twice. A block owns a row of one rank. The blocks that own the
 * same row on all ranks pass a barrier first: each stores a number that grows with every op in the other ranks' memory
 * and waits for theirs. A block that arrives has waited for all earlier kernels of its rank, so its rank's part is
 * complete, and its rank has read the parts of the op before.
 *
 * The numbers persist from launch to launch, so a recorded step can be replayed. All ranks launch the same grids in the
 * same order, so their numbers agree. Where ranks share a GPU, one launch has the blocks of all ranks, and those that
 * wait for each other are adjacent.
 *
 * Assumed, and not promised by CUDA: the blocks of a grid start in order of their index, x first. A block keeps its
 * place on an SM while it waits. Started in order, the blocks of the first row that is not done have a place on every
 * rank, or get the next one. In any other order a grid of more blocks than run at once could deadlock, its places taken
 * by blocks that wait for some that cannot start. (The tests' sums of 256 rows over 8 ranks have that many blocks.)
 * Without the assumption grids would have to fit at once, or blocks to take their row and rank from a counter when they
 * start; ranks that share a Hopper GPU could be a cluster, whose blocks start together. */
#include "backend/cuda/kernel.cuh"

extern "C" {
#include "backend/cuda/comm.h"
}

/* The operands of one launch, by rank. */
typedef struct {
    int n_ranks, first; /* first: the rank that blockIdx.x = 0 belongs to */
    bool waits;
    int *flag[MAX_RANKS], *count[MAX_RANKS];
    const void *part[MAX_RANKS];
    void *x[MAX_RANKS], *y[MAX_RANKS];
    const float *w[MAX_RANKS];
    int cols[MAX_RANKS]; /* of the parts */
} operands;

static __device__ __forceinline__ void st_release(int *p, int x)
{
    asm volatile("st.release.sys.global.s32 [%0], %1;" : : "l"(p), "r"(x) : "memory");
}

static __device__ __forceinline__ int ld_acquire(const int *p)
{
    int x;
    asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

/* Waits for the blocks of this row on all ranks. Thread r signals rank r and waits for it. */
static __device__ __forceinline__ void rank_barrier_wait(const operands &o, int me)
{
    int row = blockIdx.y, other = threadIdx.x;
    if (!o.waits)
        return;
    int time = o.count[me][row] + 1;
    __syncthreads(); /* all threads have read the count */
    if (other < o.n_ranks) {
        __threadfence_system();
        st_release(&o.flag[other][me * ONE_SHOT_ROWS + row], time);
        while (ld_acquire(&o.flag[me][other * ONE_SHOT_ROWS + row]) - time < 0)
            __nanosleep(20);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        o.count[me][row] = time;
}

/* Loads N numbers that another rank may have written: past L1. */
template <int N> static __device__ __forceinline__ void load_part(float (&to)[N], const float *from)
{
    for (int i = 0; i < N; i++)
        to[i] = __ldcg(from + i);
}

template <int N, typename T> static __device__ __forceinline__ void load_part(float (&to)[N], const T *from)
{
    if constexpr (N == 8) {
        uint4 bits = __ldcg((const uint4 *)from);
        const vec<T, 8> v = (const vec<T, 8> &)bits;
        for (int j = 0; j < N; j++)
            to[j] = to_float(v.at[j]);
    } else {
        for (int j = 0; j < N; j++)
            to[j] = to_float(from[j]);
    }
}

/* sum += the parts of all ranks at offset `at`, in order of rank. */
template <typename T, int N>
static __device__ __forceinline__ void add_parts(float (&sum)[N], const operands &o, size_t at)
{
    for (int r = 0; r < o.n_ranks; r++) {
        float v[N];
        load_part(v, (const T *)o.part[r] + at);
        for (int j = 0; j < N; j++)
            sum[j] += v[j];
    }
}

/* y = the sum of the parts. Block (i, row) owns a row of rank first + i. No shared memory. */
static __global__ void __launch_bounds__(MAX_THREADS) reduce_rows(operands o, int cols)
{
    int me = o.first + blockIdx.x;
    size_t row = (size_t)blockIdx.y * cols;
    wait_for_previous();
    let_next_start();
    rank_barrier_wait(o, me);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float sum[1] = {0.0f};
        add_parts<float>(sum, o, row + i);
        ((float *)o.y[me])[row + i] = sum[0];
    }
}

/* x += the sum of the parts, then y = x / sqrt(mean(x^2) + eps) * w. Block (i, row) owns a row of rank first + i. A
 * thread's first N numbers stay in registers; those of a longer row are read again. Shared: 128 bytes. */
template <typename T, int N>
static __global__ void __launch_bounds__(MAX_THREADS) add_norm_rows(operands o, int cols, float eps)
{
    __shared__ float shared[32];
    int me = o.first + blockIdx.x, first = threadIdx.x * N, stride = blockDim.x * N;
    size_t row = (size_t)blockIdx.y * cols;
    float *x = (float *)o.x[me] + row;
    T *y = (T *)o.y[me] + row;
    float by[N] = {}, v[N] = {}, squares = 0.0f;
    if (first < cols)
        load_n(by, o.w[me] + first);
    wait_for_previous();
    let_next_start();
    if (first < cols)
        load_n(v, x + first);
    rank_barrier_wait(o, me);
    for (int i = first; i < cols; i += stride) {
        float sum[N];
        if (i > first)
            load_n(sum, x + i);
        else
            for (int j = 0; j < N; j++)
                sum[j] = v[j];
        add_parts<T>(sum, o, row + i);
        for (int j = 0; j < N; j++)
            squares += sum[j] * sum[j];
        store_n(x + i, sum);
        if (i == first)
            for (int j = 0; j < N; j++)
                v[j] = sum[j];
    }
    float scale = 1.0f / sqrtf(block_sum(squares, shared) / cols + eps);
    for (int i = first; i < cols; i += stride) {
        if (i > first) {
            load_n(v, x + i);
            load_n(by, o.w[me] + i);
        }
        for (int j = 0; j < N; j++)
            v[j] *= scale * by[j];
        store_n(y + i, v);
    }
}

/* y = the parts side by side. Block (i, row) waits for a row of rank first + i; only the first rank of a device has a y
 * and copies. No shared memory. */
static __global__ void __launch_bounds__(MAX_THREADS) gather_parts(operands o, int cols)
{
    int me = o.first + blockIdx.x;
    float *y = (float *)o.y[me];
    wait_for_previous();
    let_next_start();
    rank_barrier_wait(o, me);
    if (!y)
        return;
    y += (size_t)blockIdx.y * cols;
    for (int r = 0; r < o.n_ranks; y += o.cols[r++])
        for (int i = threadIdx.x; i < o.cols[r]; i += blockDim.x)
            y[i] = __ldcg((const float *)o.part[r] + (size_t)blockIdx.y * o.cols[r] + i);
}

/* y[:, from : from + cols] = part. A block owns a row. */
static __global__ void put_columns(float *y, const float *part, int y_cols, int cols, int from)
{
    wait_for_previous();
    let_next_start();
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[(size_t)blockIdx.x * y_cols + from + i] = part[(size_t)blockIdx.x * cols + i];
}

static operands operands_of(const rank_barrier *m, bool waits, int first, const tensor *part)
{
    operands o = {};
    o.n_ranks = m->n_ranks;
    o.first = first;
    o.waits = waits;
    for (int r = 0; r < m->n_ranks; r++) {
        o.flag[r] = m->flag[r];
        o.count[r] = m->count[r];
        o.part[r] = part[r].data;
        o.cols[r] = part[r].cols;
    }
    CHECK(!waits || part[0].rows <= ONE_SHOT_ROWS);
    return o;
}

void cuda_one_shot_reduce(cuda_backend *cu, const rank_barrier *m, bool waits, int first, int n, tensor *y,
                          const tensor *part)
{
    operands o = operands_of(m, waits, first, part);
    for (int r = first; r < first + n; r++)
        o.y[r] = y[r].data;
    launch(context_of(cu), "all_reduce", reduce_rows, dim3((unsigned)n, (unsigned)y[first].rows),
           threads_for(y[first].cols, 1, MAX_THREADS), 0, o, y[first].cols);
}

template <typename T> static void run_add_norm(cuda_backend *cu, operands o, dim3 grid, int cols, float eps)
{
    if (cols % 8 == 0)
        launch(context_of(cu), "all_reduce_add_rms_norm", add_norm_rows<T, 8>, grid, threads_for(cols, 8, MAX_THREADS),
               0, o, cols, eps);
    else
        launch(context_of(cu), "all_reduce_add_rms_norm", add_norm_rows<T, 1>, grid, threads_for(cols, 1, MAX_THREADS),
               0, o, cols, eps);
}

void cuda_one_shot_add_norm(cuda_backend *cu, const rank_barrier *m, bool waits, int first, int n, tensor *y, tensor *x,
                            const tensor *part, const tensor *const *w, float eps)
{
    operands o = operands_of(m, waits, first, part);
    for (int r = first; r < first + n; r++) {
        CHECK(x[r].type == DTYPE_F32 && y[r].type == cu->base.act && part[r].type == cu->base.act &&
              w[r]->type == DTYPE_F32);
        o.x[r] = x[r].data;
        o.y[r] = y[r].data;
        o.w[r] = (const float *)w[r]->data;
    }
    BY_ACT(run_add_norm, cu, o, dim3((unsigned)n, (unsigned)x[first].rows), x[first].cols, eps);
}

void cuda_one_shot_gather(cuda_backend *cu, const rank_barrier *m, bool waits, int first, int n, tensor *y,
                          const tensor *part)
{
    operands o = operands_of(m, waits, first, part);
    int cols = 0;
    for (int r = 0; r < m->n_ranks; r++)
        cols += part[r].cols;
    CHECK(y->cols == cols && y->rows == part[0].rows);
    o.y[first] = y->data;
    launch(context_of(cu), "all_gather", gather_parts, dim3((unsigned)n, (unsigned)y->rows), MAX_THREADS, 0, o,
           y->cols);
}

void cuda_put_columns(cuda_backend *cu, tensor *y, const tensor *part, int from)
{
    launch(context_of(cu), "all_gather", put_columns, y->rows, MAX_THREADS, 0, (float *)y->data,
           (const float *)part->data, y->cols, part->cols, from);
}
