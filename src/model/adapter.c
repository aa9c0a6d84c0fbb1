/* adapter.c - see adapter.h
 *
 * peft.c says which modules the configuration adapts. This file checks the weights against that and against the base:
 * each adapted projection must have its pair lora_A, lora_B of the right shapes, and nothing else may be in the
 * file. */
#include "model/adapter.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/digest.h"
#include "base/digest_memo.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/finite.h"
#include "model/model.h"
#include "model/peft.h"
#include "model/safetensors.h"
#include "model/split.h"

static const char *const files[MEMO_FILES] = {ADAPTER_CONFIG, ADAPTER_WEIGHTS};

/* One projection's two tensors, A [rank, in] and B [out, rank]. rank 0: not adapted. */
typedef struct {
    int rank;
    double scale;
    const safetensors_entry *a, *b;
} pair;

struct adapter {
    adapter_info info;
    char *base_name;
    unsigned char *bytes; /* of the weights file: read, not mapped, since others may change it; NULL: borrowed */
    safetensors *weights;
    model_config base;   /* its shape; layer_slides is not set */
    bool headers_only;   /* the weights have not been read */
    const digest *known; /* its digest, borrowed while it is opened; NULL: it must be computed */
    int n_layers;
    pair (*site)[MAX_PARTS]; /* [n_layers * N_SITES] as the model numbers them */
};

static char *module_name(int layer, int site, int part)
{
    const char *block, *name;
    model_proj_name(site, part, &block, &name);
    return xasprintf("model.layers.%d.%s.%s", layer, block, name);
}

