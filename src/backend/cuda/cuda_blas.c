/* cuda_blas.c - dense products by cuBLASLt, for many rows
 *
 * The library is large and not installed everywhere, so it is loaded when a GPU is opened and not with the program.
 * Its heuristic is asked for an algorithm once per shape, and the answer (a plan) is kept. Its matrices are
 * column-major: y^T [n, m] = (W^T)^T x^T. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"

#define WORKSPACE ((size_t)32 << 20) /* no measurement is kept */

/* The algorithm for products of this size; m is rounded up by rounded_rows(). */
typedef struct {
    int m, n, k;
    dtype y_type;
    bool known; /* false: cuBLASLt has none */
    cublasLtMatmulAlgo_t algo;
} plan;

struct blas {
    void *library;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtMatmul) *matmul;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *get_heuristic;
    __typeof__(cublasLtMatmulDescInit_internal) *init_op;
    __typeof__(cublasLtMatmulDescSetAttribute) *set_op;
    __typeof__(cublasLtMatrixLayoutInit_internal) *init_layout;
    __typeof__(cublasLtMatmulPreferenceInit_internal) *init_wish;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *set_wish;
    cublasLtHandle_t handle;
    void *workspace;
    plan *plans; /* [n_plans] */
    int n_plans;
    size_t plans_cap;
};

typedef struct {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
} call;

static void *open_library(void)
{
    static const char *const places[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static int find_functions(struct blas *b, err *e)
{
    const struct {
        void **to;
        const char *name;
    } functions[] = {
        {(void **)&b->create, "cublasLtCreate"},
        {(void **)&b->destroy, "cublasLtDestroy"},
        {(void **)&b->matmul, "cublasLtMatmul"},
        {(void **)&b->get_heuristic, "cublasLtMatmulAlgoGetHeuristic"},
        {(void **)&b->init_op, "cublasLtMatmulDescInit_internal"},
        {(void **)&b->set_op, "cublasLtMatmulDescSetAttribute"},
        {(void **)&b->init_layout, "cublasLtMatrixLayoutInit_internal"},
        {(void **)&b->init_wish, "cublasLtMatmulPreferenceInit_internal"},
        {(void **)&b->set_wish, "cublasLtMatmulPreferenceSetAttribute"},
    };
    if (!(b->library = open_library()))
        return err_set(
            e, "cuBLASLt 13 (libcublasLt.so.13) was not found; install CUDA 13's libraries or set LD_LIBRARY_PATH");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (!(*functions[i].to = dlsym(b->library, functions[i].name)))
            return err_set(e, "libcublasLt.so.13 has no %s", functions[i].name);
    return 0;
}

int cuda_blas_open(cuda_backend *cu, err *e)
{
    struct blas *b = cu->blas = XNEW(struct blas);
    if (find_functions(b, e))
        return -1;
    if (b->create(&b->handle) != CUBLAS_STATUS_SUCCESS)
        return err_set(e, "GPU %d: cuBLASLt cannot be set up", cu->device);
    b->workspace = cuda_alloc(&cu->base, WORKSPACE, e);
    return b->workspace ? 0 : -1;
}

void cuda_blas_close(cuda_backend *cu)
{
    struct blas *b = cu->blas;
    if (!b)
        return;
    if (b->workspace)
        cuda_release(&cu->base, b->workspace);
    if (b->handle)
        b->destroy(b->handle);
    if (b->library)
        dlclose(b->library);
    free(b->plans);
    free(b);
    cu->blas = NULL;
}

/* Rounds rows up to a number that shares a plan. The plan for more rows than there are may be far from the best: 160
 * rows by that of 192 took 16 to 29 % longer on the products of a layer (docs/lab/decode-grid.md). Of the step for more
 * than 1024 rows no measurement is kept. */
static int rounded_rows(int m)
{
    int by = m <= 1024 ? 32 : 512;
    return (m + by - 1) / by * by;
}

static cudaDataType_t type_of(dtype t)
{
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static void describe(const cuda_backend *cu, const dense_product *p, int m, call *c)
{
    const struct blas *b = cu->blas;
    cublasOperation_t transposed = CUBLAS_OP_T;
    cudaDataType_t act = type_of(cu->base.act);
    uint64_t k = (uint64_t)p->k;
    b->init_op(&c->op, sizeof c->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    b->set_op(&c->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    b->init_layout(&c->w, sizeof c->w, act, k, (uint64_t)p->n, p->k);
    b->init_layout(&c->x, sizeof c->x, act, k, (uint64_t)m, p->k);
    b->init_layout(&c->y, sizeof c->y, type_of(p->y_type), (uint64_t)p->n, (uint64_t)m, p->ldy);
}

/* Returns the alignment of y's rows in bytes, at most 16. */
static uint32_t y_alignment(const dense_product *p)
{
    uintptr_t bits = (uintptr_t)p->y | (uintptr_t)p->ldy * dtype_size(p->y_type) | 16;
    return (uint32_t)(bits & -bits);
}

static plan find_plan(cuda_backend *cu, const dense_product *p, int m)
{
    const struct blas *b = cu->blas;
    plan made = {.m = m, .n = p->n, .k = p->k, .y_type = p->y_type};
    call c;
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found;
    uint32_t alignment = y_alignment(p);
    size_t room = WORKSPACE;
    int n = 0;
    describe(cu, p, m, &c);
    b->init_wish(&wish, sizeof wish);
    b->set_wish(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    b->set_wish(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment);
    b->set_wish(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment);
    cublasStatus_t status = b->get_heuristic(b->handle, &c.op, &c.w, &c.x, &c.y, &c.y, &wish, 1, &found, &n);
    made.known = status == CUBLAS_STATUS_SUCCESS && n == 1;
    if (made.known)
        made.algo = found.algo;
    return made;
}

/* Returns the plan for a product, which is looked up in the heuristic once. */
static const plan *plan_for(cuda_backend *cu, const dense_product *p)
{
    struct blas *b = cu->blas;
    int m = rounded_rows(p->m);
    for (int i = 0; i < b->n_plans; i++) {
        const plan *known = &b->plans[i];
        if (known->m == m && known->n == p->n && known->k == p->k && known->y_type == p->y_type)
            return known;
    }
    b->plans = xgrow(b->plans, &b->plans_cap, (size_t)b->n_plans + 1, sizeof *b->plans);
    b->plans[b->n_plans] = find_plan(cu, p, m);
    return &b->plans[b->n_plans++];
}

static bool run(cuda_backend *cu, const dense_product *p, const plan *how)
{
    const struct blas *b = cu->blas;
    call c;
    float one = 1.0f, beta = p->bias ? 1.0f : 0.0f;
    if (!how->known)
        return false;
    describe(cu, p, p->m, &c);
    return b->matmul(b->handle, &c.op, &one, p->w, &c.w, p->x, &c.x, &beta, p->y, &c.y, p->y, &c.y, &how->algo,
                     b->workspace, WORKSPACE, cu->stream) == CUBLAS_STATUS_SUCCESS;
}

bool cuda_blas_multiply(cuda_backend *cu, const dense_product *p)
{
    cuda_use(cu);
    if (run(cu, p, plan_for(cu, p)))
        return true;
    plan exact = find_plan(cu, p, p->m);
    return run(cu, p, &exact);
}
