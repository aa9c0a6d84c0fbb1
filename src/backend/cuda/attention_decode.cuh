/* attention_decode.cuh - decode attention, split-KV: a row is one query position; a sequence may have several rows
 *
 * Bound by reading the KvCache, so everything serves to keep copies in flight. A work item is one split (split-KV)
 * of the positions that a row sees (decode_split), for one key/value head and up to HEADS_PER_ITEM of the query heads
 * that share it. Clusters of blocks (of one block where work items are many) are persistent: each runs the list of work
 * items that schedule_attention() (cuda_step.c) made for it. Each warp has a ring of tiles in shared memory, TILE
 * positions of keys and values each, and prefetches into it, on into later work items. For a cluster of 4 warps:
 *
 *   item 271, tiles 0 4 | item 7, tiles 0 4 8 | ...        warp 0
 *             tiles 1 5 |         tiles 1 5 9 | ...        warp 1
 *                   ^ arithmetic        ^ copies
 *
 * Copies of positions that earlier invocations wrote need not wait for the kernels before this one. Keys are mma's 16
 * rows and query heads its 8 columns, so 8 heads waste nothing: S^T = K Q^T, then O^T = V^T P^T. Each warp keeps an
 * online-softmax state of its own: the maximum m, the sum l and the output o, not yet divided by l. At the end of a
 * work item the cluster merges the states of its warps through its shared memory. Only long sequences have several
 * splits. Each then leaves its merged state in device memory, a partial result; the last block to arrive merges these,
 * in order of position. */
#ifndef PUNICA_BACKEND_CUDA_ATTENTION_DECODE_CUH
#define PUNICA_BACKEND_CUDA_ATTENTION_DECODE_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/cluster.cuh"

enum {
    HEADS_PER_ITEM = 8,   /* query heads of a work item at most: the columns of mma.m16n8k16 */
    DECODE_MAX_WARPS = 8, /* of a block; no measurement is kept */
};
/* The most warps of a cluster and KV splits of a sequence: a merge gives each state a lane of a warp. */
enum { CLUSTER_MAX_WARPS = 32, MAX_KV_SPLITS = 32 };

/* Stages of a warp's ring, a tile of keys and values each. Not tuned, but for the 3 of 16-bit heads of 128: the most
 * with which DECODE_MAX_WARPS warps fit an SM of Hopper. Where so many warps do not fit, as with heads of 256,
 * grid_for() in cuda_attention.cu launches half of them. */
static __host__ __device__ constexpr int decode_stages(int head_dim, bool f8)
{
    return head_dim <= 64 ? (f8 ? 6 : 4) : head_dim <= 128 ? (f8 ? 4 : 3) : (f8 ? 3 : 2);
}

/* Bytes of a stage: TILE keys and TILE values, with their scales where they are F8. */
static __host__ __device__ constexpr int decode_stage_bytes(int head_dim, bool f8)
{
    return 2 * TILE * (f8 ? head_dim + 4 : 2 * head_dim);
}

/* Bytes of a warp's ring. */
static __host__ __device__ constexpr int decode_ring_bytes(int head_dim, bool f8)
{
    return decode_stages(head_dim, f8) * decode_stage_bytes(head_dim, f8);
}

/* Floats from the output of one head to that of the next in a merge. The padding of 4 keeps store_state() free of bank
 * conflicts: the lanes of a quad store to every other head, 8 banks apart, and the 8 quads fill the banks in between.
 * (For F8 the compiler merges the stores of two adjacent columns into one of 8 bytes.) */
static __host__ __device__ constexpr int merge_stride(int head_dim)
{
    return head_dim + 4;
}

/* Shared memory of a block in bytes: the rings; then the state of each warp, of up to max_heads heads; then a flag. */
static inline size_t decode_shared_bytes(int head_dim, bool f8, int warps, int max_heads)
{
    int merge = max_heads * merge_stride(head_dim) + 2 * HEADS_PER_ITEM;
    return (size_t)warps * ((size_t)decode_ring_bytes(head_dim, f8) + (size_t)merge * sizeof(float)) + sizeof(int);
}

/* This block's place in its cluster and in the grid. */
typedef struct {
    int size, rank;         /* blocks in the cluster; this block's index among them */
    int index;              /* of the cluster in the grid */
    int block_warps, warps; /* of a block; of the cluster, a power of 2 up to CLUSTER_MAX_WARPS */
    int warp;               /* of this warp in its block; by a shuffle, so that the compiler knows it to be uniform */
} decode_cluster;

