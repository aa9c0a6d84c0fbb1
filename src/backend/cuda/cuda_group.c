/* cuda_group.c - the communicators of ranks on GPUs
 *
 * Ranks on one GPU, and ranks on several GPUs that can access each other's memory, add up by the one-shot kernels of
 * cuda_comm.cu, which can be recorded. Between several GPUs, more than ONE_SHOT_ROWS rows go through NCCL, and all rows
 * where the GPUs cannot access each other; such invocations are not recorded. NCCL is loaded when several GPUs are
 * joined, so that neither building nor a single GPU needs it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/comm.h"
#include "base/mem.h"

int cuda_rank_barrier_init(rank_barrier *m, backend *const *device, int n_devices, int n_ranks, err *e)
{
    *m = (rank_barrier){.n_ranks = n_ranks};
    for (int r = 0; r < n_ranks; r++) {
        backend *be = device[r * n_devices / n_ranks];
        m->flag[r] = cuda_alloc(be, (size_t)(n_ranks + 1) * ONE_SHOT_ROWS * sizeof(int), e);
        if (!m->flag[r])
            return -1;
        m->count[r] = m->flag[r] + n_ranks * ONE_SHOT_ROWS;
    }
    return 0;
}

void cuda_rank_barrier_deinit(rank_barrier *m, backend *const *device, int n_devices)
{
    for (int r = 0; r < m->n_ranks; r++)
        if (m->flag[r])
            cuda_release(device[r * n_devices / m->n_ranks], m->flag[r]);
}

/* Ranks on one GPU: one launch for all of them.
 *
 * This exists to test a split and to measure what it costs (docs/lab/split.md). The order of the stream would be enough
 * to make all parts complete, but ranks pass the barrier all the same, as they would on several GPUs: nothing else
 * tests it. Above ONE_SHOT_ROWS, for which there are no flags, they do without. */

typedef struct {
    comm base;
    backend *gpu;
    rank_barrier barrier;
} one_gpu;

static void one_all_reduce(comm *base, tensor *y, const tensor *part)
{
    one_gpu *c = (one_gpu *)base;
    cuda_one_shot_reduce(cuda_of(c->gpu), &c->barrier, y->rows <= ONE_SHOT_ROWS, 0, c->barrier.n_ranks, y, part);
}

static void one_add_rms_norm(comm *base, tensor *y, tensor *x, const tensor *part, const tensor *const *w, float eps)
{
    one_gpu *c = (one_gpu *)base;
    cuda_one_shot_add_norm(cuda_of(c->gpu), &c->barrier, x->rows <= ONE_SHOT_ROWS, 0, c->barrier.n_ranks, y, x, part, w,
                           eps);
}

static void one_all_gather(comm *base, tensor *y, const tensor *part)
{
    one_gpu *c = (one_gpu *)base;
    cuda_one_shot_gather(cuda_of(c->gpu), &c->barrier, y->rows <= ONE_SHOT_ROWS, 0, c->barrier.n_ranks, y, part);
}

static void one_free(comm *base)
{
    one_gpu *c = (one_gpu *)base;
    cuda_rank_barrier_deinit(&c->barrier, &c->gpu, 1);
    free(c);
}

static const comm_ops one_ops = {
    .all_reduce = one_all_reduce,
    .add_rms_norm = one_add_rms_norm,
    .all_gather = one_all_gather,
    .free = one_free,
};

comm *comm_cuda_new(backend *gpu, int n_ranks, err *e)
{
    one_gpu *c = XNEW(one_gpu);
    *c = (one_gpu){.base.ops = &one_ops, .gpu = gpu};
    if (cuda_rank_barrier_init(&c->barrier, &gpu, 1, n_ranks, e) == 0)
        return &c->base;
    one_free(&c->base);
    return NULL;
}

/* Ranks on several GPUs. The part of NCCL's interface that is used, unchanged since nccl.h 2.0: */

typedef struct ncclComm *ncclComm_t;
enum { NCCL_SUCCESS = 0, NCCL_SUM = 0, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9 };

typedef struct {
    void *library;
    int (*init_all)(ncclComm_t *comm, int n, const int *devices);
    int (*destroy)(ncclComm_t);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, ncclComm_t, cudaStream_t);
    int (*broadcast)(const void *from, void *to, size_t n, int type, int root, ncclComm_t, cudaStream_t);
    const char *(*error_string)(int);
} nccl;

typedef struct {
    comm base;
    int n; /* ranks, and GPUs */
    backend *gpu[MAX_RANKS];
    bool are_peers;       /* each can access all others' memory */
    rank_barrier barrier; /* where are_peers */
    nccl lib;
    ncclComm_t rank[MAX_RANKS];
    void *gathered[MAX_RANKS]; /* on each GPU: room for the parts of an all_gather, one behind the other */
    size_t gathered_bytes;
} many_gpus;

