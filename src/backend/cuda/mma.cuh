/* mma.cuh - tensor core fragments and asynchronous copies, one instruction per function
 *
 * Lane 4 * g + t of a warp (g < 8, t < 4) holds of a 16 x 8 product D = A B:
 *   A [16, 16]:  (g, 2t..+1)  (g+8, 2t..+1)  (g, 2t+8..+9)  (g+8, 2t+8..+9)      4 registers, 2 numbers each
 *   B [16, 8]:   (2t..+1, g)  (2t+8..+9, g)                                      2 registers
 *   D [16, 8]:   (g, 2t..+1)  (g+8, 2t..+1)                                      4 floats */
#ifndef PUNICA_BACKEND_CUDA_MMA_CUH
#define PUNICA_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/kernel.cuh"

/* d += A B; accumulated in float32. */
template <typename T> __device__ __forceinline__ void mma(float d[4], const unsigned a[4], const unsigned b[2]);

template <> __device__ __forceinline__ void mma<f16>(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <> __device__ __forceinline__ void mma<bf16>(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Loads four 8 x 8 matrices of 2-byte numbers; lane 8 * i + j passes the address of row j of matrix i. Lane 4 * g + t
 * receives numbers (g, 2t..+1) of matrix i in r[i]; with load_matrices_t, of its transpose. */
static __device__ __forceinline__ void load_matrices(unsigned r[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

static __device__ __forceinline__ void load_matrices_t(unsigned r[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

static __device__ __forceinline__ void load_matrices(unsigned r[4], const void *row)
{
    load_matrices(r, shared_address(row));
}

static __device__ __forceinline__ void load_matrices_t(unsigned r[4], const void *row)
{
    load_matrices_t(r, shared_address(row));
}

/* Transposes an 8 x 8 matrix of which each lane holds two numbers, as from load_matrices(). */
static __device__ __forceinline__ unsigned transpose_matrix(unsigned x)
{
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* Returns two floats as two numbers of T in one register, lo in the lower half. */
template <typename T> __device__ __forceinline__ unsigned pack(float lo, float hi)
{
    vec<T, 2> v = {{from_float<T>(lo), from_float<T>(hi)}};
    return *(const unsigned *)&v;
}

/* Start a copy (cp.async) of 16 bytes from global to shared memory; not `valid`: store 16 zero bytes and read
 * nothing. */
static __device__ __forceinline__ void copy_16(unsigned shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(shared), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_16(void *shared, const void *global, bool valid)
{
    copy_16(shared_address(shared), global, valid);
}

/* Commit a group of copies; wait until all but the N latest groups of this thread have completed. */
static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* Returns the offset of chunk `column` (16 bytes) of a row of a matrix of 2-byte numbers in shared memory. Rows have D
 * numbers; the matrix is aligned to a row's length. The chunks of a row are permuted by its number (a swizzle), so that
 * one column of eight rows is in different banks. The offset of column c ^ x is that of c, exclusive-or 16 * x. */
template <int D> __device__ __forceinline__ unsigned chunk_offset(int row, int column)
{
    return (unsigned)(row * D * 2 + ((column ^ (row & 7)) << 4));
}

/* The offsets that lanes pass to load_matrices() for rows 0 to 15 and chunk columns 0 and 1; exclusive-or 32 * k they
 * are those of columns 2 k and 2 k + 1. The four 8 x 8 matrices, as (first row, column), come by rows first: (0, 0),
 * (8, 0), (0, 1), (8, 1), as the A operand has them; or by columns first: (0, 0), (0, 1), (8, 0), (8, 1), as two B
 * operands or a transposed A. */
template <int D> __device__ __forceinline__ unsigned by_rows()
{
    return chunk_offset<D>(threadIdx.x % 16, threadIdx.x / 16 % 2);
}

template <int D> __device__ __forceinline__ unsigned by_columns()
{
    return chunk_offset<D>(threadIdx.x / 16 % 2 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2);
}

#endif
