/* dot.inc.h - products with weight matrices: y = x W^T. Part of kernels.c.
 *
 * Weights lie as the model file has them, one row of k elements per output, so an output is the dot product of two
 * contiguous vectors. Its order of summation is always this:
 *
 *   lane l of VLEN takes k = l, l + VLEN, l + 2 VLEN, ... in that order, each by one v_fma; elements
 *   past the end count as zero; then the lanes are summed by the tree of v_sum_each.
 *
 * The rest only decides what is computed side by side. A tile is mr rows of x by TILE_COLS rows of W: as many
 * accumulators as there are registers. VLEN columns make a group, whose accumulators, the lanes [mr, VLEN], are summed
 * by v_sum_each into whole vectors of y.
 *
 * dot() converts weights as it loads them. gemm() is for many rows: it converts GEMM_COLS x DEPTH weights to float
 * once, into scratch that stays in the L2 cache, and runs all row tiles over it. The first tile of rows converts while
 * it computes. The lanes of an output are kept in scratch between one DEPTH of k and the next. Meanwhile gemm()
 * prefetches the weights of the next item, so that memory and arithmetic overlap. */

enum {
    TILE_COLS = 4,
    TILE_ROWS = VLEN == 16 ? 6 : 3, /* 24 accumulators of 32 registers, or 12 of 16 */
    /* With more rows than TILE_ROWS dot() has 3 columns, so that weights are still read once. */
    DOT_ROWS = VLEN == 16 ? 8 : 4,
    AHEAD_COLS = 8,    /* how far before its use dot() prefetches a weight */
    IN_ORDER_ROWS = 2, /* up to so many rows of x dot() prefetches in order: see prefetch_in_order() */
    LONG_ROW = 4096,   /* bytes: with rows of weights this long it then prefetches the next tile, else the one after */
    DEPTH = 1024,      /* x tile: 24 KiB of L1; weights: 128 KiB of L2 */
    BLOCK_TILES = 16,  /* row tiles whose lanes are kept at once: up to 192 KiB */
};

typedef struct { vf v[DOT_ROWS * VLEN]; } group_lanes; /* [mr, VLEN] vectors */

/* Rows are dealt evenly to as few tiles as possible, so that no tile is left with one odd row. */
static int tile_start(int m, int n_tiles, int tile)
{
    return (int)((long)m * tile / n_tiles);
}

static int gemm_tile_count(int m)
{
    return (m + TILE_ROWS - 1) / TILE_ROWS;
}

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

INLINE const char *row_at(const void *base, size_t row, size_t stride, dtype t)
{
    return (const char *)base + row * stride * dtype_size(t);
}

/* ahead: distance from the tile's first row to the one to prefetch from. scale: of each row's first piece, if weights
 * are F8. */
typedef struct {
    const char *row[TILE_COLS];
    const float *scale[TILE_COLS];
    uintptr_t ahead;
} tile_weights;

/* The scales that v_load_weight takes, for one piece of each row. */
INLINE void piece_scales(const int cols, const dtype t, const dot_job *d, const float *const scale[TILE_COLS],
                         int piece, vf out[TILE_COLS])
{
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++)
        out[c] = t == DTYPE_F8 ? v_set1(256 * scale[c][(size_t)piece * d->w_scale_stride]) : v_zero();
}

/* One vector of x against one of each weight row. */
INLINE void fma_row(const int cols, vf acc[TILE_COLS], vf x, const vf w[TILE_COLS])
{
    V_KEEP(x);
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++)
        acc[c] = v_fma(x, w[c], acc[c]);
}

/* Columns of a dot tile of mr rows. */
INLINE int dot_cols(int mr)
{
    return mr <= TILE_ROWS ? TILE_COLS : 3;
}

/* Prefetches the tile `ahead`, line by line: for the step of VLEN elements from j on, as many bytes as a tile has in a
 * step. Rows adjoin, but for those of a model split among ranks, where some of the lines are another rank's. With one
 * or two rows of x memory is what dot() waits for: on a Zen 5, one row is 12 to 20 % faster in order than with the same
 * elements of four rows side by side, two are 7 %, three the same, more are slower (docs/lab/cpu.md). */
INLINE void prefetch_in_order(const dtype t, const char *first_row, int j, uintptr_t ahead)
{
    const size_t size = dtype_size(t), step_bytes = TILE_COLS * VLEN * size;
#pragma GCC unroll 4
    for (size_t line = 0; line < step_bytes; line += 64)
        __builtin_prefetch((const void *)((uintptr_t)first_row + ahead + (size_t)j * size * TILE_COLS + line), 0, 3);
}