static int open_nccl(nccl *l, err *e)
{
    l->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!l->library)
        return err_set(e, "splitting a model over several GPUs needs NCCL (libnccl.so.2), which was not found; install "
                          "it or set LD_LIBRARY_PATH");
    struct {
        void **to;
        const char *name;
    } functions[] = {
        {(void **)&l->init_all, "ncclCommInitAll"},        {(void **)&l->destroy, "ncclCommDestroy"},
        {(void **)&l->group_start, "ncclGroupStart"},      {(void **)&l->group_end, "ncclGroupEnd"},
        {(void **)&l->all_reduce, "ncclAllReduce"},        {(void **)&l->broadcast, "ncclBroadcast"},
        {(void **)&l->error_string, "ncclGetErrorString"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (!(*functions[i].to = dlsym(l->library, functions[i].name)))
            return err_set(e, "libnccl.so.2 has no %s", functions[i].name);
    return 0;
}

/* Keeps a failure of NCCL as one of the first device. */
static void keep_nccl(many_gpus *c, int status, const char *what)
{
    err e;
    if (status == NCCL_SUCCESS)
        return;
    err_set(&e, "NCCL: %s: %s", what, c->lib.error_string(status));
    device_failure_set(&cuda_of(c->gpu[0])->failure, &e);
}

static int nccl_type(dtype t)
{
    return t == DTYPE_F32 ? NCCL_FLOAT32 : t == DTYPE_F16 ? NCCL_FLOAT16 : NCCL_BFLOAT16;
}

static bool fits_one_shot(const many_gpus *c, int rows)
{
    return c->are_peers && rows <= ONE_SHOT_ROWS;
}

/* y = the sum of the parts, on every GPU; y may be `part` itself. */
static void sum_by_nccl(many_gpus *c, const tensor *y, const tensor *part)
{
    size_t n = (size_t)part->rows * (size_t)part->cols;
    keep_nccl(c, c->lib.group_start(), "all-reduce");
    for (int r = 0; r < c->n; r++)
        keep_nccl(c,
                  c->lib.all_reduce(part[r].data, y[r].data, n, nccl_type(part->type), NCCL_SUM, c->rank[r],
                                    cuda_of(c->gpu[r])->stream),
                  "all-reduce");
    keep_nccl(c, c->lib.group_end(), "all-reduce");
}

static void many_all_reduce(comm *base, tensor *y, const tensor *part)
{
    many_gpus *c = (many_gpus *)base;
    if (!fits_one_shot(c, y->rows)) {
        sum_by_nccl(c, y, part);
        return;
    }
    for (int r = 0; r < c->n; r++)
        cuda_one_shot_reduce(cuda_of(c->gpu[r]), &c->barrier, true, r, 1, y, part);
}

static void many_add_rms_norm(comm *base, tensor *y, tensor *x, const tensor *part, const tensor *const *w, float eps)
{
    many_gpus *c = (many_gpus *)base;
    bool peers = fits_one_shot(c, x->rows);
    if (!peers)
        sum_by_nccl(c, part, part);
    for (int r = 0; r < c->n; r++)
        if (peers)
            cuda_one_shot_add_norm(cuda_of(c->gpu[r]), &c->barrier, true, r, 1, y, x, part, w, eps);
        else
            cuda_add_rms_norm(c->gpu[r], &y[r], &x[r], &part[r], w[r], eps);
}

/* Makes room for `bytes` of parts on every GPU; keeps what it has when that is enough. Returns false, with the failure
 * kept, when there is no memory. */
static bool make_room(many_gpus *c, size_t bytes)
{
    err e;
    if (bytes <= c->gathered_bytes)
        return true;
    for (int r = 0; r < c->n; r++) {
        if (c->gathered[r])
            cuda_release(c->gpu[r], c->gathered[r]);
        if (!(c->gathered[r] = cuda_alloc(c->gpu[r], bytes, &e))) {
            cuda_keep(cuda_of(c->gpu[r]), cudaErrorMemoryAllocation, "all-gather");
            c->gathered_bytes = 0;
            return false;
        }
    }
    c->gathered_bytes = bytes;
    return true;
}

static void gather_by_nccl(many_gpus *c, tensor *y, const tensor *part)
{
    if (!make_room(c, tensor_bytes(y)))
        return;
    keep_nccl(c, c->lib.group_start(), "all-gather");
    size_t at = 0;
    for (int root = 0; root < c->n; at += tensor_bytes(&part[root++]))
        for (int r = 0; r < c->n; r++)
            keep_nccl(c,
                      c->lib.broadcast(part[root].data, (char *)c->gathered[r] + at,
                                       (size_t)part[root].rows * (size_t)part[root].cols, NCCL_FLOAT32, root,
                                       c->rank[r], cuda_of(c->gpu[r])->stream),
                      "all-gather");
    keep_nccl(c, c->lib.group_end(), "all-gather");
    for (int r = 0; r < c->n; r++) {
        tensor from = part[0];
        int col = 0;
        from.data = c->gathered[r];
        for (int root = 0; root < c->n;
             from.data = (char *)from.data + tensor_bytes(&part[root]), col += part[root++].cols) {
            from.cols = part[root].cols;
            cuda_put_columns(cuda_of(c->gpu[r]), &y[r], &from, col);
        }
    }
}

static void many_all_gather(comm *base, tensor *y, const tensor *part)
{
    many_gpus *c = (many_gpus *)base;
    if (!fits_one_shot(c, y->rows)) {
        gather_by_nccl(c, y, part);
        return;
    }
    for (int r = 0; r < c->n; r++)
        cuda_one_shot_gather(cuda_of(c->gpu[r]), &c->barrier, true, r, 1, &y[r], part);
}

static void many_free(comm *base)
{
    many_gpus *c = (many_gpus *)base;
    for (int r = 0; r < c->n; r++) {
        if (c->rank[r])
            c->lib.destroy(c->rank[r]);
        if (c->gathered[r])
            cuda_release(c->gpu[r], c->gathered[r]);
    }
    cuda_rank_barrier_deinit(&c->barrier, c->gpu, c->n);
    if (c->lib.library)
        dlclose(c->lib.library);
    free(c);
}

static const comm_ops many_ops = {
    .all_reduce = many_all_reduce,
    .add_rms_norm = many_add_rms_norm,
    .all_gather = many_all_gather,
    .free = many_free,
};

/* Refuses GPUs that differ: ranks work in lockstep, so the slowest or smallest would decide for all. */
static int check_equal(const many_gpus *c, err *e)
{
    struct cudaDeviceProp first, other;
    cudaGetDeviceProperties(&first, cuda_of(c->gpu[0])->device);
    for (int r = 1; r < c->n; r++) {
        cudaGetDeviceProperties(&other, cuda_of(c->gpu[r])->device);
        if (strcmp(first.name, other.name) != 0 || first.totalGlobalMem != other.totalGlobalMem)
            return err_set(e, "a model is split over equal GPUs only: GPU %d is %s of %.0f GB, GPU %d is %s of %.0f GB",
                           cuda_of(c->gpu[0])->device, first.name, (double)first.totalGlobalMem * 1e-9,
                           cuda_of(c->gpu[r])->device, other.name, (double)other.totalGlobalMem * 1e-9);
    }
    return 0;
}

/* Lets each GPU read and write the memory of all others, if all can. Returns whether they can. */
static bool join_peers(const many_gpus *c)
{
    for (int i = 0; i < c->n * c->n; i++) {
        int can = 1, a = cuda_of(c->gpu[i / c->n])->device, b = cuda_of(c->gpu[i % c->n])->device;
        if (a != b && (cudaDeviceCanAccessPeer(&can, a, b) != cudaSuccess || !can))
            return false;
    }
    for (int i = 0; i < c->n * c->n; i++) {
        const cuda_backend *of = cuda_of(c->gpu[i / c->n]), *by = cuda_of(c->gpu[i % c->n]);
        struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = by->device},
                                           .flags = cudaMemAccessFlagsProtReadWrite};
        if (of != by && cudaMemPoolSetAccess(of->memory, &access, 1) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
    }
    return true;
}

