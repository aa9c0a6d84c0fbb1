/* sgmv_expand.cuh - y[row, c] += sum over r of v[row, r] B[r, c] */
#ifndef PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH
#define PUNICA_BACKEND_CUDA_SGMV_EXPAND_CUH

#include "backend/cuda/sgmv.cuh"

enum {
    EXPAND_CHUNK = 512,         /* columns in a stage at most; a warp has 64 */
    EXPAND_V = 4 * SGMV_GROUP + 16,     /* bytes from row to row of v in a stage */
};

/* Bytes from row to row of B and y. Like the one of v, they are such that a warp's reads meet no bank twice. */
static __device__ __forceinline__ int expand_b(int chunk) { return 2 * chunk + 32; }
static __device__ __forceinline__ int expand_y(int chunk) { return 2 * chunk + 16; }

/* The columns of y: part i has out[i] of them, from col[i]. */
typedef struct { int n, out[3], col[3], cols; } expand_columns;

/* One of three without an address: arrays in registers cannot be indexed. */
static __device__ __forceinline__ int pick(const int (&x)[3], int i)
{
    return i == 0 ? x[0] : i == 1 ? x[1] : x[2];
}

/* What a stage holds: B of 16 ranks and n_cols columns of one part, with the v of a tile's rows; with the
 * last ranks, their y too. */
typedef struct {
    int n_ranks;                /* 0: the end */
    int row, n_rows, v_col;
    int y_col, n_cols;
    bool first, last;           /* ranks of these columns */
} expand_stage;

typedef struct {
    sgmv_barriers barrier;
    expand_stage stage[SGMV_STAGES];
    int n_stages, chunk;        /* these are known once the first stage is full; chunk: columns in a stage */
    int y_at, v_at, stage_bytes;        /* where y and v begin in a stage */
} expand_shared;

/* A tile has a unit for each chunk of columns and each group of ranks. */
struct expand_units {
    expand_columns c;
    int chunk;
    __device__ int operator()(const lora_entry *e) const
    {
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 3; i++)
            sum += i < c.n ? (c.out[i] + chunk - 1) / chunk * groups_of(e->rank[i]) : 0;
        return sum;
    }
};

/* The copying warp's state, and its operands. */
template <typename T> struct expand_copier {
    expand_shared *sh;
    char *ring;
    const T *y;
    const float *v;
    int y_cols, v_cols;
    ring_place at;
    int n_filled;               /* stages, up to n_stages */
    bool waited;                /* for the kernel before */
};

template <typename T> static __device__ __forceinline__ void expand_copy_rows(const expand_copier<T> &c, int stage)
{
    const expand_stage &g = c.sh->stage[stage];
    uint64_t *full = &c.sh->barrier.full[stage];
    char *at = c.ring + stage * c.sh->stage_bytes, *v = at + c.sh->v_at;
    if (g.last)
        copy_rows(at + c.sh->y_at, expand_y(c.sh->chunk), c.y + (size_t)g.row * c.y_cols + g.y_col, c.y_cols * sizeof(T), g.n_rows,
                  g.n_cols * (int)sizeof(T), full);
    for (int i = lane_id(); i < g.n_rows * SGMV_GROUP; i += 32) {
        int row = i / SGMV_GROUP, r = i % SGMV_GROUP;
        if (r < g.n_ranks)
            copy_word(v + row * EXPAND_V + 4 * r, c.v + (size_t)(g.row + row) * c.v_cols + g.v_col + r);
    }
    queued_words(full);
}

/* y and v of all stages filled so far: from here on they are there. */
template <typename T> static __device__ __forceinline__ void expand_wait(expand_copier<T> &c)
{
    wait_for_previous();
    c.waited = true;
    for (int i = 0; i < c.n_filled; i++)
        expand_copy_rows(c, i);
}

template <typename T> static __device__ __forceinline__ void expand_claim(expand_copier<T> &c)
{
    if (c.n_filled < c.at.n_stages) {
        c.n_filled++;
        return;
    }
    if (!c.waited)
        expand_wait(c);
    barrier_wait(&c.sh->barrier.empty[c.at.stage], c.at.phase ^ 1);
}

