/* cuda_attention.cu - attention over the paged KvCache: which kernel, how large a grid, which scratch
 *
 * Decodes run attention_decode.cuh; prefills attention_hopper.cuh, or attention_prefill.cuh on other chips, with an F8
 * KvCache or with heads of 256. attention_plain.cuh serves the head and page sizes that these do not. Decode grids and
 * arguments depend on the padded batch only, so that they can be recorded. */
#include <math.h>

#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_plain.cuh"
#include "backend/cuda/attention_prefill.cuh"
#include "backend/cuda/tensor_map.cuh"

int cuda_decode_head_groups(heads h)
{
    return n_head_groups(h, h.n_heads / h.n_kv_heads);
}

/* Returns the length that KV splits are rounded to: 256 positions for each head group, 1024 at least. A sequence of
 * less than 1.5 times that is one split. So there is about a work item for every 256 positions, and a long sequence
 * among short ones does not keep a few blocks busy long after the rest. No measurement of these numbers is kept. */
static int split_len_of(heads h)
{
    int n_groups = cuda_decode_head_groups(h);
    return 256 * (n_groups < 4 ? 4 : n_groups);
}

int cuda_decode_max_splits(void)
{
    return MAX_KV_SPLITS;
}

int cuda_decode_split_len(const cuda_backend *cu, int seq_len)
{
    int split_len = split_len_of(cu->limit.h), n = (seq_len + split_len / 2) / split_len;
    n = n < 1 ? 1 : n > MAX_KV_SPLITS ? MAX_KV_SPLITS : n;
    return ((seq_len + n - 1) / n + TILE - 1) / TILE * TILE;
}

/* The bound counts a split for every sequence, one for every row of short prompts and as many again for the further
 * splits of these rows, and the further splits of long sequences: none of n = round(len / split_len) splits
 * (cuda_decode_split_len) is shorter than 3/4 of split_len_of(), as 1.5 split lengths are cut in two. */
int cuda_decode_splits(const extent *x)
{
    long positions = (long)x->max_pages * x->page_len, further = positions / (split_len_of(x->h) * 3 / 4);
    long most = (long)x->max_sequences * (MAX_KV_SPLITS - 1);
    return x->max_sequences + 2 * FUSED_ROWS + (int)(further < most ? further : most);
}

/* Lays out the scratch of decode_kernel. Returns its bytes. */
static size_t lay_out_partials(decode_partials *parts, void *scratch, const extent *limit)
{
    heads h = limit->h;
    size_t splits = (size_t)cuda_decode_splits(limit), rows = splits * (size_t)h.n_heads,
           n_groups = (size_t)cuda_decode_head_groups(h);
    parts->o = (float *)scratch;
    parts->ml = (float2 *)(parts->o + rows * (size_t)((h.head_dim + 1) / 2 * 2));
    parts->arrived = (unsigned *)(parts->ml + rows);
    return (size_t)((char *)(parts->arrived + splits * n_groups) - (char *)scratch);
}

size_t cuda_attention_scratch(const extent *limit)
{
    decode_partials parts;
    return lay_out_partials(&parts, NULL, limit) + sizeof(work_counter);
}

int cuda_prefill_rows(const cuda_backend *cu, const extent *x)
{
    int d = x->h.head_dim;
    bool by_warpgroups = cu->arch == 90 && !x->kv_fp8 && (d == 64 || d == 128) && x->page_len % TILE == 0;
    return by_warpgroups ? 64 * hopper_warpgroups(d) : PREFILL_TILE;
}

template <typename T>
static attention_call<T> make_call(cuda_backend *cu, tensor *y, const tensor *qkv, heads h, const kv_cache *kv,
                                   int layer, int window)
{
    size_t head = kv_block_bytes(kv), half = (size_t)kv->n_kv_heads * head;
    unsigned tiles = (unsigned)(kv->page_len / TILE);
    attention_call<T> a = {};
    a.s = cu->step;
    a.h = h;
    a.group = h.n_heads / h.n_kv_heads;
    a.window = window;
    a.page_len = kv->page_len;
    a.n_rows = qkv->rows;
    a.page_tiles = (int)tiles;
    a.page_magic = tiles > 1 ? (unsigned)(((1ull << 32) + tiles - 1) / tiles) : 0;
    a.qkv_cols = qkv->cols;
    a.scale = (float)(M_LOG2E / sqrt((double)h.head_dim));
    a.page_stride = (size_t)kv->n_layers * 2 * half;
    a.head_stride = head;
    a.values_offset = half;
    a.kv = (const char *)kv->data + (size_t)layer * 2 * half;
    a.kv_bytes = (size_t)kv->n_pages * a.page_stride - (size_t)layer * 2 * half;
    a.qkv = (const T *)qkv->data;
    a.y = (T *)y->data;
    return a;
}

