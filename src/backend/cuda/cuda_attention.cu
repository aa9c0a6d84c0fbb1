/* cuda_attention.cu - attention over the paged KvCache: which kernel, how large a grid, which scratch
 *
 * Decodes go through attention_decode.cuh, prefills through attention_prefill.cuh; head sizes and pages
 * that these are not made for, through attention_plain.cuh. Decode grids and arguments depend on
 * the padded batch only, so that they can be recorded. */
#include <math.h>

#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/attention_plain.cuh"
#include "backend/cuda/attention_prefill.cuh"

/* Sequences of up to half as much more are one piece. Longer ones are cut so that a few of them among short ones do
 * not keep single blocks busy long after the rest; at head_dim 128 a piece is 2 MiB of keys and values. */
enum { PIECE = 4096, SHORTEST_PIECE = PIECE * 3 / 4 };

int cuda_decode_pieces(const cuda_backend *cu)
{
    (void)cu;
    return MAX_PIECES;
}

int cuda_decode_piece(const cuda_backend *cu, int seq_len)
{
    (void)cu;
    int n = (seq_len + PIECE / 2) / PIECE;
    n = n < 1 ? 1 : n > MAX_PIECES ? MAX_PIECES : n;
    return ((seq_len + n - 1) / n + TILE - 1) / TILE * TILE;
}

/* The scratch of decode_kernel: one piece for each sequence, and one more for every so many positions. */
static size_t lay_out_parts(decode_parts *parts, void *scratch, const extent *limit)
{
    heads h = limit->h;
    size_t positions = (size_t)limit->max_pages * (size_t)limit->page_len;
    size_t items = (size_t)limit->max_sequences + positions / SHORTEST_PIECE, rows = items * (size_t)h.n_heads;
    size_t slices = (size_t)decode_slices(h, h.n_heads / h.n_kv_heads);
    parts->out = (float *)scratch;
    parts->stat = (float2 *)(parts->out + rows * (size_t)((h.head_dim + 1) / 2 * 2));
    parts->arrived = (unsigned *)(parts->stat + rows);
    return (size_t)((char *)(parts->arrived + items * slices) - (char *)scratch);
}

size_t cuda_attention_scratch(const cuda_backend *cu, const extent *limit)
{
    (void)cu;
    decode_parts parts;
    return lay_out_parts(&parts, NULL, limit);
}

template <typename T>
static attention_call<T> make_call(cuda_backend *cu, tensor *y, const tensor *qkv, heads h, const kv_cache *kv, int layer,
                                   int window)
{
    size_t head = (size_t)kv->page_len * (size_t)kv->head_dim, half = (size_t)kv->n_kv_heads * head;
    attention_call<T> a = {};
    a.s = cu->step;
    a.h = h;
    a.group = h.n_heads / h.n_kv_heads;
    a.window = window;
    a.page_len = kv->page_len;
    a.page_tiles = kv->page_len / TILE;
    a.page_magic = a.page_tiles > 1 ? (unsigned)(((1ull << 32) + (unsigned)a.page_tiles - 1) / (unsigned)a.page_tiles) : 0;
    a.qkv_cols = qkv->cols;
    a.scale = (float)(M_LOG2E / sqrt((double)h.head_dim));
    a.page_stride = (size_t)kv->n_layers * 2 * half;
    a.values = half;
    a.kv = (const T *)kv->data + (size_t)layer * 2 * half;
    a.qkv = (const T *)qkv->data;
    a.y = (T *)y->data;
    return a;
}

