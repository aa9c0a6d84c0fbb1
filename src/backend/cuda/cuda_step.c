/* cuda_step.c - copies a batch to the device; records and replays invocations
 *
 * begin() writes everything kernels need to know of the batch into one block of pinned host memory and
 * copies it to the device, where the arrays have fixed addresses. There are two such host blocks, used in
 * turn: the host fills one while the copy of the other may still be queued behind a running step.
 *
 *   block:  counts | token | position | kv_slot | out_row | row_lora | tiles | sequences | splits, work items | pages
 *
 * A batch of decodes only is padded to one of a few sizes. Invocations of a size are of two kinds, without and with
 * large adapters, for which grids are finer; above FUSED_ROWS, where adapters have kernels of their own, there is a
 * third kind, without these kernels. The first invocation of a kind runs op by op (so that everything lazy is set up),
 * the second is captured into a CUDA graph, all later ones replay it. The rows of short prompts run as decodes too,
 * each of which sees one position more than the one before. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/lpt.h"
#include "base/mem.h"

/* Prompts are short if their rows together read at most this many positions: as a decode, each row reads by itself all
 * positions that it sees. No measurement of this number is kept. */
enum { SHORT_READS = 4096 };

/* In steps with prompts and at most this many rows, adapters cost less with tiles of SGMV_TILE rows and an expand that
 * is a kernel of its own. Steps of 7B and 8B with one adapter: 102 rows 6.5 instead of 7.4 ms, 338 rows 10.1 instead of
 * 10.9, 505 rows the same, 705 rows 18.4 instead of 17.9 (docs/lab/prompts.md). */
enum { PROMPT_TILES_FROM = 512 };

/* A fused expand divides the ranks of each row among warps (cuda_expand.cu) if an adapter has over HEAVY_RANKS at a
 * site and all rows together have fewer ranks than this many rows of the largest adapter: with more, the rows alone
 * keep the GPU busy. Steps of 8B, each row with an adapter of its own, ms: ranks 3, 17, 50 and 128 mixed, 8 rows 5.21
 * instead of 6.27, 24 rows 7.34 instead of 8.23, 48 rows 11.0 instead of 11.6; all of rank 64, 8 rows 5.09 instead of
 * 5.36, but from 32 rows on slower (docs/lab/decode-grid.md). */
enum { SLICED_ROWS = 20 };

/* The cost of a work item of attention beside its positions, in positions: an estimate, of which no measurement is
 * kept. With it LPT leaves the busiest block 2 % above the mean (docs/lab/decode-step.md). */
enum { WORK_OVERHEAD = 32 };

/* A block (see above) with writable arrays: the host fills what kernels read as a `step`. All blocks have one
 * layout. */
typedef struct {
    int *n, *token, *position, *kv_slot, *out_row;
    const lora_entry **row_lora;
    sgmv_tile *tile;
    int *page_indptr;
    decode_split *decode;
    int *first_work, *next_work;
    prefill_tile *prefill;
    int *v_arrivals;
    int *page; /* last: only the used part is copied */
    char *begin, *end;
} step_block;

typedef struct {
    const void *owner;
    int n_rows;
    bool any_lora, heavy;  /* as of step_shape */
    bool seen;             /* an invocation of this kind has run op by op */
    cudaGraphExec_t graph; /* NULL: not recorded yet */
} recording;

struct step_store {
    step_block device, host[2]; /* host: pinned memory */
    cudaEvent_t copied[2];
    int max_decode_splits, max_prefill_tiles; /* room in a block */
    unsigned n_begun;
    recording *recordings;
    int n_recordings;
    size_t recordings_cap;
    int capturing; /* the index of the recording that is being captured; -1: none */
};

/* Claims the next array, of n elements of `size` bytes, aligned to 16 bytes. */
static void *claim(uintptr_t *end, size_t n, size_t size)
{
    uintptr_t at = (*end + 15) / 16 * 16;
    *end = at + n * size;
    return (void *)at;
}

/* Returns the arrays of a block that begins at `begin`, an address aligned to 16 bytes, or NULL to learn the size from
 * .end. */