/* The grid of a decode_kernel, which accepts any that keeps its contract. */
typedef struct {
    int warps, cluster, blocks;
    size_t shared;
} decode_grid;

/* Many work items: two blocks or more to an SM, each with work items of its own, so that one computes while the other
 * waits. Few: one large block to an SM, in clusters that share a work item. The blocks of a cluster must be close
 * together (in one GPC), so clusters cannot cover all SMs, and a cluster that must wait for another doubles the time.
 * So clusters grow only while all of them take at most 2/3 of the SMs, which is on the safe side but not tuned. */
static decode_grid grid_for(const cuda_backend *cu)
{
    heads h = cu->limit.h;
    int group = h.n_heads / h.n_kv_heads, max_heads = group < HEADS_PER_ITEM ? group : HEADS_PER_ITEM,
        n_groups = n_head_groups(h, group);
    /* max_decode_splits is a bound for any lengths; of decodes most rows are one split. */
    int n_splits = cu->shape.max_decode_splits;
    int likely_items = (cu->shape.decode_only ? cu->shape.n_rows : n_splits) * n_groups;
    size_t per_sm = cu->arch >= 90 ? 228 << 10 : 164 << 10, reserved = 1024;
    decode_grid g = {DECODE_MAX_WARPS, 1, cu->n_sms,
                     decode_shared_bytes(h.head_dim, cu->limit.kv_fp8, DECODE_MAX_WARPS, max_heads)};
    bool few = likely_items <= cu->n_sms;
    if (!few || g.shared + reserved > per_sm) {
        g.warps = DECODE_MAX_WARPS / 2;
        g.shared = decode_shared_bytes(h.head_dim, cu->limit.kv_fp8, g.warps, max_heads);
    }
    if (!few) {
        int fit = (int)(per_sm / (g.shared + reserved));
        g.blocks *= fit < DECODE_CLUSTERS_PER_SM ? fit : DECODE_CLUSTERS_PER_SM;
    }
    while (cu->arch >= 90 && 2 * g.cluster * g.warps <= CLUSTER_MAX_WARPS &&
           2 * g.cluster * likely_items <= cu->n_sms * 2 / 3)
        g.cluster *= 2;
    int clusters = g.blocks / g.cluster;
    g.blocks = (n_splits * n_groups < clusters ? n_splits * n_groups : clusters) * g.cluster;
    return g;
}

int cuda_decode_clusters(const cuda_backend *cu)
{
    decode_grid g = grid_for(cu);
    return g.blocks / g.cluster;
}

template <typename T, int D, bool F8> static void decode(cuda_backend *cu, const attention_call<T> &a)
{
    decode_grid g = grid_for(cu);
    decode_partials parts;
    CHECK(lay_out_partials(&parts, cu->attention_partials, &cu->limit) <= cu->attention_partials_bytes);
    allow_shared(context_of(cu), "attention", decode_kernel<T, D, F8>, g.shared);
    launch_clusters(context_of(cu), "attention", decode_kernel<T, D, F8>, g.blocks, g.warps * 32, g.shared, g.cluster,
                    a, parts, g.cluster);
}

template <typename T, int D, bool F8> static void prefill(cuda_backend *cu, const attention_call<T> &a)
{
    size_t shared = prefill_shared_bytes(D);
    dim3 grid(a.h.n_heads, cu->shape.n_prefill_tiles);
    allow_shared(context_of(cu), "attention", prefill_kernel<T, D, F8>, shared);
    launch(context_of(cu), "attention", prefill_kernel<T, D, F8>, grid, PREFILL_THREADS, shared, a);
}