/* Allow a kernel more dynamic shared memory than the 48 KiB that are always there. */
template <typename... P> static void allow_shared(cuda_backend *cu, void (*kernel)(P...), size_t bytes)
{
    cuda_keep(cu, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attention");
}

/* Blocks of so much shared memory that an SM holds at a time; 1 KiB of each is the system's. */
static int blocks_per_sm(const cuda_backend *cu, size_t shared)
{
    size_t per_sm = cu->arch >= 90 ? 228 << 10 : 164 << 10;
    int n = (int)(per_sm / (shared + 1024));
    return n > 4 ? 4 : n;
}

/* How many blocks share a unit: as many as there is room for, when units are few. */
static int team_size(const cuda_backend *cu, int units, int slots)
{
    int n = 1;
    while (cu->arch >= 90 && n < MAX_TEAM && 2 * n * units <= slots)
        n *= 2;
    return n;
}

template <typename T, int D> static void decode(cuda_backend *cu, const attention_call<T> &a)
{
    size_t shared = decode_shared_bytes(D, a.group < QUERIES ? a.group : QUERIES);
    int slices = decode_slices(a.h, a.group), slots = cu->n_sms * blocks_per_sm(cu, shared);
    int n_decodes = cu->shape.decode_only ? cu->shape.n_rows : cu->shape.max_decode_items;
    int team = team_size(cu, n_decodes * slices, slots), blocks = cu->shape.max_decode_items * slices * team;
    decode_parts parts;
    CHECK(lay_out_parts(&parts, cu->attention_parts, &cu->limit) <= cu->attention_parts_bytes);
    allow_shared(cu, decode_kernel<T, D>, shared);
    launch_clusters(cu, "attention", decode_kernel<T, D>, (blocks < slots ? blocks : slots) / team * team, DECODE_THREADS,
                    shared, team, a, parts, team);
}

template <typename T, int D> static void prefill(cuda_backend *cu, const attention_call<T> &a)
{
    size_t shared = prefill_shared_bytes(D);
    dim3 grid(a.h.n_heads, cu->shape.n_prefill_items);
    allow_shared(cu, prefill_kernel<T, D>, shared);
    launch(cu, "attention", prefill_kernel<T, D>, grid, PREFILL_THREADS, shared, a);
}

template <typename T, int D> static void attend(cuda_backend *cu, const attention_call<T> &a)
{
    if (cu->shape.n_prefill_items > 0)
        prefill<T, D>(cu, a);
    if (cu->shape.max_decode_items > 0)
        decode<T, D>(cu, a);
}

template <typename T> static void attend_plain(cuda_backend *cu, const attention_call<T> &a)
{
    CHECK(a.h.head_dim <= PLAIN_MAX_HEAD_DIM);
    dim3 prefills(a.h.n_heads, cu->shape.n_prefill_items);
    launch(cu, "attention", plain_prefill_kernel<T>, prefills, PLAIN_WARPS * 32, 0, a);
    int decodes = (cu->shape.max_decode_items * a.h.n_heads + PLAIN_WARPS - 1) / PLAIN_WARPS;
    launch(cu, "attention", plain_decode_kernel<T>, decodes, PLAIN_WARPS * 32, 0, a);
}

template <typename T>
static void attend_any(cuda_backend *cu, tensor *y, const tensor *qkv, heads h, const kv_cache *kv, int layer, int window)
{
    attention_call<T> a = make_call<T>(cu, y, qkv, h, kv, layer, window);
    int d = kv->page_len % TILE == 0 ? h.head_dim : 0;
    if (d == 64)
        attend<T, 64>(cu, a);
    else if (d == 128)
        attend<T, 128>(cu, a);
    else if (d == 256)
        attend<T, 256>(cu, a);
    else
        attend_plain(cu, a);
}

void cuda_attention(backend *be, tensor *y, const tensor *qkv, heads h, const batch *b, const kv_cache *kv, int layer,
                    int window)
{
    (void)b;
    CHECK(h.n_heads % h.n_kv_heads == 0 && y->cols == h.n_heads * h.head_dim && kv->head_dim == h.head_dim);
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim && kv->type == be->act);
    BY_ACT(attend_any, cuda_of(be), y, qkv, h, kv, layer, window);
}