INLINE void dot_tile(const int mr, const dtype t, const dot_job *d, const float *x, const tile_weights *tw, vf *lanes)
{
    const int cols = dot_cols(mr), k = d->k, piece = t == DTYPE_F8 ? d->w_scaled : k;
    const size_t size = dtype_size(t), x_stride = d->x_stride;
    const char *const row[TILE_COLS] = {tw->row[0], tw->row[1], tw->row[2], tw->row[3]};
    const uintptr_t ahead = tw->ahead;
    vf acc[DOT_ROWS][TILE_COLS], wv[TILE_COLS], scale[TILE_COLS];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            acc[i][c] = v_zero();
    int j = 0;
    for (int nth = 0; j + VLEN <= k; nth++) {
        const int end = k - j < piece ? k : j + piece;
        piece_scales(cols, t, d, tw->scale, nth, scale);
        for (; j + VLEN <= end; j += VLEN) {
            if (mr <= IN_ORDER_ROWS)
                prefetch_in_order(t, row[0], j, ahead);
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++) {
                const char *w = row[c] + (size_t)j * size;
                wv[c] = v_load_weight(t, w, scale[c]);
                if (mr > IN_ORDER_ROWS)
                    __builtin_prefetch((const void *)((uintptr_t)w + ahead), 0, 2);
            }
#pragma GCC unroll 8
            for (int i = 0; i < mr; i++)
                fma_row(cols, acc[i], v_load(x + (size_t)i * x_stride + j), wv);
        }
    }
    if (j < k) {
        piece_scales(cols, t, d, tw->scale, j / piece, scale);
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            wv[c] = v_load_weight_n(t, row[c] + (size_t)j * size, scale[c], k - j);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            fma_row(cols, acc[i], v_load_n(x + (size_t)i * x_stride + j, k - j), wv);
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            lanes[i * VLEN + c] = acc[i][c];
}

#define DOT_TILE(mr, t)                                                                                 \
    static void dot_tile_##mr##_##t(const dot_job *d, const float *x, const tile_weights *w, vf *lanes) \
    {                                                                                                   \
        dot_tile(mr, DTYPE_##t, d, x, w, lanes);                                                        \
    }
#define DOT_TILES(mr) DOT_TILE(mr, F32) DOT_TILE(mr, F16) DOT_TILE(mr, BF16) DOT_TILE(mr, F8)
#define DOT_ROW(mr) {dot_tile_##mr##_F32, dot_tile_##mr##_F16, dot_tile_##mr##_BF16, dot_tile_##mr##_F8}

DOT_TILES(1)
DOT_TILES(2)
DOT_TILES(3)
DOT_TILES(4)
#if VLEN == 16
DOT_TILES(5)
DOT_TILES(6)
DOT_TILES(7)
DOT_TILES(8)
#endif

typedef void dot_tile_fn(const dot_job *, const float *, const tile_weights *, vf *);

static dot_tile_fn *const dot_tiles[DOT_ROWS][DTYPE_F8 + 1] = {
    DOT_ROW(1), DOT_ROW(2), DOT_ROW(3), DOT_ROW(4),
#if VLEN == 16
    DOT_ROW(5), DOT_ROW(6), DOT_ROW(7), DOT_ROW(8),
#endif
};

/* Where a gemm tile finds its weights: converted already, or still to be converted. */
typedef enum {
    FROM_F32 = DTYPE_F32,
    FROM_F16 = DTYPE_F16,
    FROM_BF16 = DTYPE_BF16,
    FROM_F8 = DTYPE_F8,
    CONVERTED
} weight_source;

/* What a gemm tile works on: elements [k0, k0 + n) of k. */
typedef struct {
    const float *x;                /* [n / VLEN steps][mr][VLEN] */
    float *w;                      /* [n / VLEN steps][TILE_COLS][VLEN], converted weights */
    const dot_job *d;              /* of the rows below */
    const char *raw[TILE_COLS];    /* rows of weights to be converted, from k = 0 */
    const float *scale[TILE_COLS]; /* as in tile_weights */
    vf *lanes;
    int k0, n;
    const char *ahead; /* cache lines to prefetch meanwhile, at most one a step */
    int n_ahead;
} gemm_tile_job;

/* One step of k. Weights that are not converted yet are converted, and stored in w for the tiles that follow. */
INLINE void gemm_step(const int mr, const weight_source from, vf acc[TILE_ROWS][TILE_COLS], const float *x, float *w,
                      const gemm_tile_job *t, size_t at, int left)
{
    vf wv[TILE_COLS], scale[TILE_COLS];
    if (from == FROM_F8)
        piece_scales(TILE_COLS, DTYPE_F8, t->d, t->scale, (int)at / t->d->w_scaled, scale);
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLS; c++) {
        if (from == CONVERTED) {
            wv[c] = v_load(w + c * VLEN);
            continue;
        }
        wv[c] = left >= VLEN ? v_load_weight((dtype)from, t->raw[c] + at, scale[c])
                             : v_load_weight_n((dtype)from, t->raw[c] + at, scale[c], left);
        v_store(w + c * VLEN, wv[c]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
        fma_row(TILE_COLS, acc[i], v_load(x + i * VLEN), wv);
}

INLINE void gemm_tile(const int mr, const weight_source from, const gemm_tile_job *t)
{
    const size_t step_bytes = from == CONVERTED ? 0 : VLEN * dtype_size((dtype)from);
    const char *ahead = t->ahead;
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
        gemm_step(mr, from, acc, x, w, t, at, VLEN);
    }
    if (n > 0)
        gemm_step(mr, from, acc, x, w, t, at, n);
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLS; c++)
            lanes[i * VLEN + c] = acc[i][c];
}