static step_block lay_out(char *begin, const cuda_backend *cu, const extent *x)
{
    size_t rows = (size_t)x->max_rows, splits = (size_t)cu->store->max_decode_splits;
    uintptr_t end = (uintptr_t)begin;
    step_block b = {.begin = begin};
    b.n = claim(&end, N_COUNTS, sizeof(int));
    b.token = claim(&end, rows, sizeof(int));
    b.position = claim(&end, rows, sizeof(int));
    b.kv_slot = claim(&end, rows, sizeof(int));
    b.out_row = claim(&end, (size_t)x->max_out, sizeof(int));
    b.row_lora = claim(&end, rows, sizeof(void *));
    b.tile = claim(&end, rows, sizeof(sgmv_tile));
    b.page_indptr = claim(&end, (size_t)x->max_sequences + 1, sizeof(int));
    b.decode = claim(&end, splits, sizeof(decode_split));
    b.first_work = claim(&end, (size_t)cu->n_sms * DECODE_CLUSTERS_PER_SM, sizeof(int));
    b.next_work = claim(&end, splits * (size_t)cuda_decode_head_groups(x->h), sizeof(int));
    b.prefill = claim(&end, (size_t)cu->store->max_prefill_tiles, sizeof(prefill_tile));
    b.v_arrivals = claim(&end, (size_t)x->n_sites, sizeof(int));
    b.page = claim(&end, (size_t)x->max_pages, sizeof(int));
    b.end = (char *)end;
    return b;
}

static step step_of(const step_block *b, int *drawn)
{
    return (step){
        .n = b->n,
        .token = b->token,
        .position = b->position,
        .kv_slot = b->kv_slot,
        .out_row = b->out_row,
        .row_lora = (const lora_entry *const *)b->row_lora,
        .tile = b->tile,
        .page_indptr = b->page_indptr,
        .page = b->page,
        .decode = b->decode,
        .first_work = b->first_work,
        .next_work = b->next_work,
        .prefill = b->prefill,
        .drawn = drawn,
        .v_arrivals = b->v_arrivals,
    };
}

static void drop_recording(step_store *s, int i)
{
    if (s->recordings[i].graph)
        cudaGraphExecDestroy(s->recordings[i].graph);
    s->recordings[i] = s->recordings[--s->n_recordings];
}

void cuda_forget(backend *be, const void *owner)
{
    step_store *s = cuda_of(be)->store;
    for (int i = s ? s->n_recordings - 1 : -1; i >= 0; i--)
        if (s->recordings[i].owner == owner)
            drop_recording(s, i);
}

void cuda_step_free(cuda_backend *cu)
{
    step_store *s = cu->store;
    if (!s)
        return;
    while (s->n_recordings > 0)
        drop_recording(s, s->n_recordings - 1);
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(s->host[i].begin);
        if (s->copied[i])
            cudaEventDestroy(s->copied[i]);
    }
    if (s->device.begin)
        cuda_release(&cu->base, s->device.begin);
    if (cu->step.drawn)
        cuda_release(&cu->base, cu->step.drawn);
    cu->step.drawn = NULL;
    free(s->recordings);
    free(s);
    cu->store = NULL;
}

int cuda_step_reserve(cuda_backend *cu, const extent *x, err *e)
{
    cuda_keep(cu, cudaStreamSynchronize(cu->stream), "reserve");
    cuda_step_free(cu);
    step_store *s = cu->store = XNEW(step_store);
    s->capturing = -1;
    s->max_decode_splits = cuda_decode_splits(x);
    s->max_prefill_tiles = x->max_sequences + x->max_rows / cuda_prefill_rows(cu, x);
    size_t bytes = (size_t)(uintptr_t)lay_out(NULL, cu, x).end;
    int *drawn = cu->step.drawn = cuda_alloc(&cu->base, (size_t)x->max_out * sizeof(int), e);
    char *device = s->device.begin = cuda_alloc(&cu->base, bytes, e);
    if (!drawn || !device)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (cuda_keep(cu, cudaHostAlloc((void **)&s->host[i].begin, bytes, 0), "pinned host memory") ||
            cuda_keep(cu, cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming), "event"))
            return cuda_report(cu, e);
        s->host[i] = lay_out(s->host[i].begin, cu, x);
        memset(s->host[i].v_arrivals, 0, (size_t)x->n_sites * sizeof(int));
    }
    s->device = lay_out(device, cu, x);
    cu->step = step_of(&s->device, drawn);
    return 0;
}

/* Returns the size that a batch of n rows is padded to, at most `limit`: a power of two up to 8, a multiple of 8 up to
 * 64, of 32 up to 256, then of 128. No measurement is kept of other steps. */
static int padded_batch(int n, int limit)
{
    int to = 1;
    while (to < n && to < 8)
        to *= 2;
    if (n > 8) {
        int by = n <= 64 ? 8 : n <= 256 ? 32 : 128;
        to = (n + by - 1) / by * by;
    }
    return to < limit ? to : limit;
}