static __device__ __forceinline__ decode_cluster cluster_of_block(int size)
{
    decode_cluster cluster;
    cluster.size = size;
    cluster.rank = (int)blockIdx.x % size;
    cluster.index = (int)blockIdx.x / size;
    cluster.block_warps = (int)blockDim.x / 32;
    cluster.warps = size * cluster.block_warps;
    cluster.warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    return cluster;
}

/* The cluster's barrier, arrive and wait; for a cluster of one block __syncthreads() in the wait, which costs less. */
static __device__ __forceinline__ void decode_arrive(decode_cluster cluster)
{
    if (cluster.size > 1)
        cluster_arrive();
}

static __device__ __forceinline__ void decode_wait(decode_cluster cluster)
{
    if (cluster.size > 1)
        cluster_wait();
    else
        __syncthreads();
}

/* The partial results in device memory: the merged state of each KV split. */
typedef struct {
    float *o;          /* [splits, n_heads, head_dim] */
    float2 *ml;        /* [splits, n_heads] (m, l) */
    unsigned *arrived; /* [splits, n_head_groups] at a row's first split: blocks done with the row; 0 between
                        * launches */
} decode_partials;

/* A work item: one split of a row, and one group of query heads. */
typedef struct {
    int split_number, head_group; /* the split's place in step.decode; one of n_head_groups() */
    int kv_head;
    int first_head, n_heads;   /* query heads; a `head` in the functions below counts from first_head */
    int from, to;              /* positions; from = to = 0 where the split lies before the window */
    int row, pages;            /* as in decode_split */
    int first_split, n_splits; /* the splits that make up the row's result: those within the window */
} decode_work;

/* Returns the number of head groups, hence work items, per split; `group` query heads share a key/value head. */
static __host__ __device__ __forceinline__ int n_head_groups(heads h, int group)
{
    return h.n_kv_heads * ((group + HEADS_PER_ITEM - 1) / HEADS_PER_ITEM);
}

/* Returns the number of the split, in step.decode, that this work item belongs to. */
template <typename T> __device__ __forceinline__ int split_number_at(const attention_call<T> &a, int item)
{
    return item / n_head_groups(a.h, a.group);
}

/* Describes work item number `item`, which belongs to this split. */
template <typename T>
__device__ __forceinline__ decode_work work_at(const attention_call<T> &a, int item, decode_split split)
{
    decode_work w;
    int n_groups = n_head_groups(a.h, a.group), per_kv_head = n_groups / a.h.n_kv_heads;
    w.split_number = item / n_groups;
    w.head_group = item % n_groups;
    w.kv_head = w.head_group / per_kv_head;
    int skip = w.head_group % per_kv_head * HEADS_PER_ITEM;
    w.first_head = w.kv_head * a.group + skip;
    w.n_heads = min(a.group - skip, (int)HEADS_PER_ITEM);
    w.row = split.row;
    w.pages = split.pages;
    int window_begin = first_seen(split.len - 1, a.window), n_unseen = 0; /* n_unseen: splits before the window */
    if (window_begin > 0) {
        /* All splits of a row but the last are of one length: split 0 ends at it, and split i begins at i times it. */
        int split_len = split.index > 0 ? split.from / split.index : split.to;
        n_unseen = window_begin / split_len;
    }
    bool is_seen = window_begin < split.to;
    w.from = is_seen ? max(split.from, window_begin) : 0;
    w.to = is_seen ? split.to : 0;
    w.first_split = w.split_number - split.index + n_unseen;
    w.n_splits = split.count - n_unseen;
    return w;
}

/* Returns the first tile of the work item that this warp attends to. */
static __device__ __forceinline__ int first_tile(const decode_work &w, decode_cluster cluster)
{
    return w.from / TILE + cluster.rank * cluster.block_warps + cluster.warp;
}

/* The next tile that a warp copies, in its cluster's list of work items (step.next_work). To hide the latency of these
 * loads, the cursor loads ahead of their use the split of the next work item, the number of the one after that, and the
 * page of the tile. */
typedef struct {
    int item, next_item, next_next_item; /* numbers of work items: the tile's, the next one, the next but one */
    int n_items;                         /* a number of n_items or more ends the list */
    int tile, end_tile;                  /* tile holds positions from tile * TILE on; end_tile ends the item's tiles */
    int end, fresh_tile;     /* of the item: end of its positions; its first tile that this invocation writes to */
    int kv_head, page;       /* of the tile */
    const int *pages;        /* of the sequence */
    decode_split next_split; /* of next_item */
} decode_cursor;

