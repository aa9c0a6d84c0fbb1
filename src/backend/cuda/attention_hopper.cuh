/* attention_hopper.cuh - attention of prefills by wgmma and TMA (sm_90a)
 *
 *   producer    one warp: copies a work item's queries, then its keys and values tile by tile, into rings
 *   consumers   two or three warpgroups of 64 query rows: S = Q K^T, online softmax in registers, O += P V
 *
 * Persistent and warp-specialised, as in FlashAttention-3. A work item is one prefill_tile and query head. Blocks claim
 * work items from a counter until none is left, and the producer loads the next one's queries and keys while the
 * consumers finish the last. A work item's tiles are taken from the last to the first: those on the diagonal, which
 * need the causal mask, come first.
 *
 * Softmax takes nearly as long as the products, so they must overlap: a warpgroup starts Q K^T of the next tile, then
 * P V of this one, and computes the next softmax during P V (FlashAttention-3's intra-warpgroup pipelining), while the
 * tensor cores also work for the other warpgroups. Its ping-pong scheduling of warpgroups was no faster.
 *
 * The layout of a tile in shared memory is [N / 8][D / 64][8 positions][64 numbers], 128-byte swizzle. */
#ifndef PUNICA_BACKEND_CUDA_ATTENTION_HOPPER_CUH
#define PUNICA_BACKEND_CUDA_ATTENTION_HOPPER_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/hopper.cuh"

/* For heads of 128 a third stage of keys and values would not fit beside two of queries. */
enum { Q_STAGES = 2, KV_STAGES = 2 };

/* Consumer warpgroups, of 64 rows each, and positions in a tile of keys: as many as fit in the registers. From prompts
 * of 4096 on, tiles of 128 to 176 with two warpgroups or three were within 3 % of each other
 * (docs/lab/attention.md). */
static __host__ __device__ constexpr int hopper_warpgroups(int head_dim)
{
    return head_dim == 64 ? 3 : 2;
}

static __host__ __device__ constexpr int hopper_kv_tile(int head_dim)
{
    return head_dim == 64 ? 112 : 128;
}

static __host__ __device__ constexpr size_t hopper_shared_bytes(int head_dim)
{
    return (size_t)(Q_STAGES * 64 * hopper_warpgroups(head_dim) + 2 * KV_STAGES * hopper_kv_tile(head_dim)) *
               (size_t)head_dim * 2 +
           256;
}

/* The counter that blocks claim work items from; zeros between launches. */
typedef struct { int taken, finished; } work_counter;

/* heads_in_l2: query heads whose work items are adjacent, a section (cuda_attention.cu). */
typedef struct {
    work_counter *work;
    int heads_in_l2;
} hopper_plan;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef struct {
    int row, n_rows, head; /* n_rows 0: there are no more */
    int first, end;        /* positions of the rows: [first, end) */
    int pages;             /* page_indptr of the sequence */
} hopper_work;

template <int D> struct hopper_shared {
    static constexpr int N = hopper_kv_tile(D), GROUPS = hopper_warpgroups(D);
    char q[Q_STAGES][64 * GROUPS * D * 2]; /* [D / 64][64 * GROUPS][64] */
    char k[KV_STAGES][N * D * 2], v[KV_STAGES][N * D * 2];
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
    uint64_t k_full[KV_STAGES], k_empty[KV_STAGES], v_full[KV_STAGES], v_empty[KV_STAGES];
    hopper_work work[Q_STAGES]; /* the work item whose queries a stage holds */
};

/* Starts a TMA copy of 16 positions' keys or values, from this group of 8 positions on. */
static __device__ __forceinline__ void tensor_copy_kv(void *to, const CUtensorMap *map, int group, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %2, "
                 "%3}], [%4];"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(0), "r"(group), "r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void tensor_copy_queries(void *to, const CUtensorMap *map, int row, int box,
                                                           uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(shared_address(to)),
        "l"(map), "r"(0), "r"(row), "r"(box), "r"(shared_address(barrier))
        : "memory");
}

/* Tiles of a work item: [from, to). */
typedef struct { int from, to; } tile_range;

template <int N> static __device__ __forceinline__ tile_range tile_range_of(const hopper_work &w, int window)
{
    return {first_seen(w.first, window) / N, (w.end + N - 1) / N};
}