/* Returns the map of the queries as [qkv_cols / 64, rows, 64], in boxes of a work item's rows and one head. */
template <typename T> static CUtensorMap query_map(cuda_backend *cu, const attention_call<T> &a, int box_rows)
{
    boxed_array q = {3,
                     act_map_type(cu),
                     {64, (cuuint64_t)a.n_rows, (cuuint64_t)a.qkv_cols / 64},
                     {(cuuint64_t)a.qkv_cols * 2, 128},
                     {64, (cuuint32_t)box_rows, (cuuint32_t)a.h.head_dim / 64}};
    return map_of(cu, "attention", a.qkv, q, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Returns the map of the KvCache as [positions / 8, head_dim / 64, 8, 64], whatever pages, layers and heads the
 * positions belong to, in boxes of TILE positions. */
template <typename T> static CUtensorMap position_map(cuda_backend *cu, const attention_call<T> &a)
{
    cuuint64_t row = (cuuint64_t)a.h.head_dim * 2;
    boxed_array kv = {4,
                      act_map_type(cu),
                      {64, 8, (cuuint64_t)a.h.head_dim / 64, a.kv_bytes / (8 * row)},
                      {row, 128, 8 * row},
                      {64, 8, (cuuint32_t)a.h.head_dim / 64, TILE / 8}};
    return map_of(cu, "attention", a.kv, kv, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Returns how many query heads make a section, whose work items run before those of the next: the heads of n key/value
 * heads, n being the largest divisor of their number with which the keys and values of all prefills stay in L2 (in 32
 * MiB of Hopper's 50; no measurement is kept). So what several query tiles read comes from memory once. */
static int heads_in_l2(const cuda_backend *cu, heads h)
{
    size_t each = (size_t)cu->shape.prefill_positions * (size_t)h.head_dim * 4, in_l2 = (size_t)32 << 20;
    int n = 1;
    for (int i = 2; i <= h.n_kv_heads; i++)
        if (h.n_kv_heads % i == 0 && (size_t)i * each <= in_l2)
            n = i;
    return n * (h.n_heads / h.n_kv_heads);
}

template <typename T, int D> static void prefill_by_warpgroups(cuda_backend *cu, const attention_call<T> &a)
{
    constexpr int GROUPS = hopper_warpgroups(D);
    int n_items = cu->shape.n_prefill_tiles * a.h.n_heads;
    hopper_plan plan = {(work_counter *)((char *)cu->attention_partials + cu->attention_partials_bytes) - 1,
                        heads_in_l2(cu, a.h)};
    allow_shared(context_of(cu), "attention", hopper_kernel<T, D>, hopper_shared_bytes(D));
    launch(context_of(cu), "attention", hopper_kernel<T, D>, n_items < cu->n_sms ? n_items : cu->n_sms,
           GROUPS * 128 + 128, hopper_shared_bytes(D), query_map(cu, a, 64 * GROUPS), position_map(cu, a), a, plan);
}

template <typename T, int D, bool F8> static void prefill_any(cuda_backend *cu, const attention_call<T> &a)
{
    if constexpr (!F8 && D <= 128) {
        if (cuda_prefill_rows(cu, &cu->limit) > PREFILL_TILE) {
            prefill_by_warpgroups<T, D>(cu, a);
            return;
        }
    }
    prefill<T, D, F8>(cu, a);
}

template <typename T, int D, bool F8> static void attend(cuda_backend *cu, const attention_call<T> &a)
{
    if (cu->shape.n_prefill_tiles > 0)
        prefill_any<T, D, F8>(cu, a);
    if (cu->shape.max_decode_splits > 0)
        decode<T, D, F8>(cu, a);
}

template <typename T, bool F8> static void attend_plain(cuda_backend *cu, const attention_call<T> &a)
{
    CHECK(a.h.head_dim <= ATTENTION_PLAIN_MAX_HEAD_DIM);
    dim3 prefills(a.h.n_heads, cu->shape.n_prefill_tiles);
    launch(context_of(cu), "attention", plain_prefill_kernel<T, F8>, prefills, ATTENTION_PLAIN_WARPS * 32, 0, a);
    int decodes = (cu->shape.max_decode_splits * a.h.n_heads + ATTENTION_PLAIN_WARPS - 1) / ATTENTION_PLAIN_WARPS;
    launch(context_of(cu), "attention", plain_decode_kernel<T, F8>, decodes, ATTENTION_PLAIN_WARPS * 32, 0, a);
}

template <typename T, bool F8> static void attend_by_size(cuda_backend *cu, const attention_call<T> &a)
{
    int d = a.page_len % TILE == 0 ? a.h.head_dim : 0;
    if (d == 64)
        attend<T, 64, F8>(cu, a);
    else if (d == 128)
        attend<T, 128, F8>(cu, a);
    else if (d == 256)
        attend<T, 256, F8>(cu, a);
    else
        attend_plain<T, F8>(cu, a);
}

template <typename T>
static void attend_any(cuda_backend *cu, tensor *y, const tensor *qkv, heads h, const kv_cache *kv, int layer,
                       int window)
{
    attention_call<T> a = make_call<T>(cu, y, qkv, h, kv, layer, window);
    if (kv->type == DTYPE_F8)
        attend_by_size<T, true>(cu, a);
    else
        attend_by_size<T, false>(cu, a);
}

void cuda_attention(backend *be, tensor *y, const tensor *qkv, heads h, const batch *b, const kv_cache *kv, int layer,
                    int window)
{
    (void)b;
    const heads *limit = &cuda_of(be)->limit.h;
    CHECK(h.n_heads == limit->n_heads && h.n_kv_heads == limit->n_kv_heads && h.head_dim == limit->head_dim);
    CHECK(h.n_heads % h.n_kv_heads == 0 && y->cols == h.n_heads * h.head_dim && kv->head_dim == h.head_dim);
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim &&
          kv->type == (cuda_of(be)->limit.kv_fp8 ? DTYPE_F8 : be->act));
    BY_ACT(attend_any, cuda_of(be), y, qkv, h, kv, layer, window);
}