/* Moves the cursor to the start of work item c->item, which belongs to this split, and loads what the next one will
 * need. */
template <typename T>
__device__ __forceinline__ void cursor_load(decode_cursor *c, const attention_call<T> &a, decode_cluster cluster,
                                            decode_split split)
{
    decode_work w = work_at(a, c->item, split);
    c->tile = first_tile(w, cluster);
    c->end_tile = (w.to + TILE - 1) / TILE;
    c->end = w.to;
    c->fresh_tile = split.fresh / TILE;
    c->kv_head = w.kv_head;
    c->pages = a.s.page + w.pages;
    if (c->next_item < c->n_items) {
        c->next_split = a.s.decode[split_number_at(a, c->next_item)];
        c->next_next_item = a.s.next_work[c->next_item];
    }
}

/* Moves the cursor on, where its work item has no tile left for this warp, to the next one that has. */
template <typename T>
__device__ __forceinline__ void cursor_seek(decode_cursor *c, const attention_call<T> &a, decode_cluster cluster)
{
    while (c->tile >= c->end_tile) {
        c->item = c->next_item;
        c->next_item = c->next_next_item;
        if (c->item >= c->n_items)
            return;
        cursor_load(c, a, cluster, c->next_split);
    }
    c->page = c->pages[quotient_by_magic(c->tile, a.page_magic)];
}

/* Returns a cursor at the first tile of this warp. */
template <typename T>
__device__ __forceinline__ decode_cursor cursor_begin(const attention_call<T> &a, decode_cluster cluster)
{
    decode_cursor c;
    c.n_items = a.s.n[COUNT_DECODE_SPLITS] * n_head_groups(a.h, a.group);
    c.item = a.s.first_work[cluster.index];
    if (c.item < c.n_items) {
        c.next_split = a.s.decode[split_number_at(a, c.item)]; /* of c.item, until cursor_load() stores the next */
        c.next_item = a.s.next_work[c.item];
        cursor_load(&c, a, cluster, c.next_split);
        cursor_seek(&c, a, cluster);
    }
    return c;
}

/* Swizzles of F8 tiles in shared memory: rows of D bytes whose 16-byte chunks are permuted by the row's number. Both
 * reads are free of bank conflicts: of keys, 8 lanes at a time read four chunks of each of two rows; of values,
 * ldmatrix reads one chunk of each of eight rows. */
template <int D> __device__ __forceinline__ unsigned f8_key_offset(int row, int chunk)
{
    return (unsigned)(row * D + ((D > 64 ? chunk ^ (row & 1) << 2 : chunk) << 4));
}

template <int D> __device__ __forceinline__ unsigned f8_value_offset(int row, int chunk)
{
    return (unsigned)(TILE * D + row * D + ((chunk ^ (D > 64 ? row & 7 : row >> 1 & 3)) << 4));
}

/* Bytes that a warp copies at once, 16 a lane. */
enum { WARP_COPY = 32 * 16 };

/* Starts copying the first n_valid positions of a tile of F8 keys (at `keys`) and values, and zeros for the others; and
 * the scales of all of them, 64 bytes for keys and 64 for values, unused where there is no position. */
template <int D, typename T>
__device__ __forceinline__ void copy_f8_tile(unsigned stage, const attention_call<T> &a, const char *keys,
                                             const float *scales, int n_valid)
{
    constexpr int CHUNKS = D / 16, ROWS = 32 / CHUNKS;
    int lane = threadIdx.x % 32, chunk = lane % CHUNKS;
    const char *from = keys + lane * 16;
#pragma unroll
    for (int i = 0; i < TILE / ROWS; i++) {
        int row = lane / CHUNKS + i * ROWS;
        copy_16(stage + f8_key_offset<D>(row, chunk), from + i * WARP_COPY, row < n_valid);
        copy_16(stage + f8_value_offset<D>(row, chunk), from + i * WARP_COPY + a.values_offset, row < n_valid);
    }
    if (lane < 8)
        copy_16(stage + 2 * TILE * D + lane * 16,
                (const char *)scales + lane % 4 * 16 + (lane < 4 ? 0 : a.values_offset), true);
}

