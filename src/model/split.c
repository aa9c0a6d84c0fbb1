/* split.c - see split.h */
#include "model/split.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Divides n elements among ranks, in units and as evenly as possible; the last unit may be short. */
static split_stretch divide_evenly(int n, int unit, split s)
{
    int units = divide_up(n, unit), from = (int)((int64_t)units * s.rank / s.n) * unit;
    int to = (int)((int64_t)units * (s.rank + 1) / s.n) * unit;
    return (split_stretch){from, (to < n ? to : n) - from};
}

/* The unit of the feed-forward width: a scale of blocks covers SCALE_BLOCK inputs of down; 64 inputs are what a GPU's
 * kernels read at once. */
static int ffn_unit(const model_config *c, int n_ranks)
{
    if (c->quant == QUANT_BLOCK)
        return SCALE_BLOCK;
    return c->ffn % 64 == 0 && c->ffn / 64 >= n_ranks ? 64 : 8;
}

enum { VOCAB_UNIT = 8 };

int split_check(const model_config *c, int n_ranks, err *e)
{
    int q = c->n_heads / n_ranks * c->head_dim;
    if (n_ranks == 1)
        return 0;
    if (c->n_heads % n_ranks != 0)
        return err_set(e, "the model has %d attention heads, which cannot be split evenly over %d ranks (--tp)",
                       c->n_heads, n_ranks);
    if (c->n_kv_heads % n_ranks != 0 && n_ranks % c->n_kv_heads != 0)
        return err_set(
            e,
            "the model has %d key and value heads: %d ranks (--tp) can neither have as many each nor share them evenly",
            c->n_kv_heads, n_ranks);
    if (divide_up(c->ffn, ffn_unit(c, n_ranks)) < n_ranks || divide_up(c->vocab, VOCAB_UNIT) < n_ranks)
        return err_set(e, "the model is too small for %d ranks (--tp): its feed-forward width is %d, in units of %d",
                       n_ranks, c->ffn, ffn_unit(c, n_ranks));
    if (c->quant == QUANT_BLOCK && q % SCALE_BLOCK != 0)
        return err_set(e,
                       "the heads of one of %d ranks (--tp) are %d inputs of o_proj, which cut through the %d x %d "
                       "blocks of its FP8 "
                       "scales",
                       n_ranks, q, SCALE_BLOCK, SCALE_BLOCK);
    return 0;
}

heads split_heads(const model_config *c, split s)
{
    int kv = c->n_kv_heads / s.n;
    return (heads){c->n_heads / s.n, kv > 0 ? kv : 1, c->head_dim};
}

split_stretch split_vocab(const model_config *c, split s)
{
    return divide_evenly(c->vocab, VOCAB_UNIT, s);
}

static split_stretch ffn_of(const model_config *c, split s)
{
    return divide_evenly(c->ffn, ffn_unit(c, s.n), s);
}

/* A rank's query heads as a stretch of columns; below, its keys, and values likewise. */
static split_stretch queries_of(const model_config *c, split s)
{
    int n = split_heads(c, s).n_heads * c->head_dim;
    return (split_stretch){s.rank * n, n};
}

static split_stretch keys_of(const model_config *c, split s)
{
    int first = (int)((int64_t)s.rank * c->n_kv_heads / s.n);
    return (split_stretch){first * c->head_dim, split_heads(c, s).n_kv_heads * c->head_dim};
}

/* Returns whether a site's outputs are parts of a sum over the ranks. */
static bool is_summed(int site)
{
    return site == SITE_O || site == SITE_DOWN;
}

split_stretch split_out(const model_config *c, split s, int site, int part)
{
    if (is_summed(site))
        return (split_stretch){0, c->hidden};
    return site == SITE_GATE_UP ? ffn_of(c, s) : part == 0 ? queries_of(c, s) : keys_of(c, s);
}

