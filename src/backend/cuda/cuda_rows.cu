/* cuda_rows.cu - ops that go row by row: embedding, norms, SiLU-multiply, gather
 *
 * T is the act type; the residual stream and norm weights are floats. A thread owns N numbers of a row at
 * a time: 8 where rows are whole 16-byte vectors, else 1. No measurement of the block sizes is kept. */
#include "backend/cuda/kernel.cuh"

/* Calls f<T, N>(cu, ...); wide: rows are whole 16-byte vectors. */
#define BY_ACT_AND_WIDTH(f, wide, cu, ...)                                                            \
    ((cu)->base.act == DTYPE_F16 ? ((wide) ? f<f16, 8>(cu, __VA_ARGS__) : f<f16, 1>(cu, __VA_ARGS__)) \
                                 : ((wide) ? f<bf16, 8>(cu, __VA_ARGS__) : f<bf16, 1>(cu, __VA_ARGS__)))

/* y[row] = table[token - first]; zeros for a token outside this part of the table. A block owns a row. */
template <typename T, int N>
static __global__ void embed_rows(float *y, const T *table, int first, int vocab, int cols, step s)
{
    wait_for_previous();
    let_next_start();
    int row = blockIdx.x, token = s.token[row];
    if (token < 0)
        token = s.drawn[-1 - token];
    token -= first;
    bool known = token >= 0 && token < vocab;
    for (int i = threadIdx.x * N; i < cols; i += blockDim.x * N) {
        float v[N] = {};
        if (known)
            load_n(v, table + (size_t)token * cols + i);
        store_n(y + (size_t)row * cols + i, v);
    }
}

template <typename T, int N> static void run_embed(cuda_backend *cu, tensor *y, const tensor *table, int first)
{
    launch(context_of(cu), "embed", embed_rows<T, N>, y->rows, threads_for(y->cols, N, 512), 0, y->data, table->data,
           first, table->rows, y->cols, cu->step);
}

void cuda_embed(backend *be, tensor *y, const tensor *table, int first, const batch *b)
{
    (void)b;
    CHECK(y->cols == table->cols && y->type == DTYPE_F32 && table->type == be->act);
    BY_ACT_AND_WIDTH(run_embed, y->cols % 8 == 0, cuda_of(be), y, table, first);
}

/* Loads N numbers of the residual stream, adds the delta where there is one, and stores them again. Returns the sum of
 * their squares. */
template <typename T, int N> static __device__ float square_sum(float (&v)[N], float *x, const T *delta)
{
    float squares = 0.0f;
    load_n(v, x);
    if (delta) {
        float d[N];
        load_n(d, delta);
        for (int j = 0; j < N; j++)
            v[j] += d[j];
        store_n(x, v);
    }
    for (int j = 0; j < N; j++)
        squares += v[j] * v[j];
    return squares;
}

template <typename T, int N> static __device__ void store_normed(T *y, const float (&v)[N], float by, const float *w)
{
    float out[N];
    load_n(out, w);
    for (int j = 0; j < N; j++)
        out[j] *= v[j] * by;
    store_n(y, out);
}

/* x += delta where there is one, then y = x / sqrt(mean(x^2) + eps) * w. A block owns a row; a thread's first N numbers
 * stay in registers, those of a longer row are read again. Shared: 128 bytes. */
template <typename T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    norm_rows(T *y, float *x, const T *delta, const float *w, int cols, float eps)
{
    __shared__ float shared[32];
    int first = threadIdx.x * N, stride = blockDim.x * N;
    size_t row = (size_t)blockIdx.x * cols;
    wait_for_previous();
    let_next_start();
    float v[N] = {}, squares = 0.0f;
    if (first < cols)
        squares = square_sum(v, x + row + first, delta ? delta + row + first : NULL);
    for (int i = first + stride; i < cols; i += stride) {
        float rest[N];
        squares += square_sum(rest, x + row + i, delta ? delta + row + i : NULL);
    }
    float by = 1.0f / sqrtf(block_sum(squares, shared) / cols + eps);
    if (first < cols)
        store_normed(y + row + first, v, by, w + first);
    for (int i = first + stride; i < cols; i += stride) {
        load_n(v, x + row + i);
        store_normed(y + row + i, v, by, w + i);
    }
}