/* Says why a tensor that is no projection's lora_A or lora_B cannot be used, by a part of its name. */
static const char *why_unusable(const char *name)
{
    static const struct {
        const char *part, *why;
    } reasons[] = {
        {"lora_embedding_", "adapts an embedding, which is not supported"},
        {"lora_magnitude_vector", "belongs to DoRA, which is not supported"},
        {"modules_to_save", "replaces a whole module, which is not supported"},
        {"lm_head", "belongs to lm_head; only the seven projections of a layer can be adapted"},
        {"embed_tokens", "belongs to embed_tokens; only the seven projections of a layer can be adapted"},
        {"base_layer", "is a weight of the base, not of an adapter"},
        {".bias", "is a bias, which is not supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (strstr(name, reasons[i].part))
            return reasons[i].why;
    return "is not lora_A or lora_B of one of the seven projections of a layer";
}

/* Skips "text." at the front of *s if it is there. */
static bool skip(const char **s, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(*s, text, n) != 0 || (*s)[n] != '.')
        return false;
    *s += n + 1;
    return true;
}

/* Skips a layer's number and its dot: at most 4 digits, without leading zeros. */
static bool skip_number(const char **s, int *n)
{
    size_t digits = strspn(*s, "0123456789");
    if (digits == 0 || digits > 4 || (*s)[digits] != '.' || (digits > 1 && **s == '0'))
        return false;
    *n = atoi(*s);
    *s += digits + 1;
    return true;
}

static bool skip_projection(const char **s, int *site, int *part)
{
    for (*site = 0; *site < N_SITES; ++*site)
        for (*part = 0; *part < model_site_parts(*site); ++*part) {
            const char *block, *name, *at = *s;
            model_proj_name(*site, *part, &block, &name);
            if (skip(&at, block) && skip(&at, name)) {
                *s = at;
                return true;
            }
        }
    return false;
}

/* Returns whether s is "weight", possibly behind the name PEFT gave the adapter in memory: "default.weight". */
static bool is_weight(const char *s)
{
    const char *dot = strchr(s, '.');
    return strcmp(dot && dot > s ? dot + 1 : s, "weight") == 0;
}

/* Files one tensor under the place that its name says. */
static int file_tensor(adapter *a, const safetensors_entry *t, err *e)
{
    const char *s = t->name;
    int layer, site, part;
    bool known = skip(&s, "base_model") && skip(&s, "model") && skip(&s, "model") && skip(&s, "layers") &&
                 skip_number(&s, &layer) && skip_projection(&s, &site, &part);
    bool is_a = known && skip(&s, "lora_A"), is_b = known && !is_a && skip(&s, "lora_B");
    if (!(is_a || is_b) || !is_weight(s))
        return err_set(e, "tensor \"%.160s\" %s", t->name, why_unusable(t->name));
    if (layer >= a->n_layers)
        return err_set(e, "tensor \"%.160s\" is for layer %d, but the base has %d layers", t->name, layer, a->n_layers);
    pair *p = &a->site[layer * N_SITES + site][part];
    const safetensors_entry **slot = is_a ? &p->a : &p->b;
    if (*slot)
        return err_set(e, "tensors \"%.120s\" and \"%.120s\" are for the same place", (*slot)->name, t->name);
    *slot = t;
    return 0;
}

static int check_shape(const safetensors_entry *t, int rows, int cols, int rank, err *e)
{
    char found[SAFETENSORS_SHAPE_TEXT];
    if (t->n_dims != 2 || t->dim[0] != rows || t->dim[1] != cols)
        return err_set(e, "tensor \"%.160s\" is %s; the base and rank %d make it [%d, %d]", t->name,
                       safetensors_shape(t, found), rank, rows, cols);
    if (!t->usable || t->t.type == DTYPE_F8)
        return err_set(e, "tensor \"%.160s\" is %s; only F32, F16 and BF16 are supported", t->name, t->dtype_text);
    return 0;
}

/* Checks what the file has for one projection against what the configuration says of it. */
static int check_pair(pair *p, const peft_module *m, const char *module, int in, int out, err *e)
{
    if (!m->adapted && (p->a || p->b))
        return err_set(e, "the weights adapt %s, but adapter_config.json does not target it", module);
    if (!m->adapted)
        return 0;
    if (!p->a || !p->b)
        return err_set(e, "adapter_config.json targets %s, but %s missing", module,
                       p->a   ? "its lora_B is"
                       : p->b ? "its lora_A is"
                              : "its lora_A and lora_B are");
    p->rank = m->rank;
    p->scale = m->scale;
    return check_shape(p->a, p->rank, in, p->rank, e) || check_shape(p->b, out, p->rank, p->rank, e) ? -1 : 0;
}

static int check_projection(adapter *a, const peft_config *c, const model_config *base, int layer, int site, int part,
                            err *e)
{
    int in, out;
    model_proj_shape(base, site, part, &in, &out);
    char *module = module_name(layer, site, part);
    peft_module m;
    int status = peft_config_lookup(c, module, &m, e);
    if (status == 0)
        status = check_pair(&a->site[layer * N_SITES + site][part], &m, module, in, out, e);
    free(module);
    return status;
}

/* Refuses modules outside the layers, which PEFT could adapt and we cannot. */
static int check_outside(const peft_config *c, err *e)
{
    static const char *const outside[] = {"lm_head", "model.embed_tokens"};
    for (int i = 0; i < 2; i++) {
        peft_module m;
        if (peft_config_lookup(c, outside[i], &m, e))
            return -1;
        if (m.adapted)
            return err_set(e, "adapter_config.json targets %s; only the seven projections of a layer can be adapted",
                           outside[i]);
    }
    return 0;
}

static int check_modules(adapter *a, const peft_config *c, const model_config *base, err *e)
{
    if (check_outside(c, e))
        return -1;
    for (int layer = 0; layer < a->n_layers; layer++)
        for (int site = 0; site < N_SITES; site++)
            for (int part = 0; part < model_site_parts(site); part++)
                if (check_projection(a, c, base, layer, site, part, e))
                    return -1;
    return 0;
}

static int check_finite(const adapter *a, err *e)
{
    int n = safetensors_count(a->weights);
    const tensor **t = XNEW_ARRAY(const tensor *, (size_t)n);
    for (int i = 0; i < n; i++)
        t[i] = &safetensors_at(a->weights, i)->t;
    int bad = finite_scan(t, n);
    free(t);
    if (bad < 0)
        return 0;
    return err_set(e, "tensor \"%.160s\" holds NaN or infinity", safetensors_at(a->weights, bad)->name);
}

static void describe_pair(adapter_info *f, const pair *p, int site, int part)
{
    if (f->n_projections++ == 0) {
        f->rank_min = f->rank_max = p->rank;
        f->scale_min = f->scale_max = p->scale;
        f->type = p->a->t.type;
    }
    f->rank_min = p->rank < f->rank_min ? p->rank : f->rank_min;
    f->rank_max = p->rank > f->rank_max ? p->rank : f->rank_max;
    f->scale_min = p->scale < f->scale_min ? p->scale : f->scale_min;
    f->scale_max = p->scale > f->scale_max ? p->scale : f->scale_max;
    f->mixed_types |= p->a->t.type != f->type || p->b->t.type != f->type;
    f->has[site][part] = true;
    f->n_params += (size_t)p->rank * ((size_t)p->a->t.cols + (size_t)p->b->t.rows);
    f->bytes += tensor_bytes(&p->a->t) + tensor_bytes(&p->b->t);
}

static void describe_all(adapter *a)
{
    for (int layer = 0; layer < a->n_layers; layer++) {
        int before = a->info.n_projections;
        for (int i = 0; i < N_SITES * MAX_PARTS; i++) {
            const pair *p = &a->site[layer * N_SITES + i / MAX_PARTS][i % MAX_PARTS];
            if (p->rank)
                describe_pair(&a->info, p, i / MAX_PARTS, i % MAX_PARTS);
        }
        a->info.n_layers += a->info.n_projections > before;
    }
}

static int bind_weights(adapter *a, const peft_config *c, const model_config *base, err *e)
{
    a->n_layers = base->n_layers;
    a->base = *base;
    a->base.layer_slides = NULL;
    a->site = xcalloc((size_t)base->n_layers * N_SITES, sizeof *a->site);
    for (int i = 0; i < safetensors_count(a->weights); i++)
        if (file_tensor(a, safetensors_at(a->weights, i), e))
            return -1;
    if (check_modules(a, c, base, e) || (!a->headers_only && check_finite(a, e)))
        return -1;
    describe_all(a);
    return a->info.n_projections ? 0 : err_set(e, "\"target_modules\" match none of the base's projections");
}

/* Fills in a, whose bytes may be set already. Messages do not name the directory yet. */
static int open_parts(adapter *a, const char *config, size_t n_config, const void *weights, size_t n_weights,
                      const model_config *base, err *e)
{
    peft_config *c = peft_config_parse(config, n_config, e);
    if (!c)
        return err_wrap(e, ADAPTER_CONFIG);
    int status = -1;
    a->base_name = xstrdup(peft_config_base_name(c));
    a->info.base_name = a->base_name;
    a->info.rslora = peft_config_rslora(c);
    a->weights = safetensors_open_memory(weights, n_weights, ADAPTER_WEIGHTS, e);
    if (a->weights && bind_weights(a, c, base, e) == 0) {
        digest d = {{0}};
        if (a->known)
            d = *a->known;
        else if (!a->headers_only)
            digest_of_parts(&d, (const digest_part[]){{config, n_config}, {weights, n_weights}}, 2);
        digest_to_hex(&d, a->info.digest);
        status = 0;
    }
    peft_config_free(c);
    return status;
}

adapter *adapter_open_memory(const char *name, const char *config, size_t n_config, const void *weights,
                             size_t n_weights, const model_config *base, err *e)
{
    adapter *a = XNEW(adapter);
    if (open_parts(a, config, n_config, weights, n_weights, base, e) == 0)
        return a;
    err_wrap(e, "%s", name);
    adapter_close(a);
    return NULL;
}

/* Upper bound of an adapter of this base: all projections at the highest rank, in 32 bits. It keeps whoever may write a
 * folder from using up everybody's memory. */
static size_t largest_file(const model_config *base)
{
    size_t n = 0;
    for (int i = 0; i < N_SITES * MAX_PARTS; i++) {
        int in = 0, out = 0;
        if (i % MAX_PARTS < model_site_parts(i / MAX_PARTS))
            model_proj_shape(base, i / MAX_PARTS, i % MAX_PARTS, &in, &out);
        n += (size_t)in + (size_t)out;
    }
    return SAFETENSORS_MAX_HEADER + n * (size_t)base->n_layers * LORA_MAX_RANK * sizeof(float);
}

/* Loads the weights file, or with headers_only its header alone, whose length is in the first 8 bytes. *n_bytes: of the
 * whole file. */
static unsigned char *load_weights(const adapter *a, const char *path, const model_config *base, size_t *n_bytes,
                                   err *e)
{
    unsigned char *first = a->headers_only ? file_load_head(path, 8, largest_file(base), n_bytes, e) : NULL;
    uint64_t n = 0;
    if (!a->headers_only)
        return file_load(path, largest_file(base), n_bytes, e);
    if (!first)
        return NULL;
    memcpy(&n, first, *n_bytes < 8 ? *n_bytes : 8);
    free(first);
    return file_load_head(path, n <= SAFETENSORS_MAX_HEADER ? (size_t)n + 8 : 8, largest_file(base), n_bytes, e);
}

static bool is_unchanged(const char *dir, const memo_stamp *before)
{
    memo_stamp now;
    return memo_stamp_of(&now, dir, files) == 0 && memcmp(&now, before, sizeof now) == 0;
}

/* Opens the adapter with its digest from memo, if it is there. If the files' stamps are the same before and after they
 * were read, what was read has the digest that is kept for that stamp. */
static int open_remembered(adapter *a, const char *dir, const char *config, size_t n_config, size_t n_weights,
                           const memo_stamp *before, digest_memo *memo, const model_config *base, err *e)
{
    digest d;
    bool same = memo && is_unchanged(dir, before);
    a->known = same && digest_memo_find(memo, dir, before, &d) ? &d : NULL;
    int status = open_parts(a, config, n_config, a->bytes, n_weights, base, e);
    if (status == 0 && same && !a->known && memo_stamp_is_old(before) && digest_from_hex(&d, a->info.digest) == 0)
        digest_memo_keep(memo, dir, before, &d);
    a->known = NULL;
    return status;
}

static int open_files(adapter *a, const char *dir, const model_config *base, digest_memo *memo, err *e)
{
    char *config_path = path_join(dir, files[0]), *path = path_join(dir, files[1]);
    memo_stamp before;
    memset(&before, 0, sizeof before);
    if (memo)
        memo_stamp_of(&before, dir, files);
    char *pickled = path_join(dir, "adapter_model.bin"), *model_path = path_join(dir, "config.json");
    buf config = {0};
    size_t n_bytes;
    int status = -1;
    if (!file_is_dir(dir))
        err_set(e, "%s is not a directory", dir);
    else if (!file_exists(config_path) && file_exists(model_path))
        err_set(e, "%s is a model, not an adapter: it has a config.json, but no adapter_config.json", dir);
    else if (file_read(&config, config_path, ADAPTER_MAX_CONFIG, e))
        ;
    else if (!file_exists(path) && file_exists(pickled))
        err_set(e, "%s: adapter_model.bin is not read; save the adapter as safetensors", dir);
    else if ((a->bytes = load_weights(a, path, base, &n_bytes, e))) {
        status = open_remembered(a, dir, config.data ? config.data : "", config.len, n_bytes, &before, memo, base, e);
        if (status)
            err_wrap(e, "%s", dir);
    }
    buf_free(&config);
    free(model_path);
    free(pickled);
    free(path);
    free(config_path);
    return status;
}

adapter *adapter_open(const char *dir, const model_config *base, err *e)
{
    return adapter_open_again(dir, base, NULL, e);
}

adapter *adapter_open_again(const char *dir, const model_config *base, digest_memo *memo, err *e)
{
    adapter *a = XNEW(adapter);
    if (open_files(a, dir, base, memo, e) == 0)
        return a;
    adapter_close(a);
    return NULL;
}

int adapter_check_headers(const char *dir, const model_config *base, err *e)
{
    adapter *a = XNEW(adapter);
    a->headers_only = true;
    int status = open_files(a, dir, base, NULL, e);
    adapter_close(a);
    return status;
}

void adapter_close(adapter *a)
{
    if (!a)
        return;
    free(a->site);
    safetensors_close(a->weights);
    free(a->bytes);
    free(a->base_name);
    free(a);
}

const adapter_info *adapter_describe(const adapter *a)
{
    return &a->info;
}

int adapter_rank(const adapter *a, int layer, int site, int part)
{
    return a->site[layer * N_SITES + site][part].rank;
}

size_t adapter_rank_bytes(const adapter *a, int n_ranks)
{
    size_t most = 0;
    for (int r = 0; r < n_ranks; r++) {
        size_t bytes = 0;
        for (int i = 0; i < a->n_layers * N_SITES * MAX_PARTS; i++) {
            const pair *p = &a->site[i / MAX_PARTS][i % MAX_PARTS];
            if (!p->rank)
                continue;
            lora_part part = lora_part_of(&a->base, (split){r, n_ranks}, i / MAX_PARTS % N_SITES, i % MAX_PARTS,
                                          p->rank, p->a->t.type, p->b->t.type);
            bytes += tensor_bytes(&part.a) + tensor_bytes(&part.b);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* out[c, r] = in[r, c] of a square as wide as a vector. Each round interleaves the first half of the rows with the
 * second; log2(rows) rounds exchange rows and columns. */
typedef uint16_t vec16 __attribute__((vector_size(16)));
typedef uint32_t vec32 __attribute__((vector_size(16)));

static void transpose_square16(uint16_t *restrict out, size_t out_stride, const uint16_t *restrict in, size_t in_stride)
{
    vec16 x[8], y[8];
    for (int i = 0; i < 8; i++)
        memcpy(&x[i], in + (size_t)i * in_stride, sizeof x[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < 8; i++)
        memcpy(out + (size_t)i * out_stride, &x[i], sizeof x[i]);
}

static void transpose_square32(uint32_t *restrict out, size_t out_stride, const uint32_t *restrict in, size_t in_stride)
{
    vec32 x[4], y[4];
    for (int i = 0; i < 4; i++)
        memcpy(&x[i], in + (size_t)i * in_stride, sizeof x[i]);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + 2], 0, 4, 1, 5);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 2], 2, 6, 3, 7);
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < 4; i++)
        memcpy(out + (size_t)i * out_stride, &x[i], sizeof x[i]);
}