/* Claims the next work item, the same in all lanes of the producer; n_rows is 0 when there are no more. The order is
 * section by section, query tile by query tile (those that see most first), head by head. */
template <typename T>
static __device__ __forceinline__ hopper_work claim_work(const attention_call<T> &a, const hopper_plan &plan)
{
    int n_tiles = a.s.n[COUNT_PREFILL_TILES], i = 0;
    if ((threadIdx.x & 31) == 0)
        i = atomicAdd(&plan.work->taken, 1);
    i = __shfl_sync(0xffffffffu, i, 0);
    hopper_work w = {};
    if (i >= n_tiles * a.h.n_heads)
        return w;
    int section = i / (n_tiles * plan.heads_in_l2), within = i - section * n_tiles * plan.heads_in_l2,
        tile = within / plan.heads_in_l2;
    prefill_tile it = a.s.prefill[tile];
    w.row = it.row;
    w.n_rows = it.n_rows;
    w.head = section * plan.heads_in_l2 + within - tile * plan.heads_in_l2;
    w.first = a.s.position[it.row];
    w.end = w.first + it.n_rows;
    w.pages = a.s.page_indptr[it.seq];
    return w;
}

enum { OUTSIDE = -64 }; /* a group before the KvCache, out of bounds: TMA fills in zeros */

/* Returns in lane i where the i-th 16 positions of a tile have their keys, in groups of 8 positions from a.kv on;
 * OUTSIDE where there are none. */
template <int D, int N, typename T>
static __device__ __forceinline__ int keys_of_lane(const attention_call<T> &a, const hopper_work &w, int tile)
{
    int lane = threadIdx.x & 31, at = tile * (N / TILE) + lane;
    if (lane >= N / TILE || at * TILE >= w.end)
        return OUTSIDE;
    int page = a.s.page[w.pages + quotient_by_magic(at, a.page_magic)], page_groups = (int)(a.page_stride / (16 * D));
    return page * page_groups + w.head / a.group * (a.page_len / 8) + tile_in_page(a, at) * (TILE / 8);
}

/* Waits until a stage is empty and starts the copies of a tile into it. at: of each lane, from keys_of_lane(). */
template <int D, int N>
static __device__ __forceinline__ void load_tile(char (*to)[N * D * 2], const CUtensorMap *map, int at, uint64_t *full,
                                                 uint64_t *empty, pipeline_state &place)
{
    int lane = threadIdx.x & 31, stage = place.stage;
    mbarrier_wait(&empty[stage], place.parity ^ 1);
    if (lane == 0)
        mbarrier_arrive_expect_tx(&full[stage], N * D * 2);
#pragma unroll
    for (int i = 0; i < N / TILE; i++) {
        int group = __shfl_sync(0xffffffffu, at, i);
        if (lane == 0)
            tensor_copy_kv(to[stage] + i * TILE * D * 2, map, group, &full[stage]);
    }
    pipeline_advance(place, KV_STAGES);
}

/* Hands a work item to the consumers and starts the copy of its queries. n_rows 0: tells them to end. */
template <int D>
static __device__ __forceinline__ void publish_work(hopper_shared<D> &m, const CUtensorMap *map, const hopper_work &w,
                                                    pipeline_state &place)
{
    mbarrier_wait(&m.q_empty[place.stage], place.parity ^ 1);
    if ((threadIdx.x & 31) == 0) {
        m.work[place.stage] = w;
        if (w.n_rows > 0) {
            mbarrier_arrive_expect_tx(&m.q_full[place.stage], (int)sizeof m.q[0]);
            tensor_copy_queries(m.q[place.stage], map, w.row, w.head * (D / 64), &m.q_full[place.stage]);
        } else
            mbarrier_arrive(&m.q_full[place.stage]);
    }
    pipeline_advance(place, Q_STAGES);
}

/* The producer: one warp. Tiles are loaded in the order in which consumers use them: the keys of the next one before
 * the values of this one. The next work item is claimed while both rings are full. */