template <typename T, int N>
static void run_norm(cuda_backend *cu, const char *name, tensor *y, const tensor *x, const void *delta, const tensor *w,
                     float eps)
{
    launch(context_of(cu), name, norm_rows<T, N>, x->rows, threads_for(x->cols, N, MAX_THREADS), 0, y->data, x->data,
           delta, w->data, x->cols, eps);
}

void cuda_rms_norm(backend *be, tensor *y, const tensor *x, const tensor *w, float eps)
{
    CHECK(y->cols == x->cols && w->cols == x->cols && y->rows == x->rows);
    CHECK(x->type == DTYPE_F32 && w->type == DTYPE_F32 && y->type == be->act);
    BY_ACT_AND_WIDTH(run_norm, x->cols % 8 == 0, cuda_of(be), "rms_norm", y, x, NULL, w, eps);
}

void cuda_add_rms_norm(backend *be, tensor *y, tensor *x, const tensor *delta, const tensor *w, float eps)
{
    CHECK(y->cols == x->cols && delta->cols == x->cols && w->cols == x->cols);
    CHECK(y->rows == x->rows && delta->rows == x->rows);
    CHECK(x->type == DTYPE_F32 && w->type == DTYPE_F32 && y->type == be->act && delta->type == be->act);
    BY_ACT_AND_WIDTH(run_norm, x->cols % 8 == 0, cuda_of(be), "add_rms_norm", y, x, delta->data, w, eps);
}

/* y[row, i] = silu(x[row, i]) * x[row, cols + i]. A block owns a piece of a row, a thread N numbers. */
template <typename T, int N> static __global__ void silu_mul_rows(T *y, const T *x, int cols)
{
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    size_t row = blockIdx.y;
    wait_for_previous();
    let_next_start();
    if (i >= cols)
        return;
    float gate[N], up[N];
    load_n(gate, x + 2 * row * cols + i);
    load_n(up, x + (2 * row + 1) * cols + i);
    for (int j = 0; j < N; j++)
        up[j] *= silu(gate[j]);
    store_n(y + row * cols + i, up);
}

template <typename T, int N> static void run_silu_mul(cuda_backend *cu, tensor *y, const tensor *x)
{
    unsigned threads = threads_for(y->cols, N, 256);
    int piece = (int)threads * N;
    /* a grid has at most 65535 blocks along y */
    for (int row = 0; row < y->rows; row += 65535) {
        unsigned rows = (unsigned)(y->rows - row < 65535 ? y->rows - row : 65535);
        dim3 grid((unsigned)((y->cols + piece - 1) / piece), rows);
        launch(context_of(cu), "silu_mul", silu_mul_rows<T, N>, grid, threads, 0, (T *)y->data + (size_t)row * y->cols,
               (const T *)x->data + (size_t)row * x->cols, y->cols);
    }
}

void cuda_silu_mul(backend *be, tensor *y, const tensor *x)
{
    CHECK(x->cols == 2 * y->cols && x->rows == y->rows && x->type == be->act && y->type == be->act);
    BY_ACT_AND_WIDTH(run_silu_mul, y->cols % 8 == 0, cuda_of(be), y, x);
}

/* y[i] = x[out_row[i]]; padding rows are copies of row 0. A block owns a row of n words. */
template <typename W> static __global__ void gather_rows(W *y, const W *x, int n, step s)
{
    size_t to = blockIdx.x, from = blockIdx.x < s.n[COUNT_OUT] ? s.out_row[blockIdx.x] : 0;
    wait_for_previous();
    let_next_start();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[to * n + i] = x[from * n + i];
}

void cuda_gather(backend *be, tensor *y, const tensor *x, const batch *b)
{
    (void)b;
    CHECK(y->cols == x->cols && y->type == x->type);
    cuda_backend *cu = cuda_of(be);
    int bytes = (int)dtype_size(y->type) * y->cols;
    if (bytes % 16 == 0)
        launch(context_of(cu), "gather", gather_rows<uint4>, y->rows, threads_for(bytes, 16, 512), 0, y->data, x->data,
               bytes / 16, cu->step);
    else
        launch(context_of(cu), "gather", gather_rows<uint16_t>, y->rows, threads_for(bytes, 2, 512), 0, y->data,
               x->data, bytes / 2, cu->step);
}