/* Transposes any matrix in strips of rows, of which each square column of output is written a cache line at a time;
 * what is left at the borders is copied element by element. */
#define TRANSPOSE(bits, n)                                                                                           \
    static void transpose##bits(uint##bits##_t *restrict out, const uint##bits##_t *restrict in, int rows, int cols) \
    {                                                                                                                \
        int whole_rows = rows / (n) * (n), whole_cols = cols / (n) * (n), strip = 512 / (bits);                      \
        size_t from = (size_t)cols, to = (size_t)rows;                                                               \
        for (int r0 = 0; r0 < whole_rows; r0 += strip)                                                               \
            for (int c = 0; c < whole_cols; c += (n))                                                                \
                for (int r = r0; r < r0 + strip && r < whole_rows; r += (n))                                         \
                    transpose_square##bits(out + (size_t)c * to + r, to, in + (size_t)r * from + c, from);           \
        for (int r = 0; r < rows; r++)                                                                               \
            for (int c = r < whole_rows ? whole_cols : 0; c < cols; c++)                                             \
                out[(size_t)c * to + (size_t)r] = in[(size_t)r * from + (size_t)c];                                  \
    }
TRANSPOSE(16, 8)
TRANSPOSE(32, 4)

static void transpose(void *out, const tensor *in)
{
    if (in->type == DTYPE_F32)
        transpose32(out, in->data, in->rows, in->cols);
    else
        transpose16(out, in->data, in->rows, in->cols);
}