split_stretch split_in(const model_config *c, split s, int site)
{
    return site == SITE_O ? queries_of(c, s) : site == SITE_DOWN ? ffn_of(c, s) : (split_stretch){0, c->hidden};
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Returns whether scales are of blocks: those of a stretch of rows or columns then are not contiguous. */
static bool has_blocks(const proj *p)
{
    return p->scale.rows > 1;
}

static size_t copied_bytes(const proj *p, split_stretch rows, split_stretch cols, bool borrow)
{
    size_t bytes = cols.n < p->w.cols && !borrow ? aligned((size_t)rows.n * (size_t)cols.n * dtype_size(p->w.type)) : 0;
    return bytes + (has_blocks(p) ? aligned((size_t)scale_blocks(cols.n) * (size_t)rows.n * sizeof(float)) : 0);
}

/* Copies rows of `bytes` bytes, stride apart, one behind the other. */
static void pack_rows(char *to, const char *from, int rows, size_t bytes, size_t stride)
{
    for (int i = 0; i < rows; i++, to += bytes, from += stride)
        memcpy(to, from, bytes);
}

static void slice_matrix(proj *out, const proj *p, split_stretch rows, split_stretch cols, bool borrow, char **room)
{
    size_t size = dtype_size(p->w.type), stride = (size_t)p->w.cols * size;
    char *at = (char *)p->w.data + (size_t)rows.from * stride + (size_t)cols.from * size;
    out->w = (tensor){.data = at, .type = p->w.type, .rows = rows.n, .cols = cols.n};
    if (cols.n == p->w.cols)
        return;
    if (borrow) {
        out->stride = p->w.cols;
        return;
    }
    pack_rows(*room, at, rows.n, (size_t)cols.n * size, stride);
    out->w.data = *room;
    *room += aligned(tensor_bytes(&out->w));
}

static void slice_scale(proj *out, const proj *p, split_stretch rows, split_stretch cols, char **room)
{
    const float *from = (const float *)p->scale.data + rows.from;
    size_t stride = (size_t)p->scale.cols;
    out->scale = (tensor){.data = (void *)from, .type = DTYPE_F32, .rows = 1, .cols = rows.n};
    if (!has_blocks(p))
        return;
    out->scale.rows = scale_blocks(cols.n);
    out->scale.data = *room;
    pack_rows(*room, (const char *)(from + (size_t)(cols.from / SCALE_BLOCK) * stride), out->scale.rows,
              (size_t)rows.n * sizeof(float), stride * sizeof(float));
    *room += aligned(tensor_bytes(&out->scale));
}

static void slice_proj(proj *out, const proj *p, split_stretch rows, split_stretch cols, bool borrow, char **room)
{
    *out = (proj){0};
    slice_matrix(out, p, rows, cols, borrow, room);
    if (p->scale.data)
        slice_scale(out, p, rows, cols, room);
    if (p->bias.data)
        out->bias = (tensor){.data = (float *)p->bias.data + rows.from, .type = DTYPE_F32, .rows = 1, .cols = rows.n};
}

/* rows: [w->n]. */
static void *slice_linear(linear *out, const linear *w, const split_stretch *rows, split_stretch cols, bool borrow)
{
    size_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        bytes += copied_bytes(&w->part[i], rows[i], cols, borrow);
    char *memory = bytes ? mem_alloc_block(bytes) : NULL, *room = memory;
    CHECK(memory || !bytes);
    *out = (linear){.n = w->n};
    for (int i = 0; i < w->n; i++)
        slice_proj(&out->part[i], &w->part[i], rows[i], cols, borrow, &room);
    return memory;
}

/* A bias is added once: where outputs are summed over the ranks, by the first rank. */
void *split_site(linear *out, const linear *w, const model_config *c, split s, int site, bool borrow)
{
    split_stretch rows[MAX_PARTS];
    for (int i = 0; i < w->n; i++)
        rows[i] = split_out(c, s, site, i);
    void *memory = slice_linear(out, w, rows, split_in(c, s, site), borrow);
    for (int i = 0; i < w->n && is_summed(site) && s.rank > 0; i++)
        out->part[i].bias = (tensor){0};
    return memory;
}

void *split_output(linear *out, const linear *w, const model_config *c, split s, bool borrow)
{
    split_stretch rows = split_vocab(c, s);
    return slice_linear(out, w, &rows, (split_stretch){0, c->hidden}, borrow);
}
