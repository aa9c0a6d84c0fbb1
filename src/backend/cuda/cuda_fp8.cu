/* cuda_fp8.cu - FP8 weights packed into slabs for the products, and unpacked to 16-bit matrices for cuBLASLt */
#include "backend/cuda/fp8.cuh"

enum { FP8_THREADS = 256 }; /* of a block; no measurement is kept */

/* Packs rows of bytes into slabs. A thread owns 16 columns of a row. */
template <typename T> static __global__ void pack_slabs(uint8_t *to, const uint8_t *from, int rows, int cols)
{
    int n_boxes = cols / 64;
    size_t item = (size_t)blockIdx.x * FP8_THREADS + threadIdx.x, n = (size_t)rows * cols / 16;
    if (item >= n)
        return;
    int g = item >> 2 & 7, s = item & 3, box = (int)(item / 32 % n_boxes), slab = (int)(item / 32 / n_boxes);
    vec<uint8_t, 16> v = *(const vec<uint8_t, 16> *)(from + (size_t)(slab * SLAB + g) * cols + box * 64 + 16 * s);
    uint8_t *out = to + item / 32 * SLAB_BOX;
    for (int i = 0; i < 16; i++)
        out[byte_in_box<T>(g, 16 * s + i)] = v.at[i];
}

template <typename T> static void run_pack(cuda_backend *cu, void *to, const void *from, int rows, int cols)
{
    size_t n = (size_t)rows * (size_t)cols / 16;
    pack_slabs<T><<<(unsigned)((n + FP8_THREADS - 1) / FP8_THREADS), FP8_THREADS, 0, cu->uploads>>>(
        (uint8_t *)to, (const uint8_t *)from, rows, cols);
    cuda_keep(cu, cudaGetLastError(), "FP8 weights");
}

void cuda_fp8_pack(cuda_backend *cu, void *to, const void *from, int rows, int cols)
{
    BY_ACT(run_pack, cu, to, from, rows, cols);
}

/* Unpacks slabs into rows of 16-bit numbers, scaled. A thread owns 16 columns of a row. */
template <typename T>
static __global__ void unpack_slabs(T *to, const unsigned *from, const float *scale, int n_pieces, int rows, int cols)
{
    wait_for_previous();
    let_next_start();
    int n_boxes = cols / 64;
    size_t item = (size_t)blockIdx.x * FP8_THREADS + threadIdx.x, n = (size_t)rows * cols / 16;
    if (item >= n)
        return;
    int g = item >> 2 & 7, s = item & 3, box = (int)(item / 32 % n_boxes), slab = (int)(item / 32 / n_boxes);
    const unsigned *word = from + (item / 32 * 32 + 4 * g) * 4 + s;
    float by = scale[(slab * n_pieces + (n_pieces > 1 ? box / 2 : 0)) * SLAB + g];
    vec<T, 8> half[2];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        unsigned pair[2];
        widen_fp8<T>(word[4 * t], pair[0], pair[1]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            vec<T, 2> two = *(vec<T, 2> *)&pair[i];
            half[i].at[2 * t] = from_float<T>(to_float(two.at[0]) * by);
            half[i].at[2 * t + 1] = from_float<T>(to_float(two.at[1]) * by);
        }
    }
    vec<T, 8> *out = (vec<T, 8> *)(to + (size_t)(slab * SLAB + g) * cols + box * 64 + 16 * s);
    out[0] = half[0];
    out[1] = half[1];
}

template <typename T>
static void run_unpack(cuda_backend *cu, void *to, const void *from, const float *scale, int n_pieces, int rows,
                       int cols)
{
    size_t n = (size_t)rows * (size_t)cols / 16;
    launch(context_of(cu), "FP8 weights", unpack_slabs<T>, (unsigned)((n + FP8_THREADS - 1) / FP8_THREADS), FP8_THREADS,
           0, (T *)to, (const unsigned *)from, scale, n_pieces, rows, cols);
}

void cuda_fp8_unpack(cuda_backend *cu, void *to, const dense_product *p, int row, int n_rows)
{
    const char *from = (const char *)p->w + (size_t)row * (size_t)p->k;
    const float *scale = p->scale + (size_t)row * (size_t)p->n_scales;
    BY_ACT(run_unpack, cu, to, from, scale, p->n_scales, n_rows, p->k);
}