static void put(const tensor *to, const tensor *from)
{
    if (from->type == to->type)
        memcpy(to->data, from->data, tensor_bytes(to));
    else
        tensor_convert(to->data, to->type, from);
}

/* Copies columns of `from`, starting at `first`. room: space for them in their own type. */
static void put_columns(const tensor *to, const tensor *from, int first, void *room)
{
    if (to->cols == from->cols) {
        put(to, from);
        return;
    }
    size_t size = dtype_size(from->type), row = (size_t)to->cols * size;
    tensor packed = {.data = room, .type = from->type, .rows = to->rows, .cols = to->cols};
    for (int i = 0; i < to->rows; i++)
        memcpy((char *)room + (size_t)i * row,
               (const char *)from->data + ((size_t)i * (size_t)from->cols + (size_t)first) * size, row);
    put(to, &packed);
}

/* Copies rows of `from`, starting at `first`, as columns. room: as above. */
static void put_transposed(const tensor *to, const tensor *from, int first, void *room)
{
    const char *at = (const char *)from->data + (size_t)first * (size_t)from->cols * dtype_size(from->type);
    tensor rows = {.data = (void *)at, .type = from->type, .rows = to->cols, .cols = to->rows};
    tensor turned = {
        .data = from->type == to->type ? to->data : room, .type = from->type, .rows = to->rows, .cols = to->cols};
    transpose(turned.data, &rows);
    if (turned.data == room)
        put(to, &turned);
}

