/* kernels.c - see kernels.h. Compiled once per instruction set; CPU_KERNELS names the table. */
#include "backend/cpu/kernels.h"

#include <math.h>
#include <stdbool.h>

#include "backend/cpu/simd.h"

#include "backend/cpu/dot.inc.h"

/* Registers for sums in weighted_sum: SUM_REGS / rows vectors of each row at a time. */
enum { SUM_REGS = VLEN == 16 ? 16 : 8 };

/* rows x nv vectors of y, kept in registers over the whole rank. n: the columns there are, if less than nv vectors. */
INLINE void sum_tile(const int rows, const int nv, const dtype t, const sum_job *s, int row, int col, int n,
                     uintptr_t ahead)
{
    const char *b = row_at(s->b, 0, 0, t) + (size_t)col * dtype_size(t);
    const size_t b_bytes = s->b_stride * dtype_size(t);
    const float *v = s->v + (size_t)row * s->v_stride;
    float *y = s->y + (size_t)row * s->y_stride + col;
    const int whole = n >= nv * VLEN;
    vf acc[4][SUM_REGS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int c = 0; c < nv; c++) {
            const float *p = y + (size_t)i * s->y_stride + c * VLEN;
            acc[i][c] = whole ? v_load(p) : v_load_n(p, n);
        }
    for (int r = 0; r < s->rank; r++, b += b_bytes) {
#pragma GCC unroll 16
        for (int c = 0; c < nv; c++) {
            const char *p = b + (size_t)(c * VLEN) * dtype_size(t);
            vf bv = whole ? v_load_as(t, p) : v_load_as_n(t, p, n);
            __builtin_prefetch((const void *)((uintptr_t)p + ahead), 0, 2);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i][c] = v_fma(v_set1(v[(size_t)i * s->v_stride + (size_t)r]), bv, acc[i][c]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int c = 0; c < nv; c++) {
            float *p = y + (size_t)i * s->y_stride + c * VLEN;
            if (whole)
                v_store(p, acc[i][c]);
            else
                v_store_n(p, acc[i][c], n);
        }
}

/* Does whole blocks of nv vectors from col on; returns the column after them. */
INLINE int sum_blocks(const int rows, const int nv, const dtype t, const sum_job *s, int row, int col)
{
    const int width = nv * VLEN;
    for (; col + width <= s->n; col += width) {
        const char *here = (const char *)s->b + (size_t)col * dtype_size(t), *then = s->next ? s->next : here;
        if (col + width < s->n)
            then = here + (size_t)width * dtype_size(t);
        sum_tile(rows, nv, t, s, row, col, width, (uintptr_t)then - (uintptr_t)here);
    }
    return col;
}

/* All columns of `rows` rows, in as wide blocks as there are registers for. */
INLINE void sum_rows(const int rows, const dtype t, const sum_job *s, int row)
{
    int col = sum_blocks(rows, SUM_REGS / rows, t, s, row, 0);
    if (SUM_REGS / rows > 4)
        col = sum_blocks(rows, 4, t, s, row, col);
    col = sum_blocks(rows, 1, t, s, row, col);
    if (col < s->n)
        sum_tile(rows, 1, t, s, row, col, s->n - col, 0);
}

INLINE void sum_typed(const dtype t, const sum_job *s)
{
    int row = 0;
    for (; row + 4 <= s->m; row += 4)
        sum_rows(4, t, s, row);
    for (; row + 2 <= s->m; row += 2)
        sum_rows(2, t, s, row);
    if (row < s->m)
        sum_rows(1, t, s, row);
}

static void weighted_sum(const sum_job *s)
{
    switch (s->b_type) {
    case DTYPE_F32: sum_typed(DTYPE_F32, s); break;
    case DTYPE_F16: sum_typed(DTYPE_F16, s); break;
    case DTYPE_BF16: sum_typed(DTYPE_BF16, s); break;
    case DTYPE_F8: break; /* neither adapters nor values are F8 here */
    }
}

/* Runs `body` for each vector: i is its first element, `left` how many of its elements exist. */
#define FOR_VECTORS(n, body)                 \
    do {                                     \
        int i = 0;                           \
        for (; i + VLEN <= (n); i += VLEN) { \
            const int left = VLEN;           \
            body                             \
        }                                    \
        if (i < (n)) {                       \
            const int left = (n) - i;        \
            body                             \
        }                                    \
    } while (0)

INLINE vf load_up_to(const float *p, int left)
{
    return left == VLEN ? v_load(p) : v_load_n(p, left);
}

INLINE vf load_as_up_to(dtype t, const void *base, int i, int left)
{
    const char *p = row_at(base, (size_t)i, 1, t);
    return left == VLEN ? v_load_as(t, p) : v_load_as_n(t, p, left);
}

INLINE void store_up_to(float *p, vf v, int left)
{
    if (left == VLEN)
        v_store(p, v);
    else
        v_store_n(p, v, left);
}

static void to_float(float *y, const void *x, dtype type, int n)
{
    FOR_VECTORS(n, store_up_to(y + i, load_as_up_to(type, x, i, left), left););
}

static void add(float *y, const float *x, int n)
{
    FOR_VECTORS(n, store_up_to(y + i, v_add(load_up_to(y + i, left), load_up_to(x + i, left)), left););
}

static void rms_norm(float *y, const float *x, const void *w, dtype w_type, int n, float eps)
{
    vf squares = v_zero();
    FOR_VECTORS(n, vf v = load_up_to(x + i, left); squares = v_fma(v, v, squares););
    vf by = v_set1(1.0f / sqrtf(v_sum(squares) / (float)n + eps));
    FOR_VECTORS(n, vf v = v_mul(load_up_to(x + i, left), by);
                store_up_to(y + i, v_mul(v, load_as_up_to(w_type, w, i, left)), left););
}

static void silu_mul(float *y, const float *gate, const float *up, int n)
{
    const vf one = v_set1(1.0f);
    FOR_VECTORS(n, vf g = load_up_to(gate + i, left); vf silu = v_div(g, v_add(one, v_exp(v_sub(v_zero(), g))));
                store_up_to(y + i, v_mul(silu, load_up_to(up + i, left)), left););
}

static void rotate(float *x, const float *cosine, const float *sine, int half)
{
    FOR_VECTORS(half, vf a = load_up_to(x + i, left); vf b = load_up_to(x + half + i, left);
                vf c = load_up_to(cosine + i, left); vf s = load_up_to(sine + i, left);
                store_up_to(x + i, v_sub(v_mul(a, c), v_mul(b, s)), left);
                store_up_to(x + half + i, v_add(v_mul(b, c), v_mul(a, s)), left););
}

static void scale(float *x, float by, int n)
{
    const vf f = v_set1(by);
    FOR_VECTORS(n, store_up_to(x + i, v_mul(load_up_to(x + i, left), f), left););
}

/* x * 0 is 0 for finite x, else NaN, so the sum of these tells whether all are finite. */
static float max(const float *x, int n, int finite)
{
    vf largest = v_set1(-INFINITY), zeros = v_zero();
    int i = 0;
    for (; i + VLEN <= n; i += VLEN) {
        vf v = v_load(x + i);
        largest = v_max(largest, v);
        zeros = v_fma(v, v_zero(), zeros);
    }
    float best = v_largest(largest), zero = v_sum(zeros);
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        zero += x[i] * 0.0f;
    }
    return finite ? best + zero : best;
}