/* Starts copying the cursor's tile, keys then values, and moves the cursor on. Positions past the end become zeros:
 * their memory was never written. Commits a group even when there is no tile left, so that copy_wait() can count
 * groups. */
template <int D, bool F8, typename T>
__device__ __forceinline__ void copy_next_tile(unsigned stage, decode_cursor *c, const attention_call<T> &a,
                                               decode_cluster cluster)
{
    if (F8 && c->item < c->n_items) {
        const char *block = a.kv + c->page * a.page_stride + c->kv_head * a.head_stride;
        int in_page = tile_in_page(a, c->tile) * TILE;
        copy_f8_tile<D>(stage, a, block + in_page * D, kv_scales(a, block) + in_page, c->end - c->tile * TILE);
        c->tile += cluster.warps;
        cursor_seek(c, a, cluster);
    } else if (c->item < c->n_items) {
        constexpr int CHUNKS = D / 8, ROWS = 32 / CHUNKS; /* 16-byte chunks of a row; rows that a warp copies at once */
        int lane = threadIdx.x % 32, row = lane / CHUNKS, n_left = c->end - c->tile * TILE - row;
        const char *keys = tile_keys<D, false>(a, c->page, c->kv_head, c->tile) + lane * 16;
        const char *values = keys + a.values_offset;
        unsigned first = stage + chunk_offset<D>(row, lane % CHUNKS);
#pragma unroll
        for (int i = 0; i < TILE / ROWS; i++) {
            /* This is chunk_offset<D>(row + i * ROWS, ...): row and i * ROWS have no bit in common, so the swizzle of
             * their sum is the exclusive-or of their swizzles. */
            unsigned at = (first ^ (i * ROWS % 8 << 4)) + i * WARP_COPY;
            copy_16(at, keys + i * WARP_COPY, i * ROWS < n_left);
            copy_16(at + TILE * D * 2, values + i * WARP_COPY, i * ROWS < n_left);
        }
        c->tile += cluster.warps;
        cursor_seek(c, a, cluster);
    }
    copy_commit();
}

/* A warp's online-softmax state for a work item, and its queries. Lane 4 * g + t has o, m and l of heads 2t and 2t + 1.
 * o and l are relative to m, the maximum over all tiles so far; l is only this lane's part of the sum. */
template <int D> struct decode_state {
    unsigned q[D / 16][2]; /* B operand: (columns 16 k + 2t.. and + 8 of head g); F8: see load_f8_queries */
    float o[D / 16][4];    /* (columns 16 i + g and + 8, heads 2t and 2t + 1); F8: columns 16 i + 2g and + 1 */
    float m[2], l[2];      /* as FlashAttention names them */
};

template <int D, typename T>
__device__ __forceinline__ void load_16bit_queries(decode_state<D> *st, const attention_call<T> &a,
                                                   const decode_work &w)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const T *q = a.qkv + (size_t)w.row * a.qkv_cols + (size_t)(w.first_head + g) * D + 2 * t;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        st->q[k][0] = g < w.n_heads ? *(const unsigned *)(q + 16 * k) : 0;
        st->q[k][1] = g < w.n_heads ? *(const unsigned *)(q + 16 * k + 8) : 0;
    }
}

/* Loads queries in the order of F8 keys. A product may sum over the head's columns in any order that is the same for
 * both operands. A lane reads F8 keys as 16 adjacent bytes; each word of them is widened to bytes (0, 1) and (2, 3),
 * for BF16 to (1, 3) and (0, 2), and the queries take the same order. */
template <int D, typename T>
__device__ __forceinline__ void load_f8_queries(decode_state<D> *st, const attention_call<T> &a, const decode_work &w)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const T *q = a.qkv + (size_t)w.row * a.qkv_cols + (size_t)(w.first_head + g) * D + 16 * t;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint2 four = g < w.n_heads ? *(const uint2 *)(q + k / 4 * 64 + k % 4 * 4) : make_uint2(0, 0);
        bool f16s = __is_same(T, f16);
        st->q[k][0] = f16s ? four.x : __byte_perm(four.x, four.y, 0x7632);
        st->q[k][1] = f16s ? four.y : __byte_perm(four.x, four.y, 0x5410);
    }
}

template <int D, bool F8, typename T>
__device__ __forceinline__ void load_queries(decode_state<D> *st, const attention_call<T> &a, const decode_work &w)
{
    if constexpr (F8)
        load_f8_queries(st, a, w);
    else
        load_16bit_queries(st, a, w);
}