/* Fills in the slots of rows, which are of one sequence with these pages. */
static void fill_slots(int *slot, const batch *b, const int *pages, int row, int n_rows, int page_len)
{
    for (int r = row; r < row + n_rows; r++)
        slot[r] = pages[b->position[r] / page_len] * page_len + b->position[r] % page_len;
}

/* Orders splits: longest rows first, for LPT; the splits of a row in order of position. */
static int by_length(const void *a, const void *b)
{
    const decode_split *x = a, *y = b;
    return x->len != y->len ? y->len - x->len : x->row != y->row ? x->row - y->row : x->index - y->index;
}

/* Cuts a prefill's rows into query tiles of up to tile_rows rows. Returns how many. */
static int add_prefill_tiles(prefill_tile *to, int seq, int row, int n_rows, int tile_rows)
{
    int n = 0;
    for (int r = 0; r < n_rows; r += tile_rows)
        to[n++] = (prefill_tile){seq, row + r, n_rows - r < tile_rows ? n_rows - r : tile_rows};
    return n;
}

/* Orders query tiles: those that see the most positions first. position: of the rows. */
static int by_last_position(const void *a, const void *b, void *position)
{
    const prefill_tile *x = a, *y = b;
    int last_x = ((const int *)position)[x->row + x->n_rows - 1],
        last_y = ((const int *)position)[y->row + y->n_rows - 1];
    return last_x != last_y ? last_y - last_x : x->row - y->row;
}

/* Cuts the it.len positions that a row sees into KV splits. Returns how many. */
static int add_splits(const cuda_backend *cu, decode_split *to, decode_split it)
{
    int split_len = cuda_decode_split_len(cu, it.len);
    it.count = (it.len + split_len - 1) / split_len;
    for (it.index = 0; it.index < it.count; it.index++) {
        it.from = it.index * split_len;
        it.to = it.from + split_len < it.len ? it.from + split_len : it.len;
        to[it.index] = it;
    }
    return it.count;
}

/* Fills in pages, slots and the work of attention: query tiles of the prefills that run as prefills, KV splits of all
 * other rows. */
static void fill_sequences(const cuda_backend *cu, const batch *b, const step_block *h, step_shape *shape)
{
    int n_seqs = b->n_prefills + b->n_decodes, first_decode = b->prefill_indptr[b->n_prefills],
        page_len = cu->limit.page_len;
    int n_decode = 0, n_prefill = 0, tile_rows = cuda_prefill_rows(cu, &cu->limit);
    for (int s = 0; s < n_seqs; s++) {
        bool is_prefill = s < b->n_prefills;
        int row = is_prefill ? b->prefill_indptr[s] : first_decode + s - b->n_prefills;
        int n_rows = is_prefill ? b->prefill_indptr[s + 1] - row : 1;
        fill_slots(h->kv_slot, b, b->page + b->page_indptr[s], row, n_rows, page_len);
        bool as_prefill = is_prefill && !shape->decode_only;
        if (as_prefill) {
            n_prefill += add_prefill_tiles(h->prefill + n_prefill, s, row, n_rows, tile_rows);
            shape->prefill_positions += b->position[row] + n_rows;
        }
        for (int r = row; !as_prefill && r < row + n_rows; r++)
            n_decode += add_splits(
                cu, h->decode + n_decode,
                (decode_split){
                    .row = r, .len = b->position[r] + 1, .fresh = b->position[row], .pages = b->page_indptr[s]});
    }
    qsort(h->decode, (size_t)n_decode, sizeof *h->decode, by_length);
    qsort_r(h->prefill, (size_t)n_prefill, sizeof *h->prefill, by_last_position, h->position);
    CHECK(n_decode <= cu->store->max_decode_splits && n_prefill <= cu->store->max_prefill_tiles);
    h->n[COUNT_DECODE_SPLITS] = shape->max_decode_splits = n_decode;
    h->n[COUNT_PREFILL_TILES] = shape->n_prefill_tiles = n_prefill;
    memcpy(h->page_indptr, b->page_indptr, (size_t)(n_seqs + 1) * sizeof(int));
    memcpy(h->page, b->page, (size_t)b->page_indptr[n_seqs] * sizeof(int));
}

/* Cuts segments, all or only those with adapters, into SGMV tiles of at most tile_rows rows; fills in each row's
 * adapter too. Returns the number of tiles. */
