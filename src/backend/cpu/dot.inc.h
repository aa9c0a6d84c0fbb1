/* dot.inc.h - products with weight matrices: y = x W^T. Part of kernels.c.
 *
 * Weights lie as the model file has them, one row of k elements per output, so an output is the
 * dot product of two contiguous vectors. Its order of summation is this, and no other:
 *
 *   lane l of VLEN takes k = l, l + VLEN, l + 2 VLEN, ... in that order, each by one v_fma; elements
 *   past the end count as zero; then the lanes are summed by the tree of v_sum_each.
 *
 * Everything below only decides what is computed side by side. A tile is mr rows of x by TILE_COLS
 * rows of W: as many accumulators as there are registers. VLEN columns make a group, whose
 * accumulators, the lanes [mr, VLEN], are summed by v_sum_each into whole vectors of y.
 *
 * dot() converts weights as it loads them. gemm() is for many rows: it converts GEMM_COLS x DEPTH
 * weights to float once, into scratch that stays in the L2 cache, and runs all row tiles over it.
 * The lanes of an output wait in scratch between one DEPTH of k and the next. While it computes it
 * prefetches the weights of the next block, so that memory and arithmetic overlap. */

enum {
    TILE_COLS = 4,
    TILE_ROWS = VLEN == 16 ? 6 : 3,     /* 24 accumulators of 32 registers, or 12 of 16 */
    AHEAD_COLS = 8,                     /* how far before its use dot() prefetches a weight */
    DEPTH = 1024,                       /* x tile: 24 KiB of L1; weights: 128 KiB of L2 */
    BLOCK_TILES = 16,                   /* row tiles whose lanes are kept at once: up to 192 KiB */
};

typedef struct { vf v[TILE_ROWS * VLEN]; } group_lanes;     /* [mr, VLEN] vectors */

/* Rows are dealt evenly to the fewest tiles possible: no tile is left with one odd row. */
static int tile_count(int m)
{
    return (m + TILE_ROWS - 1) / TILE_ROWS;
}

static int tile_start(int m, int tile)
{
    return (int)((long)m * tile / tile_count(m));
}

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

INLINE const char *row_at(const void *base, size_t row, size_t stride, dtype t)
{
    return (const char *)base + row * stride * dtype_size(t);
}

/* ahead: from a weight to the one to prefetch. */
typedef struct { const char *row[TILE_COLS]; uintptr_t ahead; } tile_weights;

/* One vector of x against one of each weight row. */
INLINE void fma_row(vf acc[TILE_COLS], vf x, const vf w[TILE_COLS])
{
    V_KEEP(x);
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLS; c++)
        acc[c] = v_fma(x, w[c], acc[c]);
}

INLINE void dot_tile(const int mr, const dtype t, const dot_job *d, const float *x, const tile_weights *tw, vf *lanes)
{
    const size_t size = t == DTYPE_F32 ? 4 : 2, x_stride = d->x_stride;
    const char *const w0 = tw->row[0], *const w1 = tw->row[1], *const w2 = tw->row[2], *const w3 = tw->row[3];
    const uintptr_t ahead = tw->ahead;
    const int k = d->k;
    vf acc[TILE_ROWS][TILE_COLS], wv[TILE_COLS];
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            acc[i][c] = v_zero();
    int j = 0;
    for (; j + VLEN <= k; j += VLEN) {
        const size_t at = (size_t)j * size;
        const char *const w[TILE_COLS] = {w0 + at, w1 + at, w2 + at, w3 + at};
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++) {
            wv[c] = v_load_as(t, w[c]);
            __builtin_prefetch((const void *)((uintptr_t)w[c] + ahead), 0, 2);
        }
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++)
            fma_row(acc[i], v_load(x + (size_t)i * x_stride + j), wv);
    }
    if (j < k) {
        const size_t at = (size_t)j * size;
        const char *const w[TILE_COLS] = {w0 + at, w1 + at, w2 + at, w3 + at};
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            wv[c] = v_load_as_n(t, w[c], k - j);
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++)
            fma_row(acc[i], v_load_n(x + (size_t)i * x_stride + j, k - j), wv);
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            lanes[i * VLEN + c] = acc[i][c];
}