typedef void gemm_tile_fn(const gemm_tile_job *);

#define GEMM_TILE(mr, from)                                     \
    static void gemm_tile_##mr##_##from(const gemm_tile_job *t) \
    {                                                           \
        gemm_tile(mr, from, t);                                 \
    }
#define GEMM_TILES(mr)      \
    GEMM_TILE(mr, FROM_F32) \
    GEMM_TILE(mr, FROM_F16) GEMM_TILE(mr, FROM_BF16) GEMM_TILE(mr, FROM_F8) GEMM_TILE(mr, CONVERTED)
#define GEMM_ROW(mr)                                                                                             \
    {gemm_tile_##mr##_FROM_F32, gemm_tile_##mr##_FROM_F16, gemm_tile_##mr##_FROM_BF16, gemm_tile_##mr##_FROM_F8, \
     gemm_tile_##mr##_CONVERTED}

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

/* The TILE_COLS weight rows from col on, for mr rows of x, and what to prefetch meanwhile. Past the last row, that one
 * is repeated, and the results are dropped. */
static tile_weights weights_of_tile(const dot_job *d, int col, int mr)
{
    tile_weights w;
    for (int c = 0; c < TILE_COLS; c++) {
        int row = col + c < d->n ? col + c : d->n - 1;
        w.row[c] = row_at(d->w, (size_t)row, d->w_stride, d->w_type);
        w.scale[c] = d->w_scale ? d->w_scale + row : NULL;
    }
    bool near = mr <= IN_ORDER_ROWS && d->w_stride * dtype_size(d->w_type) >= LONG_ROW;
    const void *prefetched = w.row[0];
    int next = col + (near ? TILE_COLS : AHEAD_COLS);
    if (next < d->n)
        prefetched = row_at(d->w, (size_t)next, d->w_stride, d->w_type);
    else if (d->next)
        prefetched = row_at(d->next, (size_t)(next - d->n), d->w_stride, d->w_type);
    w.ahead = (uintptr_t)prefetched - (uintptr_t)w.row[0];
    return w;
}

/* Columns [col, col + n) of one group. Tiles that do not divide the group overlap at its end. */
static void dot_group(const dot_job *d, int col, int n, int row0, int mr, vf *lanes)
{
    const float *x = d->x + (size_t)row0 * d->x_stride;
    int cols = dot_cols(mr);
    for (int c = 0; c < n; c += cols) {
        if (c + cols > VLEN)
            c = VLEN - cols;
        tile_weights w = weights_of_tile(d, col + c, mr);
        dot_tiles[mr - 1][d->w_type](d, x, &w, lanes + c);
    }
    finish_group(d, row0, mr, col, n, lanes);
}

static void dot(const dot_job *d)
{
    int n_tiles = (d->m + DOT_ROWS - 1) / DOT_ROWS;
    group_lanes lanes;
    for (int col = 0; col < d->n; col += VLEN) {
        int n = d->n - col < VLEN ? d->n - col : VLEN;
        if (n < VLEN)
            memset(&lanes, 0, sizeof lanes);
        for (int tile = 0; tile < n_tiles; tile++) {
            int row0 = tile_start(d->m, n_tiles, tile), mr = tile_start(d->m, n_tiles, tile + 1) - row0;
            dot_group(d, col, n, row0, mr, lanes.v);
        }
    }
}

/* packed: tiles one after the other; a tile is [k / VLEN steps][mr rows][VLEN]. */
static void pack(float *packed, const float *x, int m, int k, int tile)
{
    int n_tiles = gemm_tile_count(m);
    int row0 = tile_start(m, n_tiles, tile), mr = tile_start(m, n_tiles, tile + 1) - row0;
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

/* How k is cut: n_blocks of depth, a multiple of VLEN; the last may be shorter. */
static int block_depth(int k)
{
    int n_blocks = (k + DEPTH - 1) / DEPTH;
    return round_up((k + n_blocks - 1) / n_blocks, VLEN);
}

/* The weights of the next item, prefetched at an even pace through all tiles of this one. */
typedef struct {
    const char *at, *end;
    int per_tile;
} prefetcher;

static prefetcher prefetch_next(const dot_job *d)
{
    if (!d->next)
        return (prefetcher){0};
    int n_tiles = gemm_tile_count(d->m) * ((d->n + TILE_COLS - 1) / TILE_COLS) * ((d->k + DEPTH - 1) / DEPTH);
    size_t bytes = (size_t)d->n * d->w_stride * dtype_size(d->w_type);
    int per_tile = (int)(bytes / 64) / n_tiles + 1, n_steps = block_depth(d->k) / VLEN;
    return (prefetcher){d->next, (const char *)d->next + bytes, per_tile < n_steps ? per_tile : n_steps};
}

static void take_ahead(prefetcher *p, gemm_tile_job *t)
{
    t->n_ahead = p->at < p->end ? p->per_tile : 0;
    t->ahead = p->at;
    if (t->n_ahead > 0)
        p->at += 64 * t->n_ahead;
}

static size_t lanes_floats(int m, int k)
{
    int tiles = gemm_tile_count(m) < BLOCK_TILES ? gemm_tile_count(m) : BLOCK_TILES;
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
    int n_tiles = gemm_tile_count(d->m), kp = round_up(d->k, VLEN), depth_p = round_up(depth, VLEN);
    bool last = k0 + depth == d->k, keep = k0 > 0 || !last;
    gemm_tile_job t = {.d = d, .k0 = k0, .n = depth};
    for (int tile = tile0; tile < tile1; tile++) {
        int row0 = tile_start(d->m, n_tiles, tile), mr = tile_start(d->m, n_tiles, tile + 1) - row0;
        gemm_tile_fn *run = gemm_tiles[mr - 1][tile == tile0 ? (int)d->w_type : CONVERTED];
        t.x = d->x + (size_t)row0 * (size_t)kp + (size_t)k0 * (size_t)mr;
        t.w = w;
        for (int col = 0; col < d->n; col += VLEN) {
            int n = d->n - col < VLEN ? d->n - col : VLEN;
            group_lanes *g = keep ? lanes + (tile - tile0) * (GEMM_COLS / VLEN) + col / VLEN : lanes;
            for (int c = 0; c < n; c += TILE_COLS, t.w += TILE_COLS * depth_p) {
                if (tile == tile0) {
                    tile_weights from = weights_of_tile(d, col + c, mr);
                    memcpy(t.raw, from.row, sizeof t.raw);
                    memcpy(t.scale, from.scale, sizeof t.scale);
                }
                t.lanes = g->v + c;
                take_ahead(next, &t);
                run(&t);
            }
            if (last)
                finish_group(d, row0, mr, col, n, g->v);
        }
    }
}

static void gemm(const dot_job *d, float *scratch)
{
    int depth = block_depth(d->k), n_tiles = gemm_tile_count(d->m);
    group_lanes *lanes = (group_lanes *)scratch;
    float *w = scratch + lanes_floats(d->m, d->k);
    prefetcher next = prefetch_next(d);
    for (int tile0 = 0; tile0 < n_tiles; tile0 += BLOCK_TILES) {
        int tile1 = tile0 + BLOCK_TILES < n_tiles ? tile0 + BLOCK_TILES : n_tiles;
        for (int k0 = 0; k0 < d->k; k0 += depth)
            gemm_block(d, w, lanes, tile0, tile1, k0, d->k - k0 < depth ? d->k - k0 : depth, &next);
    }
}