static int fill_tiles(const segments *segs, int max_rank_sum, int tile_rows, bool all, const step_block *h)
{
    int n = 0;
    for (int i = 0; i < segs->n; i++) {
        const lora_entry *table = segs->lora[i] ? segs->lora[i]->table : NULL;
        CHECK(!table || segs->lora[i]->max_rank_sum <= max_rank_sum);
        for (int r = segs->indptr[i]; r < segs->indptr[i + 1]; r++)
            h->row_lora[r] = table;
        for (int r = segs->indptr[i]; (table || all) && r < segs->indptr[i + 1]; r += tile_rows) {
            int left = segs->indptr[i + 1] - r;
            h->tile[n++] = (sgmv_tile){table, r, left < tile_rows ? left : tile_rows};
        }
    }
    return n;
}

static bool has_lora(const segments *segs)
{
    for (int i = 0; i < segs->n; i++)
        if (segs->lora[i])
            return true;
    return false;
}

/* Fills in the rows and outputs that a batch of decodes is padded with. */
static void fill_padding(const step_block *h, const batch *b, const step_shape *shape)
{
    for (int r = b->n_rows; r < shape->n_rows; r++) {
        h->token[r] = h->position[r] = 0;
        h->kv_slot[r] = -1;
        h->row_lora[r] = NULL;
    }
    for (int i = b->n_out; i < shape->n_out; i++)
        h->out_row[i] = i;
}

/* Returns whether the batch runs as decodes: it has only decodes, with logits for every row, or at most FUSED_ROWS rows
 * with short prompts. */
static bool runs_by_rows(const batch *b)
{
    if (b->n_prefills == 0)
        return b->n_out == b->n_rows;
    if (b->n_rows > FUSED_ROWS)
        return false;
    long n_reads = 0;
    for (int r = 0; r < b->prefill_indptr[b->n_prefills]; r++)
        n_reads += b->position[r] + 1;
    return n_reads <= SHORT_READS;
}

/* Returns the most ranks that an adapter of the batch has at a site, its parts taken together. */
static int most_ranks(const segments *segs)
{
    int most = 0;
    for (int i = 0; i < segs->n; i++)
        if (segs->lora[i] && segs->lora[i]->max_rank_sum > most)
            most = segs->lora[i]->max_rank_sum;
    return most;
}

/* Returns the sum over all rows of the most ranks that the row's adapter has at a site, its parts taken together. */
static long row_ranks(const segments *segs)
{
    long n = 0;
    for (int i = 0; i < segs->n; i++)
        n += segs->lora[i] ? (long)(segs->indptr[i + 1] - segs->indptr[i]) * segs->lora[i]->max_rank_sum : 0;
    return n;
}

/* Fills a host block with the batch, and cu->shape. */
static void fill(cuda_backend *cu, const batch *b, const step_block *h)
{
    step_shape shape = {
        .n_rows = b->n_rows, .n_out = b->n_out, .decode_only = runs_by_rows(b), .page_len = cu->limit.page_len};
    memcpy(h->token, b->token, (size_t)b->n_rows * sizeof(int));
    memcpy(h->position, b->position, (size_t)b->n_rows * sizeof(int));
    memcpy(h->out_row, b->out_row, (size_t)b->n_out * sizeof(int));
    fill_sequences(cu, b, h, &shape);
    shape.any_lora = has_lora(&b->segs);
    shape.prompt_tiles = shape.any_lora && !shape.decode_only && b->n_rows > PROMPT_TILES_FROM;
    h->n[COUNT_TILES] = shape.max_tiles = fill_tiles(
        &b->segs, cu->limit.max_rank_sum, shape.prompt_tiles ? PROMPT_TILE : SGMV_TILE, shape.prompt_tiles, h);
    h->n[COUNT_ROWS] = b->n_rows;
    h->n[COUNT_OUT] = b->n_out;
    if (shape.decode_only) {
        shape.n_rows = padded_batch(b->n_rows, cu->limit.max_rows);
        shape.n_out = shape.n_rows < cu->limit.max_out ? shape.n_rows : cu->limit.max_out;
        shape.max_decode_splits = shape.n_rows * cuda_decode_max_splits();
        shape.fused = shape.n_rows <= FUSED_ROWS;
        shape.any_lora = shape.any_lora || shape.fused;
        shape.max_tiles = shape.any_lora ? shape.n_rows : 0;
        fill_padding(h, b, &shape);
    }
    int most = most_ranks(&b->segs);
    shape.heavy =
        !shape.prompt_tiles && most > HEAVY_RANKS && (!shape.fused || row_ranks(&b->segs) < SLICED_ROWS * (long)most);
    cu->shape = shape;
}