template <int D> __device__ __forceinline__ void clear_state(decode_state<D> *st)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        st->o[i][0] = st->o[i][1] = st->o[i][2] = st->o[i][3] = 0.0f;
    st->m[0] = st->m[1] = -INFINITY;
    st->l[0] = st->l[1] = 0.0f;
}

/* The online-softmax update. s: scores of positions g and g + 8 of the tile and heads 2t and 2t + 1, as in D of
 * mma.cuh; they become weights, and l and o are rescaled to the new m. */
template <int D> __device__ __forceinline__ void online_softmax(decode_state<D> *st, float s[4])
{
    float m[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])}, rescale[2];
#pragma unroll
    for (int i = 4; i < 32; i <<= 1) {
        m[0] = fmaxf(m[0], __shfl_xor_sync(0xffffffffu, m[0], i));
        m[1] = fmaxf(m[1], __shfl_xor_sync(0xffffffffu, m[1], i));
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        m[j] = fmaxf(m[j], st->m[j]);
        rescale[j] = exp2_fast(st->m[j] - m[j]);
        st->m[j] = m[j];
        s[j] = exp2_fast(s[j] - m[j]);
        s[j + 2] = exp2_fast(s[j + 2] - m[j]);
        st->l[j] = st->l[j] * rescale[j] + (s[j] + s[j + 2]);
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            st->o[i][j] *= rescale[j & 1];
}

/* Attends to the tile at `position`: S^T = K Q^T, online softmax, O^T += V^T P^T. Only positions in [w.from, w.to)
 * count; the tile has at least one of them. */
template <int D, typename T>
__device__ __forceinline__ void attend_tile(decode_state<D> *st, unsigned stage, int position, const decode_work &w,
                                            float scale)
{
    constexpr int AHEAD = D / 16 < 8 ? D / 16 : 8; /* operands that are loaded before the first is used */
    unsigned keys = stage + by_rows<D>(), values = stage + TILE * D * 2 + by_columns<D>();
    float s[2][4] = {}; /* two sums, so that consecutive products are independent */
    unsigned tile[AHEAD][4];
#pragma unroll
    for (int k = 0; k < D / 16; k += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load_matrices(tile[i], keys ^ (k + i) * 32);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            mma<T>(s[i & 1], tile[i], st->q[k + i]);
    }
    int first_key = position + (int)threadIdx.x % 32 / 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int key = first_key + j / 2 * 8;
        s[0][j] = key >= w.from && key < w.to ? (s[0][j] + s[1][j]) * scale : -INFINITY;
    }
    online_softmax(st, s[0]);
    unsigned p[2] = {transpose_matrix(pack<T>(s[0][0], s[0][1])), transpose_matrix(pack<T>(s[0][2], s[0][3]))};
#pragma unroll
    for (int k = 0; k < D / 16; k += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load_matrices_t(tile[i], values ^ (k + i) * 32);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            mma<T>(st->o[k + i], tile[i], p);
    }
}

static __device__ __forceinline__ uint4 load_shared_16(unsigned at)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at));
    return x;
}

static __device__ __forceinline__ float load_shared_float(unsigned at)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at));
    return x;
}

/* Widens bytes 0 and 2 of a word to `even`, bytes 1 and 3 to `odd`. */
template <typename T> __device__ __forceinline__ void widen_apart(unsigned word, unsigned &even, unsigned &odd)
{
    if constexpr (__is_same(T, f16)) {
        even = widen_pair((unsigned short)__byte_perm(word, 0, 0x4420));
        odd = widen_pair((unsigned short)__byte_perm(word, 0, 0x4431));
    } else {
        even = widen_upper(word << 8);
        odd = widen_upper(word);
    }
}

/* attend_tile() for F8 tiles. A key's scale multiplies its score; a value's scale multiplies its weight. That alone
 * might underflow in T, so the weight is multiplied by FP8_MAX too (FP8_MAX times the scale is the value's largest
 * magnitude), and store_state() divides o by it. ldmatrix moves 16 bits at a time, so two adjacent columns of a value
 * come as one number; pulled apart they are two rows of the product. */
template <int D, typename T>
__device__ __forceinline__ void attend_f8_tile(decode_state<D> *st, unsigned stage, int position, const decode_work &w,
                                               float scale)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float s[2][4] = {};