template <int D, typename T>
static __device__ void produce(const attention_call<T> &a, const hopper_plan &plan, const CUtensorMap *q_map,
                               const CUtensorMap *kv_map, hopper_shared<D> &m)
{
    constexpr int N = hopper_kv_tile(D);
    int to_values = (int)(a.values_offset / (16 * D));
    pipeline_state q = {0, 0}, k = {0, 0}, v = {0, 0};
    hopper_work w = claim_work(a, plan);
    while (w.n_rows > 0) {
        tile_range tiles = tile_range_of<N>(w, a.window);
        hopper_work next;
        int at = keys_of_lane<D, N>(a, w, tiles.to - 1);
        publish_work(m, q_map, w, q);
        load_tile<D, N>(m.k, kv_map, at, m.k_full, m.k_empty, k);
        for (int tile = tiles.to - 1; tile >= tiles.from; tile--) {
            int values = at == OUTSIDE ? OUTSIDE : at + to_values;
            if (tile > tiles.from) {
                at = keys_of_lane<D, N>(a, w, tile - 1);
                load_tile<D, N>(m.k, kv_map, at, m.k_full, m.k_empty, k);
            }
            load_tile<D, N>(m.v, kv_map, values, m.v_full, m.v_empty, v);
            if (tile == tiles.to - 1)
                next = claim_work(a, plan);
        }
        w = next;
    }
    publish_work(m, q_map, w, q);
    if ((threadIdx.x & 31) == 0 && atomicAdd(&plan.work->finished, 1) == (int)gridDim.x - 1)
        *plan.work = {0, 0}; /* all blocks have claimed their last */
}

/* Keeps the compiler from moving accesses of these registers, which an asynchronous product writes, across this
 * point. */
template <int N> static __device__ __forceinline__ void fence_registers(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

/* The online-softmax state of a warp's 16 rows; lane 4 * g + t has rows g and g + 8 (mma.cuh). l is only this lane's
 * part of the sum. */
template <int D, int N> struct hopper_state {
    float o[D / 2];        /* 4 numbers for each 8 columns */
    unsigned p[N / 16][4]; /* weights, as the A operands of N / 16 products */
    float m[2], l[2];
};

/* Starts s [64, N] = Q K^T. */
template <typename T, int D, int N, int GROUPS>
static __device__ __forceinline__ void begin_scores(float (&s)[N / 2], uint64_t q, uint64_t k)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int q_at = i / 4 * (64 * GROUPS * 128 / 16) + i % 4 * 2, k_at = i / 4 * (1024 / 16) + i % 4 * 2;
        if (i == 0)
            wgmma<T, N, false>(s, q + q_at, k + k_at);
        else
            wgmma<T, N>(s, q + q_at, k + k_at);
    }
    wgmma_commit();
}

/* Starts o [64, D] += P V. */
template <typename T, int D, int N>
static __device__ __forceinline__ void begin_values(hopper_state<D, N> &st, uint64_t v)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < N / 16; i++)
        wgmma_a_t<T, D>(st.o, st.p[i], v + i * (16 * D * 2 / 16));
    wgmma_commit();
}

/* Masks the positions that a row does not attend to: later ones, and those before its window. */
template <int N>
static __device__ __forceinline__ void mask_scores(float (&s)[N / 2], int position, int row_position, int window)
{
    int t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int key = position + i / 4 * 8 + 2 * t + (i & 1), query = row_position + (i & 2 ? 8 : 0);
        if (key > query || key < first_seen(query, window))
            s[i] = -INFINITY;
    }
}

/* The online-softmax update: scores become weights; by: the factors that rescale o (l is rescaled here). While a row
 * has seen only masked positions its maximum is -inf; 0 is subtracted in its place. */
template <int D, int N>
static __device__ __forceinline__ void online_softmax(hopper_state<D, N> &st, float (&s)[N / 2], float (&by)[2],
                                                      float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = st.m[r];
#pragma unroll
        for (int i = 2 * r; i < N / 2; i += 4)
            top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0.0f : top * scale, sum = 0.0f;
        by[r] = exp2_fast(st.m[r] * scale - base);
        st.m[r] = top;
#pragma unroll
        for (int i = 2 * r; i < N / 2; i += 4) {
            s[i] = exp2_fast(s[i] * scale - base);
            s[i + 1] = exp2_fast(s[i + 1] * scale - base);
            sum += s[i] + s[i + 1];
        }
        st.l[r] = st.l[r] * by[r] + sum;
    }
}