/* Assigns the work items of decode attention to the clusters of its grid by LPT; each cluster then runs its shortest
 * first: measured faster than the longest first (docs/lab/decode-step.md). */
static void schedule_attention(const cuda_backend *cu, const step_block *h)
{
    int n = h->n[COUNT_DECODE_SPLITS], n_head_groups = cuda_decode_head_groups(cu->limit.h),
        *cost = XNEW_ARRAY(int, (size_t)n);
    for (int i = 0; i < n; i++)
        cost[i] = h->decode[i].to - h->decode[i].from + WORK_OVERHEAD;
    lpt_schedule(cost, n_head_groups, n * n_head_groups, cuda_decode_clusters(cu), h->first_work, h->next_work);
    free(cost);
}

/* Returns the index of the recording for a batch of this shape, a new one where there is none. */
static int find_recording(step_store *s, const void *owner, const step_shape *shape)
{
    for (int i = 0; i < s->n_recordings; i++) {
        const recording *r = &s->recordings[i];
        if (r->owner == owner && r->n_rows == shape->n_rows && r->any_lora == shape->any_lora &&
            r->heavy == shape->heavy)
            return i;
    }
    s->recordings = xgrow(s->recordings, &s->recordings_cap, (size_t)s->n_recordings + 1, sizeof *s->recordings);
    s->recordings[s->n_recordings] = (recording){owner, shape->n_rows, shape->any_lora, shape->heavy, false, NULL};
    return s->n_recordings++;
}

/* Replays the recording of this shape, or begins to capture it, or neither: the first time, and where there are more
 * than max_recorded rows. Returns whether it was replayed. The capture mode is relaxed: where ranks are on several
 * GPUs, one thread begins their captures one after the other, and waits for the next GPU's events while the first
 * captures, which no other mode allows. */
static bool start_decodes(cuda_backend *cu, const void *owner)
{
    step_store *s = cu->store;
    int i = find_recording(s, owner, &cu->shape);
    recording *r = &s->recordings[i];
    if (r->graph) {
        cuda_keep(cu, cudaGraphLaunch(r->graph, cu->stream), "replay of a step");
        return true;
    }
    if (r->seen && r->n_rows <= cu->max_recorded &&
        !cuda_keep(cu, cudaStreamBeginCapture(cu->stream, cudaStreamCaptureModeRelaxed), "record a step"))
        s->capturing = i;
    r->seen = true;
    return false;
}

invocation cuda_begin(backend *be, const batch *b, const void *owner)
{
    cuda_backend *cu = cuda_of(be);
    step_store *s = cu->store;
    unsigned which = s->n_begun++ % 2;
    const step_block *h = &s->host[which];
    CHECK(b->n_rows <= cu->limit.max_rows && b->n_out <= cu->limit.max_out);
    CHECK(b->n_prefills + b->n_decodes <= cu->limit.max_sequences);
    CHECK(b->page_indptr[b->n_prefills + b->n_decodes] <= cu->limit.max_pages);
    cuda_use(cu);
    cuda_keep(cu, cudaEventSynchronize(s->copied[which]), "begin");
    fill(cu, b, h);
    schedule_attention(cu, h);
    size_t bytes = (size_t)((char *)(h->page + b->page_indptr[b->n_prefills + b->n_decodes]) - h->begin);
    cuda_keep(cu, cudaMemcpyAsync(s->device.begin, h->begin, bytes, cudaMemcpyHostToDevice, cu->stream), "begin");
    cuda_keep(cu, cudaEventRecord(s->copied[which], cu->stream), "begin");
    bool replayed = cu->shape.decode_only && start_decodes(cu, owner);
    return (invocation){.n_rows = cu->shape.n_rows, .n_out = cu->shape.n_out, .replayed = replayed};
}

void cuda_end(backend *be)
{
    cuda_backend *cu = cuda_of(be);
    step_store *s = cu->store;
    cuda_use(cu);
    if (s->capturing < 0)
        return;
    recording *r = &s->recordings[s->capturing];
    cudaGraph_t graph = NULL;
    s->capturing = -1;
    if (cuda_keep(cu, cudaStreamEndCapture(cu->stream, &graph), "record a step"))
        return;
    if (!cuda_keep(cu, cudaGraphInstantiate(&r->graph, graph, 0), "record a step"))
        cuda_keep(cu, cudaGraphLaunch(r->graph, cu->stream), "first replay of a step");
    cudaGraphDestroy(graph);
}