template <typename T> static __device__ __forceinline__ void expand_fill(expand_copier<T> &c, const expand_stage &g, const T *b, int out)
{
    expand_claim(c);
    uint64_t *full = &c.sh->barrier.full[c.at.stage];
    if (lane_id() == 0)
        c.sh->stage[c.at.stage] = g;
    announce(full, (g.n_ranks + (g.last ? g.n_rows : 0)) * g.n_cols * (int)sizeof(T));
    copy_rows(c.ring + c.at.stage * c.sh->stage_bytes, expand_b(c.sh->chunk), b, out * sizeof(T), g.n_ranks,
              g.n_cols * (int)sizeof(T), full);
    if (c.waited)
        expand_copy_rows(c, c.at.stage);
    ring_next(c.at);
}

/* All columns whose first unit is in the share [begin, end). */
template <typename T>
static __device__ __forceinline__ void expand_copy(expand_copier<T> &c, const step &s, int n_tiles, int site, const expand_units &units,
                                   int begin, int end)
{
    work_place p = find_work(s, n_tiles, site, units, begin);
    for (int at = p.before; p.tile < n_tiles && at < end; p.tile++) {
        sgmv_tile t = s.tile[p.tile];
        const lora_entry *e = t.table + site;
        for (int part = 0; part < units.c.n; part++) {
            int rank = e->rank[part], groups = groups_of(rank), out = pick(units.c.out, part), v_col = rank_offset(e, part);
            if (rank == 0)
                continue;
            int n_chunks = (out + units.chunk - 1) / units.chunk, i = at < begin ? (begin - at + groups - 1) / groups : 0;
            for (; i < n_chunks && at + i * groups < end; i++)
                for (int from = 0; from < rank; from += SGMV_GROUP) {
                    int col = i * units.chunk;
                    expand_stage g = {min(SGMV_GROUP, rank - from), t.row, t.n_rows, v_col + from,
                                      pick(units.c.col, part) + col, min(units.chunk, out - col), from == 0,
                                      from + SGMV_GROUP >= rank};
                    expand_fill(c, g, (const T *)e->b[part] + (size_t)from * out + col, out);
                }
            at += n_chunks * groups;
        }
    }
    if (!c.waited)
        expand_wait(c);
}

/* After the last stage: one that says so. */
template <typename T> static __device__ __forceinline__ void expand_copy_end(expand_copier<T> &c)
{
    expand_claim(c);
    if (lane_id() == 0)
        c.sh->stage[c.at.stage].n_ranks = 0;
    announce(&c.sh->barrier.full[c.at.stage], 0);
    queued_words(&c.sh->barrier.full[c.at.stage]);
}

/* v as the left operand, each number as the sum of two of T: lane 4g + t has row g and ranks t, t + 4, t + 8,
 * t + 12, the greater terms in row g of the operand and the lesser in row g + 8. */
template <typename T>
static __device__ __forceinline__ void expand_load_v(unsigned (&a)[4], const char *v, int n_rows, int n_ranks)
{
    int g = lane_id() >> 2, t = lane_id() & 3;
    const float *from = (const float *)(v + g * EXPAND_V) + t;
    float x[4], rest[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x[j] = g < n_rows && t + 4 * j < n_ranks ? from[4 * j] : 0.0f;
        rest[j] = x[j] - to_float(from_float<T>(x[j]));
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        a[2 * j] = pack<T>(x[2 * j], x[2 * j + 1]);
        a[2 * j + 1] = pack<T>(rest[2 * j], rest[2 * j + 1]);
    }
}

/* d[i] += v B for 64 columns, of which 8n + i is column n of product i: lane 4g + t has columns 8g to 8g + 7
 * of its four ranks. Ranks that are not there count as zero on both sides. */
template <typename T>
static __device__ __forceinline__ void expand_multiply(float (&d)[8][4], const unsigned (&a)[4], const char *b, int stride,
                                                       int n_ranks)
{
    int g = lane_id() >> 2, t = lane_id() & 3;
    union { uint4 whole; unsigned at[4]; } row[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint4 none = {};
        row[j].whole = t + 4 * j < n_ranks ? *(const uint4 *)(b + (t + 4 * j) * stride + 16 * g) : none;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned halves = i & 1 ? 0x7632 : 0x5410;
        unsigned pairs[2] = {__byte_perm(row[0].at[i >> 1], row[1].at[i >> 1], halves),
                             __byte_perm(row[2].at[i >> 1], row[3].at[i >> 1], halves)};
        mma<T>(d[i], a, pairs);
    }
}