#pragma unroll
    for (int c = 0; c < D / 64; c++) {
        uint4 rows[2] = {load_shared_16(stage + f8_key_offset<D>(g, 4 * c + t)),
                         load_shared_16(stage + f8_key_offset<D>(g + 8, 4 * c + t))};
        const unsigned *low = &rows[0].x, *high = &rows[1].x;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned keys[4];
            widen_fp8<T>(low[k], keys[0], keys[2]);
            widen_fp8<T>(high[k], keys[1], keys[3]);
            mma<T>(s[k & 1], keys, st->q[4 * c + k]);
        }
    }
    unsigned scales = stage + 2 * TILE * D + g * 4;
    float by_value[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int key = position + g + 8 * i;
        bool counts = key >= w.from && key < w.to;
        float by_key = load_shared_float(scales + 32 * i) * scale;
        by_value[i] = counts ? load_shared_float(scales + TILE * 4 + 32 * i) * FP8_MAX : 0.0f;
        for (int j = 2 * i; j < 2 * i + 2; j++)
            s[0][j] = counts ? (s[0][j] + s[1][j]) * by_key : -INFINITY;
    }
    online_softmax(st, s[0]);
    unsigned p[2] = {transpose_matrix(pack<T>(s[0][0] * by_value[0], s[0][1] * by_value[0])),
                     transpose_matrix(pack<T>(s[0][2] * by_value[1], s[0][3] * by_value[1]))};
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        unsigned tile[4], values[4];
        load_matrices_t(tile, stage + f8_value_offset<D>(lane % 16, 2 * i + lane / 16));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            widen_apart<T>(tile[2 * half], values[0], values[1]);
            widen_apart<T>(tile[2 * half + 1], values[2], values[3]);
            mma<T>(st->o[2 * i + half], values, p);
        }
    }
}

/* The online-softmax states of the block's warps, in shared memory that the whole cluster reads. */
typedef struct {
    float *m, *l; /* [block_warps, HEADS_PER_ITEM] */
    float *o;     /* [block_warps, n_heads, merge_stride] */
    int *is_last; /* see arrive_last() */
} warp_states;

template <int D> __device__ __forceinline__ warp_states warp_states_at(char *shared, int warps, int max_heads)
{
    warp_states states;
    states.m = (float *)shared;
    states.l = states.m + warps * HEADS_PER_ITEM;
    states.o = states.l + warps * HEADS_PER_ITEM;
    states.is_last = (int *)(states.o + warps * max_heads * merge_stride(D));
    return states;
}

/* Stores a warp's state in shared memory, with l added up over its lanes. */
template <int D, bool F8>
__device__ __forceinline__ void store_state(const decode_state<D> *st, warp_states states, int warp, int n_heads)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int head = 2 * t + j;
        float l = st->l[j];
        for (int i = 4; i < 32; i <<= 1)
            l += __shfl_xor_sync(0xffffffffu, l, i);
        if (head >= n_heads)
            continue;
        float *o = states.o + (warp * n_heads + head) * merge_stride(D) + (F8 ? 2 * g : g);
        float by = F8 ? 1.0f / FP8_MAX : 1.0f;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            o[16 * i] = st->o[i][j] * by;
            o[16 * i + (F8 ? 1 : 8)] = st->o[i][j + 2] * by;
        }
        if (g == 0) {
            states.m[warp * HEADS_PER_ITEM + head] = st->m[j];
            states.l[warp * HEADS_PER_ITEM + head] = l;
        }
    }
}

/* Writes this lane's columns of one head's y: o / l. */
template <int D, typename T>
__device__ __forceinline__ void write_out(const attention_call<T> &a, const decode_work &w, int head,
                                          float (&o)[D / 32], float l)
{
    float by = 1.0f / l;
#pragma unroll
    for (int i = 0; i < D / 32; i++)
        o[i] *= by;
    store_n(a.y + ((size_t)w.row * a.h.n_heads + w.first_head + head) * D + threadIdx.x % 32 * (D / 32), o);
}

/* How n states of a head are merged, n a power of 2 up to 32. Lane i has m_i and l_i of state i (lanes from n on repeat
 * the first n). m: the maximum of all m_i; weight: of the lane's state, 2^(m_i - m); l: the sum of weight_i * l_i. */
typedef struct { float weight, m, l; } merged;