static int open_ranks(many_gpus *c, err *e)
{
    int device[MAX_RANKS];
    for (int r = 0; r < c->n; r++)
        device[r] = cuda_of(c->gpu[r])->device;
    if (open_nccl(&c->lib, e))
        return -1;
    int status = c->lib.init_all(c->rank, c->n, device);
    if (status != NCCL_SUCCESS)
        return err_set(e, "NCCL cannot connect the %d GPUs: %s", c->n, c->lib.error_string(status));
    return 0;
}

comm *comm_nccl_new(backend *const *gpu, int n_ranks, err *e)
{
    many_gpus *c = XNEW(many_gpus);
    *c = (many_gpus){.base.ops = &many_ops, .n = n_ranks};
    memcpy(c->gpu, gpu, (size_t)n_ranks * sizeof *gpu);
    if (check_equal(c, e) || open_ranks(c, e))
        goto fail;
    c->are_peers = join_peers(c);
    if (c->are_peers && cuda_rank_barrier_init(&c->barrier, c->gpu, c->n, c->n, e))
        goto fail;
    for (int r = 0; r < c->n; r++)
        cuda_of(c->gpu[r])->max_recorded = c->are_peers ? ONE_SHOT_ROWS : 0;
    return &c->base;
fail:
    many_free(&c->base);
    return NULL;
}