/* y[:, col..] = from + d for a warp's 64 columns: lane 4g + t has columns 16t to 16t + 15 of row g. */
template <typename T>
static __device__ __forceinline__ void expand_store(T *y, const T *from, const float (&d)[8][4], int n_cols)
{
    int t = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int c = 16 * t + 8 * i;
        if (c >= n_cols)
            continue;
        float sum[8];
        load_n(sum, from + c);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[j] += d[j][i] + d[j][i + 2];
        store_n(y + c, sum);
    }
}

/* A working warp: 64 columns and 8 rows of each stage, rows 8 to 15 by the upper half of the warps. */
template <typename T> static __device__ __forceinline__ void expand_work(expand_shared *sh, const char *ring, T *y, int y_cols)
{
    ring_place at = {};
    float d[8][4];
    for (;; ring_next(at)) {
        barrier_wait(&sh->barrier.full[at.stage], at.phase);
        at.n_stages = sh->n_stages;
        expand_stage s = sh->stage[at.stage];
        if (s.n_ranks == 0)
            return;
        const char *stage = ring + at.stage * sh->stage_bytes;
        int chunk = sh->chunk, upper = chunk < EXPAND_CHUNK && warp_id() >= SGMV_WARPS / 2;
        int first = 8 * upper, col = 64 * (warp_id() - upper * SGMV_WARPS / 2), row = first + (lane_id() >> 2);
        if (first < s.n_rows && col < s.n_cols) {
            unsigned a[4];
            if (s.first)
                memset(d, 0, sizeof d);
            expand_load_v<T>(a, stage + sh->v_at + first * EXPAND_V, s.n_rows - first, s.n_ranks);
            expand_multiply<T>(d, a, stage + 2 * col, expand_b(chunk), s.n_ranks);
            if (s.last && row < s.n_rows)
                expand_store(y + (size_t)(s.row + row) * y_cols + s.y_col + col,
                             (const T *)(stage + sh->y_at + row * expand_y(chunk)) + col, d, s.n_cols - col);
        }
        __syncwarp();
        if (lane_id() == 0)
            barrier_arrive(&sh->barrier.empty[at.stage]);
    }
}

/* A block owns a share of the columns of all tiles, counted by ranks. When there is little to do, stages are
 * narrower, so that more blocks have some. Shared memory: SGMV_RING, and sizeof(expand_shared) (384 bytes). */
template <typename T>
static __global__ void __launch_bounds__(SGMV_THREADS, 2)
expand_tiles(step s, int site, expand_columns c, T *y, const float *v, int v_cols)
{
    extern __shared__ __align__(128) char ring[];
    __shared__ expand_shared sh;
    let_next_start();
    set_barriers(&sh.barrier, WORDS_ARRIVALS);
    if (warp_id() < SGMV_WARPS) {
        wait_for_previous();
        expand_work(&sh, ring, y, c.cols);
        return;
    }
    int n_tiles = s.n[COUNT_TILES], blocks = (int)gridDim.x;
    expand_units units = {c, EXPAND_CHUNK};
    work_sum work = sum_work(s, n_tiles, site, units);
    int total = work.units;
    while (units.chunk > 64 && (2 * total <= blocks || (work.rows > 8 && units.chunk == EXPAND_CHUNK))) {
        units.chunk /= 2;
        total *= 2;
    }
    if (units.chunk < EXPAND_CHUNK)
        work = sum_work(s, n_tiles, site, units);
    int y_at = SGMV_GROUP * expand_b(units.chunk), v_at = y_at + work.rows * expand_y(units.chunk);
    int stage_bytes = v_at + work.rows * EXPAND_V, n_stages = min((int)SGMV_STAGES, SGMV_RING / stage_bytes);
    if (lane_id() == 0) {
        sh.n_stages = n_stages;
        sh.chunk = units.chunk;
        sh.y_at = y_at;
        sh.v_at = v_at;
        sh.stage_bytes = stage_bytes;
    }
    __syncwarp();
    expand_copier<T> copier = {&sh, ring, y, v, c.cols, v_cols, {0, n_stages, 0}};
    expand_copy(copier, s, n_tiles, site, units, share_begin(work.units, (int)blockIdx.x, blocks),
                share_begin(work.units, (int)blockIdx.x + 1, blocks));
    expand_copy_end(copier);
}

#endif
