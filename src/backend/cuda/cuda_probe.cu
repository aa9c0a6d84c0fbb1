/* cuda_probe.cu - measures the read bandwidth of this GPU's memory */
#include "backend/cuda/kernel.cuh"

/* Sums n vectors of 16 bytes, grid-strided. The sum is written only if it has one arbitrary value, so that the compiler
 * cannot leave out the reads. */
static __global__ void sum_all(const uint4 *x, size_t n, unsigned *out)
{
    unsigned sum = 0;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_previous();
    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 a = x[i], b = x[i + stride], c = x[i + 2 * stride], d = x[i + 3 * stride];
        sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
    }
    for (; i < n; i += stride)
        sum += x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
    if (sum == 0x9e3779b9u)
        out[threadIdx.x] = sum;
}

/* Returns the best of several sums over 4 GiB, or half of what is free if that is less; 0 when there is no memory. */
double cuda_read_bandwidth(backend *be)
{
    cuda_backend *cu = cuda_of(be);
    size_t bytes = (size_t)4 << 30, free_bytes = be->ops->available(be) / 2;
    bytes = bytes < free_bytes ? bytes : free_bytes / 16 * 16;
    err e;
    void *x = cuda_alloc(be, bytes + 4096, &e);
    if (!x)
        return 0;
    cudaEvent_t start, end;
    float best = 1e9f;
    cuda_keep(cu, cudaMemsetAsync(x, 0x5a, bytes, cu->stream), "bandwidth");
    cuda_keep(cu, cudaEventCreate(&start), "bandwidth");
    cuda_keep(cu, cudaEventCreate(&end), "bandwidth");
    for (int i = 0; i < 6; i++) {
        float ms = 1e9f;
        cudaEventRecord(start, cu->stream);
        launch(context_of(cu), "bandwidth", sum_all, dim3(8 * cu->n_sms), dim3(512), 0, (const uint4 *)x, bytes / 16,
               (unsigned *)((char *)x + bytes));
        cudaEventRecord(end, cu->stream);
        cuda_keep(cu, cudaEventSynchronize(end), "bandwidth");
        cuda_keep(cu, cudaEventElapsedTime(&ms, start, end), "bandwidth");
        best = ms < best ? ms : best;
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    cuda_release(be, x);
    return (double)bytes / best * 1e3;
}