static float exp_sum(float *y, const float *x, float highest, float factor, int n)
{
    const vf m = v_set1(highest), by = v_set1(factor);
    vf sum = v_zero();
    int i = 0;
    for (; i + VLEN <= n; i += VLEN) {
        vf v = v_exp(v_mul(v_sub(v_load(x + i), m), by));
        v_store(y + i, v);
        sum = v_add(sum, v);
    }
    if (i < n) {
        float last[VLEN] = {0};
        v_store_n(last, v_exp(v_mul(v_sub(v_load_n(x + i, n - i), m), by)), n - i);
        memcpy(y + i, last, (size_t)(n - i) * sizeof *y);
        sum = v_add(sum, v_load(last));
    }
    return v_sum(sum);
}

extern const cpu_kernels CPU_KERNELS;
const cpu_kernels CPU_KERNELS = {
    .name = ISA_NAME,
    .dot = dot,
    .gemm = gemm,
    .pack = pack,
    .pack_tiles = gemm_tile_count,
    .pack_floats = pack_floats,
    .gemm_scratch_floats = gemm_scratch_floats,
    .dot_rows = DOT_ROWS,
    .weighted_sum = weighted_sum,
    .to_float = to_float,
    .add = add,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .rotate = rotate,
    .scale = scale,
    .max = max,
    .exp_sum = exp_sum,
};