/* Writes one rank's parts; site: its first. */
static void fill_rank(const adapter *a, lora_site *site, split s, void *room)
{
    for (int i = 0; i < a->n_layers * N_SITES * MAX_PARTS; i++) {
        const pair *from = &a->site[i / MAX_PARTS][i % MAX_PARTS];
        const lora_part *to = &site[i / MAX_PARTS].part[i % MAX_PARTS];
        int at = i / MAX_PARTS % N_SITES;
        if (!to->rank)
            continue;
        put_columns(&to->a, &from->a->t, split_in(&a->base, s, at).from, room);
        put_transposed(&to->b, &from->b->t, split_out(&a->base, s, at, i % MAX_PARTS).from, room);
    }
}

lora *adapter_to_lora(const adapter *a, const backend *be)
{
    int n_ranks = group_ranks(be), n_sites = a->n_layers * N_SITES;
    lora *l = lora_new(a->n_layers * n_ranks);
    size_t largest = 0; /* tensor, as stored */
    for (int i = 0; i < l->n_sites * MAX_PARTS; i++) {
        int site = i / MAX_PARTS % n_sites;
        const pair *p = &a->site[site][i % MAX_PARTS];
        if (!p->rank)
            continue;
        lora_part *to = &l->site[i / MAX_PARTS].part[i % MAX_PARTS];
        *to = lora_part_of(&a->base, (split){i / MAX_PARTS / n_sites, n_ranks}, site % N_SITES, i % MAX_PARTS, p->rank,
                           backend_weight_type(be, p->a->t.type), backend_weight_type(be, p->b->t.type));
        to->scale = (float)p->scale;
        size_t bytes =
            tensor_bytes(&p->b->t) > tensor_bytes(&p->a->t) ? tensor_bytes(&p->b->t) : tensor_bytes(&p->a->t);
        largest = bytes > largest ? bytes : largest;
    }
    lora_place(l);
    void *room = xmalloc(largest);
    for (int r = 0; r < n_ranks; r++)
        fill_rank(a, l->site + r * n_sites, (split){r, n_ranks}, room);
    free(room);
    return l;
}