template <typename T, int D, int N>
static __device__ __forceinline__ void pack_weights(hopper_state<D, N> &st, const float (&s)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        st.p[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <int D, int N>
static __device__ __forceinline__ void rescale_output(hopper_state<D, N> &st, const float (&by)[2])
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        st.o[i] *= by[i >> 1 & 1];
}

/* Zeroes the values of positions [from, to) of a tile, which lie past the work item's end: their weight is 0, but they
 * may hold Inf or NaN, and 0 times that is NaN. Each warpgroup does it by itself, so that it need not wait for the
 * others. */
template <int D> static __device__ void zero_values(char *v, int from, int to, int group)
{
    constexpr int ROW = D * 2 / 16; /* 16-byte pieces */
    for (int i = threadIdx.x & 127; i < (to - from) * ROW; i += 128) {
        int row = from + i / ROW, piece = i % ROW;
        *(uint4 *)(v + row / 8 * 8 * D * 2 + piece / 8 * 1024 + row % 8 * 128 + piece % 8 * 16) =
            make_uint4(0, 0, 0, 0);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" : : "r"(1 + group) : "memory"); /* the warpgroup */
}

/* Transposes a 4 x 4 matrix of words over the four lanes of a quad: lane i receives word i of each. */
static __device__ __forceinline__ void transpose_quad(unsigned (&x)[4])
{
    int t = threadIdx.x & 3;
#pragma unroll
    for (int by = 1; by <= 2; by *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & by)) {
                unsigned &keep = x[i], &other = x[i | by], sent = t & by ? keep : other;
                unsigned got = __shfl_xor_sync(0xffffffffu, sent, by);
                (t & by ? keep : other) = got;
            }
}

/* Writes y of a warp's rows, o / l. */
template <int D, int N, typename T>
static __device__ __forceinline__ void write_rows(const hopper_state<D, N> &st, const attention_call<T> &a,
                                                  const hopper_work &w, int group)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, warp = threadIdx.x >> 5 & 3;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = 64 * group + 16 * warp + g + 8 * r;
        float sum = st.l[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        float by = 1.0f / sum;
        T *y = a.y + ((size_t)(w.row + row) * a.h.n_heads + w.head) * D + 8 * t;
#pragma unroll
        for (int i = 0; i < D / 8; i += 4) {
            unsigned x[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = pack<T>(st.o[4 * (i + j) + 2 * r] * by, st.o[4 * (i + j) + 2 * r + 1] * by);
            transpose_quad(x);
            if (row < w.n_rows)
                *(uint4 *)(y + 8 * i) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

/* Releases a stage, with which this warp is done. */
static __device__ __forceinline__ void release(uint64_t *empty, pipeline_state &place, int n_stages)
{
    if ((threadIdx.x & 31) == 0)
        mbarrier_arrive(&empty[place.stage]);
    pipeline_advance(place, n_stages);
}

/* A consumer warpgroup: rows 64 * group to 64 * group + 63 of each work item. */
template <int D, typename T> static __device__ void consume(const attention_call<T> &a, hopper_shared<D> &m, int group)
{
    constexpr int N = hopper_kv_tile(D), GROUPS = hopper_warpgroups(D);
    constexpr int EIGHT = 8 * D * 2;                                             /* bytes of 8 positions */
    constexpr int KV_STAGE = N * D * 2 / 16, Q_STAGE = 64 * GROUPS * D * 2 / 16; /* in units of descriptors */
    uint64_t q_at = matrix_descriptor(m.q[0] + group * 64 * 128, 16, 1024);
    uint64_t k_at = matrix_descriptor(m.k[0], 16, EIGHT), v_at = matrix_descriptor(m.v[0], 1024, EIGHT);
    pipeline_state q = {0, 0}, k = {0, 0}, v = {0, 0};
    for (;;) {
        mbarrier_wait(&m.q_full[q.stage], q.parity);
        hopper_work w = m.work[q.stage];
        if (w.n_rows == 0)
            break;
        uint64_t queries = q_at + q.stage * Q_STAGE;
        tile_range tiles = tile_range_of<N>(w, a.window);
        int tile = tiles.to - 1, first = w.first + 64 * group, seen_by_last = first_seen(first + 63, a.window);
        int row_position = first + ((int)threadIdx.x >> 5 & 3) * 16 + ((int)threadIdx.x & 31) / 4;
        hopper_state<D, N> st;
        float s[N / 2], by[2];
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            st.o[i] = 0.0f;
        st.m[0] = st.m[1] = -INFINITY;
        st.l[0] = st.l[1] = 0.0f;

        mbarrier_wait(&m.k_full[k.stage], k.parity);
        begin_scores<T, D, N, GROUPS>(s, queries, k_at + k.stage * KV_STAGE);
        wgmma_wait<0>();
        fence_registers(s);
        release(m.k_empty, k, KV_STAGES);
        mask_scores<N>(s, tile * N, row_position, a.window);
        online_softmax(st, s, by, a.scale);
        pack_weights<T>(st, s);
        if (w.end % TILE != 0) {
            mbarrier_wait(&m.v_full[v.stage], v.parity);
            zero_values<D>(m.v[v.stage], w.end - tile * N, (w.end + TILE - 1) / TILE * TILE - tile * N, group);
        }
        for (tile--; tile >= tiles.from; tile--) {
            mbarrier_wait(&m.k_full[k.stage], k.parity);
            begin_scores<T, D, N, GROUPS>(s, queries, k_at + k.stage * KV_STAGE);
            mbarrier_wait(&m.v_full[v.stage], v.parity);
            begin_values<T>(st, v_at + v.stage * KV_STAGE);
            wgmma_wait<1>();
            fence_registers(s);
            release(m.k_empty, k, KV_STAGES);
            if ((tile + 1) * N > first + 1 || tile * N < seen_by_last)
                mask_scores<N>(s, tile * N, row_position, a.window);
            online_softmax(st, s, by, a.scale);
            fence_registers(s); /* keep the softmax before the wait */
            wgmma_wait<0>();
            fence_registers(st.o);
            release(m.v_empty, v, KV_STAGES);
            if (__any_sync(0xffffffffu, by[0] != 1.0f || by[1] != 1.0f))
                rescale_output(st, by);
            pack_weights<T>(st, s);
        }
        release(m.q_empty, q, Q_STAGES);
        mbarrier_wait(&m.v_full[v.stage], v.parity);
        begin_values<T>(st, v_at + v.stage * KV_STAGE);
        wgmma_wait<0>();
        fence_registers(st.o);
        release(m.v_empty, v, KV_STAGES);
        write_rows(st, a, w, group);
    }
}

#endif

/* y[row, head] = softmax(scale q K^T) V for the rows of prefills, in work items of 64 rows for each consumer warpgroup.
 * Grid: any; best as many blocks as run at once, one to an SM. Block: the consumers and a warpgroup more, of which one
 * warp is the producer; setmaxnreg gives most registers to the consumers. Shared memory: hopper_shared_bytes(D). */
template <typename T, int D>
static __global__ void __launch_bounds__(hopper_warpgroups(D) * 128 + 128, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap kv_map,
                  attention_call<T> a, hopper_plan plan)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int GROUPS = hopper_warpgroups(D);
    extern __shared__ __align__(1024) char memory[];
    hopper_shared<D> &m = *(hopper_shared<D> *)memory;
    static_assert(sizeof m <= hopper_shared_bytes(D), "shared memory");
    int warp = warp_index();
    if (threadIdx.x == 0) {
        for (int i = 0; i < Q_STAGES; i++) {
            mbarrier_init(&m.q_full[i], 1);
            mbarrier_init(&m.q_empty[i], 4 * GROUPS);
        }
        for (int i = 0; i < KV_STAGES; i++) {
            mbarrier_init(&m.k_full[i], 1);
            mbarrier_init(&m.v_full[i], 1);
            mbarrier_init(&m.k_empty[i], 4 * GROUPS);
            mbarrier_init(&m.v_empty[i], 4 * GROUPS);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    wait_for_previous();
    let_next_start();
    if (warp >= 4 * GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(GROUPS == 2 ? 40 : 32));
        if (warp == 4 * GROUPS)
            produce(a, plan, &q_map, &kv_map, m);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(GROUPS == 2 ? 232 : 160));
        consume(a, m, warp / 4);
    }
#endif
}

#endif