static __device__ __forceinline__ merged merge_weights(float m_i, float l_i, int n)
{
    merged all;
    all.m = m_i;
    for (int i = n / 2; i > 0; i /= 2)
        all.m = fmaxf(all.m, __shfl_xor_sync(0xffffffffu, all.m, i));
    all.weight = exp2_fast(m_i - all.m);
    all.l = l_i * all.weight;
    for (int i = n / 2; i > 0; i /= 2)
        all.l += __shfl_xor_sync(0xffffffffu, all.l, i);
    return all;
}

/* o += weight * o_i, at this lane's columns. */
template <int N> __device__ __forceinline__ void add_scaled(float (&o)[N], float weight, const float2 (&o_i)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        o[2 * i] += weight * o_i[i].x;
        o[2 * i + 1] += weight * o_i[i].y;
    }
}

/* Merges the states of the cluster's warps; each warp merges every cluster.warps-th head. Writes y where the row has
 * one split, else a partial result. ALONE: the cluster is one block. */
template <int D, bool ALONE, typename T>
__device__ __forceinline__ void merge_cluster(const attention_call<T> &a, const decode_work &w,
                                              decode_partials partials, warp_states states, decode_cluster cluster)
{
    constexpr int N = D / 32; /* columns of a lane */
    int lane = threadIdx.x % 32, state = lane % cluster.warps;
    for (int head = cluster.rank * cluster.block_warps + cluster.warp; head < w.n_heads; head += cluster.warps) {
        int at = state % cluster.block_warps * HEADS_PER_ITEM + head, owner = state / cluster.block_warps;
        merged all = ALONE ? merge_weights(states.m[at], states.l[at], cluster.warps)
                           : merge_weights(load_from_peer(states.m + at, owner), load_from_peer(states.l + at, owner),
                                           cluster.warps);
        float o[N] = {};
        for (int peer = 0; peer < cluster.size; peer++)
#pragma unroll 4
            for (int i = 0; i < cluster.block_warps; i++) {
                const float2 *from = (const float2 *)(states.o + (i * w.n_heads + head) * merge_stride(D) + lane * N);
                float2 o_i[N / 2];
#pragma unroll
                for (int j = 0; j < N / 2; j++)
                    o_i[j] = ALONE ? from[j] : load_from_peer(from + j, peer);
                add_scaled(o, __shfl_sync(0xffffffffu, all.weight, peer * cluster.block_warps + i), o_i);
            }
        size_t partial = (size_t)w.split_number * a.h.n_heads + w.first_head + head;
        if (w.n_splits > 1 && lane == 0)
            partials.ml[partial] = make_float2(all.m, all.l);
        if (w.n_splits > 1)
            store_n(partials.o + partial * D + lane * N, o);
        else
            write_out<D>(a, w, head, o, all.l);
    }
}

/* Counts this block as done with the row and head group. Returns true for the last one, which then sees the partial
 * results of all (the threadFenceReduction pattern of CUDA's samples). */
template <typename T>
__device__ __forceinline__ bool arrive_last(const attention_call<T> &a, const decode_work &w, decode_partials partials,
                                            int cluster_size, int *is_last)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *arrived = partials.arrived + (size_t)w.first_split * n_head_groups(a.h, a.group) + w.head_group;
        unsigned last = (unsigned)(w.n_splits * cluster_size) - 1;
        __threadfence();
        *is_last = atomicInc(arrived, last) == last; /* atomicInc() wraps to 0 at the last */
        __threadfence();
    }
    __syncthreads();
    return *is_last;
}

/* Merges the partial results of a row's splits: y = sum of 2^(m_i - m) o_i / sum of 2^(m_i - m) l_i. They are read past
 * L1, which may hold an earlier layer's. */
template <int D, typename T>
__device__ void merge_splits(const attention_call<T> &a, const decode_work &w, decode_partials partials,
                             decode_cluster cluster)
{
    constexpr int N = D / 32;
    int lane = threadIdx.x % 32;
    for (int head = cluster.warp; head < w.n_heads; head += cluster.block_warps) {
        size_t first = (size_t)w.first_split * a.h.n_heads + w.first_head + head;
        float2 ml = make_float2(-INFINITY, 0.0f);
        if (lane < w.n_splits)
            ml = __ldcg(&partials.ml[first + (size_t)lane * a.h.n_heads]);
        merged all = merge_weights(ml.x, ml.y, 32);
        float o[N] = {};
#pragma unroll 4
        for (int i = 0; i < w.n_splits; i++) {
            const float2 *from = (const float2 *)(partials.o + (first + (size_t)i * a.h.n_heads) * D + lane * N);
            float2 o_i[N / 2];
#pragma unroll
            for (int j = 0; j < N / 2; j++)
                o_i[j] = __ldcg(from + j);
            add_scaled(o, __shfl_sync(0xffffffffu, all.weight, i), o_i);
        }
        write_out<D>(a, w, head, o, all.l);
    }
}