#define DOT_TILE(mr, t)                                                                                     \
    static void dot_tile_##mr##_##t(const dot_job *d, const float *x, const tile_weights *w, vf *lanes)     \
    {                                                                                                       \
        dot_tile(mr, DTYPE_##t, d, x, w, lanes);                                                            \
    }
#define DOT_TILES(mr) DOT_TILE(mr, F32) DOT_TILE(mr, F16) DOT_TILE(mr, BF16)
#define DOT_ROW(mr) {dot_tile_##mr##_F32, dot_tile_##mr##_F16, dot_tile_##mr##_BF16}

DOT_TILES(1)
DOT_TILES(2)
DOT_TILES(3)
#if VLEN == 16
DOT_TILES(4)
DOT_TILES(5)
DOT_TILES(6)
#endif

typedef void dot_tile_fn(const dot_job *, const float *, const tile_weights *, vf *);

static dot_tile_fn *const dot_tiles[TILE_ROWS][3] = {
    DOT_ROW(1), DOT_ROW(2), DOT_ROW(3),
#if VLEN == 16
    DOT_ROW(4), DOT_ROW(5), DOT_ROW(6),
#endif
};

/* Where a gemm tile finds its weights: converted already, or still to be converted. */
typedef enum { FROM_F32 = DTYPE_F32, FROM_F16 = DTYPE_F16, FROM_BF16 = DTYPE_BF16, CONVERTED } weight_source;

/* What a gemm tile works on: elements [k0, k0 + n) of k. */
typedef struct {
    const float *x;                     /* [n / VLEN steps][mr][VLEN] */
    float *w;                           /* [n / VLEN steps][TILE_COLS][VLEN], converted weights */
    const char *raw[TILE_COLS];         /* rows of weights to be converted, from k = 0 */
    vf *lanes;
    int k0, n;
    const char *ahead;                  /* cache lines to prefetch meanwhile, at most one a step */
    int n_ahead;
} gemm_tile_job;

/* One step of k. Weights yet to be converted are left in w for the tiles that follow. */
INLINE void gemm_step(const int mr, const weight_source from, vf acc[TILE_ROWS][TILE_COLS], const float *x, float *w,
                      const char *const raw[TILE_COLS], size_t at, int left)
{
    vf wv[TILE_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLS; c++) {
        if (from == CONVERTED) {
            wv[c] = v_load(w + c * VLEN);
            continue;
        }
        wv[c] = left >= VLEN ? v_load_as((dtype)from, raw[c] + at) : v_load_as_n((dtype)from, raw[c] + at, left);
        v_store(w + c * VLEN, wv[c]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
        fma_row(acc[i], v_load(x + i * VLEN), wv);
}

INLINE void gemm_tile(const int mr, const weight_source from, const gemm_tile_job *t)
{
    const size_t step_bytes = VLEN * (from == FROM_F32 ? 4 : 2);
    const char *const raw[TILE_COLS] = {t->raw[0], t->raw[1], t->raw[2], t->raw[3]}, *ahead = t->ahead;
    const float *x = t->x;
    float *w = t->w;
    size_t at = (size_t)(t->k0 / VLEN) * step_bytes;
    vf acc[TILE_ROWS][TILE_COLS], *lanes = t->lanes;
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            acc[i][c] = t->k0 == 0 ? v_zero() : lanes[i * VLEN + c];
    int n = t->n, n_ahead = t->n_ahead;
    for (; n >= VLEN; n -= VLEN, x += mr * VLEN, w += TILE_COLS * VLEN, at += step_bytes) {
        if (n_ahead-- > 0) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += 64;
        }
        gemm_step(mr, from, acc, x, w, raw, at, VLEN);
    }
    if (n > 0)
        gemm_step(mr, from, acc, x, w, raw, at, n);
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            lanes[i * VLEN + c] = acc[i][c];
}

typedef void gemm_tile_fn(const gemm_tile_job *);

#define GEMM_TILE(mr, from)                                             \
    static void gemm_tile_##mr##_##from(const gemm_tile_job *t)         \
    {                                                                   \
        gemm_tile(mr, from, t);                                         \
    }
#define GEMM_TILES(mr) \
    GEMM_TILE(mr, FROM_F32) GEMM_TILE(mr, FROM_F16) GEMM_TILE(mr, FROM_BF16) GEMM_TILE(mr, CONVERTED)
#define GEMM_ROW(mr) \
    {gemm_tile_##mr##_FROM_F32, gemm_tile_##mr##_FROM_F16, gemm_tile_##mr##_FROM_BF16, gemm_tile_##mr##_CONVERTED}

GEMM_TILES(1)
GEMM_TILES(2)
GEMM_TILES(3)
#if VLEN == 16
GEMM_TILES(4)
GEMM_TILES(5)
GEMM_TILES(6)
#endif

static gemm_tile_fn *const gemm_tiles[TILE_ROWS][CONVERTED + 1] = {
    GEMM_ROW(1), GEMM_ROW(2), GEMM_ROW(3),
#if VLEN == 16
    GEMM_ROW(4), GEMM_ROW(5), GEMM_ROW(6),
#endif
};

/* Rows row0.. and columns col0.. of y from their lanes; n columns of the group are real. */
static void finish_group(const dot_job *d, int row0, int mr, int col0, int n, const vf *lanes)
{
    vf bias = v_zero(), scale = v_set1(d->scale);
    if (d->bias) {
        const char *b = row_at(d->bias, (size_t)col0, 1, d->bias_type);
        bias = n == VLEN ? v_load_as(d->bias_type, b) : v_load_as_n(d->bias_type, b, n);
    }
    for (int i = 0; i < mr; i++) {
        float *y = d->y + (size_t)(row0 + i) * d->y_stride + col0;
        vf v = v_mul(v_sum_each(lanes + i * VLEN), scale);
        if (d->bias)
            v = v_add(v, bias);
        if (n == VLEN)
            v_store(y, v);
        else
            v_store_n(y, v, n);
    }
}

/* The TILE_COLS weight rows from col; past the last one they repeat it and the result is dropped. */
static tile_weights weights_of_tile(const dot_job *d, int col)
{
    tile_weights w;
    for (int c = 0; c < TILE_COLS; c++) {
        int row = col + c < d->n ? col + c : d->n - 1;
        w.row[c] = row_at(d->w, (size_t)row, d->w_stride, d->w_type);
    }
    const void *then = w.row[0];
    if (col + AHEAD_COLS < d->n)
        then = row_at(d->w, (size_t)(col + AHEAD_COLS), d->w_stride, d->w_type);
    else if (d->next)
        then = row_at(d->next, (size_t)(col + AHEAD_COLS - d->n), d->w_stride, d->w_type);
    w.ahead = (uintptr_t)then - (uintptr_t)w.row[0];
    return w;
}

static void dot(const dot_job *d)
{
    group_lanes lanes;
    for (int col = 0; col < d->n; col += VLEN) {
        int n = d->n - col < VLEN ? d->n - col : VLEN;
        if (n < VLEN)
            memset(&lanes, 0, sizeof lanes);
        for (int tile = 0; tile < tile_count(d->m); tile++) {
            int row0 = tile_start(d->m, tile), mr = tile_start(d->m, tile + 1) - row0;
            for (int c = 0; c < n; c += TILE_COLS) {
                tile_weights w = weights_of_tile(d, col + c);
                dot_tiles[mr - 1][d->w_type](d, d->x + (size_t)row0 * d->x_stride, &w, lanes.v + c);
            }
            finish_group(d, row0, mr, col, n, lanes.v);
        }
    }
}

/* packed: tiles one after the other; a tile is [k / VLEN steps][mr rows][VLEN]. */
static void pack(float *packed, const float *x, int m, int k, int tile)
{
    int row0 = tile_start(m, tile), mr = tile_start(m, tile + 1) - row0;
    float *out = packed + (size_t)row0 * (size_t)round_up(k, VLEN);
    for (int j = 0; j < k; j += VLEN)
        for (int i = 0; i < mr; i++, out += VLEN) {
            const float *in = x + (size_t)(row0 + i) * (size_t)k + j;
            v_store(out, j + VLEN <= k ? v_load(in) : v_load_n(in, k - j));
        }
}

static size_t pack_floats(int m, int k)
{
    return (size_t)m * (size_t)round_up(k, VLEN);
}

/* The weights of the next item, prefetched at an even pace through all tiles of this one. */
typedef struct { const char *at, *end; int per_tile; } prefetcher;

static prefetcher prefetch_next(const dot_job *d)
{
    if (!d->next)
        return (prefetcher){0};
    int n_tiles = tile_count(d->m) * ((d->n + TILE_COLS - 1) / TILE_COLS) * ((d->k + DEPTH - 1) / DEPTH);
    size_t bytes = (size_t)d->n * d->w_stride * dtype_size(d->w_type);
    return (prefetcher){d->next, (const char *)d->next + bytes, (int)(bytes / 64) / n_tiles + 1};
}

/* How k is cut: n_blocks of depth, a multiple of VLEN; the last may be shorter. */
static int block_depth(int k)
{
    int n_blocks = (k + DEPTH - 1) / DEPTH;
    return round_up((k + n_blocks - 1) / n_blocks, VLEN);
}

static size_t lanes_floats(int m, int k)
{
    int tiles = tile_count(m) < BLOCK_TILES ? tile_count(m) : BLOCK_TILES;
    int groups = k <= block_depth(k) ? 1 : tiles * (GEMM_COLS / VLEN);
    return (size_t)groups * sizeof(group_lanes) / sizeof(float);
}

static size_t gemm_scratch_floats(int m, int k)
{
    return lanes_floats(m, k) + (size_t)GEMM_COLS * (size_t)block_depth(k);
}

/* Row tiles [tile0, tile1) over elements [k0, k0 + depth) of k. The first tile converts the weights. */
static void gemm_block(const dot_job *d, float *w, group_lanes *lanes, int tile0, int tile1, int k0, int depth,
                       prefetcher *next)
{
    int kp = round_up(d->k, VLEN), depth_p = round_up(depth, VLEN);
    bool last = k0 + depth == d->k, keep = k0 > 0 || !last;
    gemm_tile_job t = {.k0 = k0, .n = depth};
    for (int tile = tile0; tile < tile1; tile++) {
        int row0 = tile_start(d->m, tile), mr = tile_start(d->m, tile + 1) - row0;
        gemm_tile_fn *run = gemm_tiles[mr - 1][tile == tile0 ? (int)d->w_type : CONVERTED];
        t.x = d->x + (size_t)row0 * (size_t)kp + (size_t)k0 * (size_t)mr;
        t.w = w;
        for (int col = 0; col < d->n; col += VLEN) {
            int n = d->n - col < VLEN ? d->n - col : VLEN;
            group_lanes *g = keep ? lanes + (tile - tile0) * (GEMM_COLS / VLEN) + col / VLEN : lanes;
            for (int c = 0; c < n; c += TILE_COLS, t.w += TILE_COLS * depth_p) {
                if (tile == tile0)
                    memcpy(t.raw, weights_of_tile(d, col + c).row, sizeof t.raw);
                t.ahead = next->at;
                t.n_ahead = next->at < next->end ? next->per_tile : 0;
                t.lanes = g->v + c;
                run(&t);
                next->at += 64 * t.n_ahead;
            }
            if (last)
                finish_group(d, row0, mr, col, n, g->v);
        }
    }
}

static void gemm(const dot_job *d, float *scratch)
{
    int depth = block_depth(d->k), n_tiles = tile_count(d->m);
    group_lanes *lanes = (group_lanes *)scratch;
    float *w = scratch + lanes_floats(d->m, d->k);
    prefetcher next = prefetch_next(d);
    for (int tile0 = 0; tile0 < n_tiles; tile0 += BLOCK_TILES) {
        int tile1 = tile0 + BLOCK_TILES < n_tiles ? tile0 + BLOCK_TILES : n_tiles;
        for (int k0 = 0; k0 < d->k; k0 += depth)
            gemm_block(d, w, lanes, tile0, tile1, k0, d->k - k0 < depth ? d->k - k0 : depth, &next);
    }
}