/* Merges the states of a work item, which are all in shared memory; the last block to arrive of its row and head group
 * then merges the splits. */
template <int D, typename T>
__device__ __forceinline__ void finish_work(const attention_call<T> &a, const decode_work &w, decode_partials partials,
                                            warp_states states, decode_cluster cluster)
{
    if (w.to == 0)
        return;
    if (cluster.size > 1)
        merge_cluster<D, false>(a, w, partials, states, cluster);
    else
        merge_cluster<D, true>(a, w, partials, states, cluster);
    if (w.n_splits > 1 && arrive_last(a, w, partials, cluster.size, states.is_last))
        merge_splits<D>(a, w, partials, cluster);
}

/* y[row, head] = softmax(q K^T / sqrt(head_dim)) V for the rows of decode splits; a.scale includes log2(e), as powers
 * are of 2. A warp has every cluster.warps-th tile of its cluster's work items. Grid: the clusters that
 * schedule_attention() reckoned with, of cluster_size blocks each; the warps of a cluster (decode_cluster) are a power
 * of 2. Shared memory: decode_shared_bytes(D, F8, warps of the block, min(group, HEADS_PER_ITEM)). */
template <typename T, int D, bool F8>
static __global__ void __launch_bounds__(DECODE_MAX_WARPS * 32)
    decode_kernel(attention_call<T> a, decode_partials partials, int cluster_size)
{
    constexpr int STAGE = decode_stage_bytes(D, F8), RING = decode_ring_bytes(D, F8);
    extern __shared__ __align__(1024) char shared[];
    decode_cluster cluster = cluster_of_block(cluster_size);
    warp_states states =
        warp_states_at<D>(shared + cluster.block_warps * RING, cluster.block_warps, min(a.group, (int)HEADS_PER_ITEM));
    unsigned ring = shared_address(shared) + cluster.warp * RING, stage = ring;

    decode_cursor c = cursor_begin(a, cluster);
#pragma unroll 1
    for (int i = 0; i < RING; i += STAGE) {
        if (c.item < c.n_items && c.tile >= c.fresh_tile)
            wait_for_previous();
        copy_next_tile<D, F8>(ring + i, &c, a, cluster);
    }
    let_next_start();
    wait_for_previous(); /* earlier kernels write the queries */

    decode_work w = {};
    decode_state<D> st;
    int item = a.s.first_work[cluster.index], next_item = c.n_items;
    if (item < c.n_items) {
        next_item = a.s.next_work[item];
        w = work_at(a, item, a.s.decode[split_number_at(a, item)]);
        load_queries<D, F8>(&st, a, w);
    }
    decode_arrive(cluster);
    while (item < c.n_items) {
        clear_state(&st);
        for (int tile = first_tile(w, cluster); tile * TILE < w.to; tile += cluster.warps) {
            copy_wait<RING / STAGE - 1>();
            __syncwarp();
            if constexpr (F8)
                attend_f8_tile<D, T>(&st, stage, tile * TILE, w, a.scale);
            else
                attend_tile<D, T>(&st, stage, tile * TILE, w, a.scale);
            __syncwarp();
            copy_next_tile<D, F8>(stage, &c, a, cluster);
            stage = stage + STAGE < ring + RING ? stage + STAGE : ring;
        }
        decode_wait(cluster); /* the cluster has read the previous work item's states */
        store_state<D, F8>(&st, states, cluster.warp, w.n_heads);
        decode_arrive(cluster);
        decode_work done = w;
        item = next_item;
        if (item < c.n_items) { /* load the next queries while `done` is being finished */
            next_item = a.s.next_work[item];
            w = work_at(a, item, a.s.decode[split_number_at(a, item)]);
            load_queries<D, F8>(&st, a, w);
        }
        decode_wait(cluster);
        finish_work<D>(a, done, partials, states, cluster);
        decode_arrive(cluster);
    }
    decode_wait(cluster); /* no block exits while others of the cluster may read its shared memory */
}

#endif
