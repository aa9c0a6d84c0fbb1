/* load.c - a model from a Hugging Face directory, and what model.h says about shapes
 *
 * Loading goes in passes over one list of slots: bind each tensor the configuration calls for to its entry in the
 * files; check that no entry is left over; scan all of them for NaN and infinity, which also reads the mapping in;
 * widen the small vectors to F32, and scales of FP8 matrices to the form that ops read; let the backends adopt them
 * (adopt.c). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/finite.h"
#include "model/model.h"

typedef enum { SLOT_MATRIX, SLOT_VECTOR, SLOT_SCALE } slot_kind;

/* A tensor of the model and where it comes from. */
typedef struct {
    tensor *t;
    const safetensors_entry *from;
    slot_kind kind;
    const tensor *scaled; /* of a SLOT_SCALE: the matrix it belongs to */
} slot;

typedef struct {
    model *m;
    model_rank whole; /* the weights in host memory */
    const char *dir;
    const char *prefix; /* of tensor names: "model." or "" */
    slot *slots;        /* [n_slots] */
    size_t n_slots, cap_slots;
    bool *used; /* [entries in the files] */
} loader;

typedef struct {
    const char *name, *block;
    int site, part;
} projection;

static const projection projections[] = {
    {"q_proj", "self_attn", SITE_QKV, 0}, {"k_proj", "self_attn", SITE_QKV, 1},  {"v_proj", "self_attn", SITE_QKV, 2},
    {"o_proj", "self_attn", SITE_O, 0},   {"gate_proj", "mlp", SITE_GATE_UP, 0}, {"up_proj", "mlp", SITE_GATE_UP, 1},
    {"down_proj", "mlp", SITE_DOWN, 0},
};

#define N_PROJECTIONS ((int)(sizeof projections / sizeof projections[0]))

bool model_find_proj(const char *name, int *site, int *part)
{
    for (int i = 0; i < N_PROJECTIONS; i++)
        if (strcmp(name, projections[i].name) == 0) {
            *site = projections[i].site;
            *part = projections[i].part;
            return true;
        }
    return false;
}

void model_proj_name(int site, int part, const char **block, const char **name)
{
    for (int i = 0; i < N_PROJECTIONS; i++)
        if (projections[i].site == site && projections[i].part == part) {
            *block = projections[i].block;
            *name = projections[i].name;
            return;
        }
    CHECK(!"no such projection");
}

int model_site_parts(int site)
{
    static const int n_parts[N_SITES] = {3, 1, 2, 1};
    return n_parts[site];
}

void model_proj_shape(const model_config *c, int site, int part, int *in, int *out)
{
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    *in = site == SITE_O ? q : site == SITE_DOWN ? c->ffn : c->hidden;
    *out = site == SITE_QKV ? (part == 0 ? q : kv) : site == SITE_GATE_UP ? c->ffn : c->hidden;
}

static int check_shape(const safetensors_entry *t, const char *wanted, err *e)
{
    char found[SAFETENSORS_SHAPE_TEXT];
    if (strcmp(safetensors_shape(t, found), wanted) != 0)
        return err_set(e, "%s: tensor \"%s\" is %s; by config.json it must be %s", t->file, t->name, found, wanted);
    return 0;
}

static int check_dtype(const safetensors_entry *t, bool may_be_f8, err *e)
{
    if (t->usable && (may_be_f8 || t->t.type != DTYPE_F8))
        return 0;
    return err_set(e, "%s: tensor \"%s\" is %s; only F32, F16 and BF16%s are supported", t->file, t->name,
                   t->dtype_text, may_be_f8 ? ", and F8_E4M3 in quantised models," : "");
}

/* Finds the entry MODULE.what, or NULL with e set. */
static const safetensors_entry *find_entry(const loader *l, const char *module, const char *what, err *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", module, what);
    const safetensors_entry *from = safetensors_find(l->m->files, name);
    if (!from)
        err_set(e, "%s: tensor \"%s\" is missing", l->dir, name);
    return from;
}

static void add_slot(loader *l, slot s)
{
    *s.t = s.from->t;
    l->used[s.from - safetensors_at(l->m->files, 0)] = true;
    l->slots = xgrow(l->slots, &l->cap_slots, l->n_slots + 1, sizeof *l->slots);
    l->slots[l->n_slots++] = s;
}

/* Binds a matrix MODULE.weight, which may be F8 only with may_be_f8. */
static int bind_matrix(loader *l, tensor *t, int rows, int cols, bool may_be_f8, const char *module, err *e)
{
    char wanted[32];
    const safetensors_entry *from = find_entry(l, module, "weight", e);
    snprintf(wanted, sizeof wanted, "[%d, %d]", rows, cols);
    if (!from || check_shape(from, wanted, e) || check_dtype(from, may_be_f8, e))
        return -1;
    add_slot(l, (slot){.t = t, .from = from, .kind = SLOT_MATRIX});
    return 0;
}

static int bind_vector(loader *l, tensor *t, int n, const char *module, const char *what, err *e)
{
    char wanted[32];
    const safetensors_entry *from = find_entry(l, module, what, e);
    snprintf(wanted, sizeof wanted, "[%d]", n);
    if (!from || check_shape(from, wanted, e) || check_dtype(from, false, e))
        return -1;
    add_slot(l, (slot){.t = t, .from = from, .kind = SLOT_VECTOR});
    return 0;
}

/* Binds the scales of an F8 matrix, as the file has them; a single scale may be a scalar. */
static int bind_scale(loader *l, proj *p, const char *module, err *e)
{
    const model_config *c = &l->m->config;
    const tensor *w = &p->w;
    char wanted[32] = "[1]";
    const safetensors_entry *from = find_entry(l, module, c->quant_scale, e);
    if (c->quant == QUANT_CHANNEL)
        snprintf(wanted, sizeof wanted, "[%d, 1]", w->rows);
    else if (c->quant == QUANT_BLOCK)
        snprintf(wanted, sizeof wanted, "[%d, %d]", scale_blocks(w->rows), scale_blocks(w->cols));
    if (!from || ((c->quant != QUANT_TENSOR || from->n_dims != 0) && check_shape(from, wanted, e)) ||
        check_dtype(from, false, e))
        return -1;
    add_slot(l, (slot){.t = &p->scale, .from = from, .kind = SLOT_SCALE, .scaled = w});
    return 0;
}

static int bind_weights(loader *l, proj *p, int rows, int cols, const char *module, err *e)
{
    if (bind_matrix(l, &p->w, rows, cols, l->m->config.quant != QUANT_NONE, module, e))
        return -1;
    return p->w.type == DTYPE_F8 ? bind_scale(l, p, module, e) : 0;
}

static bool has_bias(const model_config *c, int site)
{
    return site == SITE_QKV ? c->qkv_bias : site == SITE_O ? c->o_bias : c->mlp_bias;
}

static int bind_projection(loader *l, int layer, const projection *p, err *e)
{
    const model_config *c = &l->m->config;
    linear *to = &l->whole.layer[layer].site[p->site];
    char module[96];
    int in, out;
    snprintf(module, sizeof module, "%slayers.%d.%s.%s", l->prefix, layer, p->block, p->name);
    model_proj_shape(c, p->site, p->part, &in, &out);
    to->n = model_site_parts(p->site);
    if (bind_weights(l, &to->part[p->part], out, in, module, e))
        return -1;
    return has_bias(c, p->site) ? bind_vector(l, &to->part[p->part].bias, out, module, "bias", e) : 0;
}

static int bind_norm(loader *l, tensor *t, int n, int layer, const char *name, err *e)
{
    char module[96];
    snprintf(module, sizeof module, "%slayers.%d.%s", l->prefix, layer, name);
    return bind_vector(l, t, n, module, "weight", e);
}

static int bind_layer(loader *l, int layer, err *e)
{
    const model_config *c = &l->m->config;
    model_layer *to = &l->whole.layer[layer];
    if (bind_norm(l, &to->attn_norm, c->hidden, layer, "input_layernorm", e) ||
        bind_norm(l, &to->mlp_norm, c->hidden, layer, "post_attention_layernorm", e))
        return -1;
    if (c->qk_norm && (bind_norm(l, &to->q_norm, c->head_dim, layer, "self_attn.q_norm", e) ||
                       bind_norm(l, &to->k_norm, c->head_dim, layer, "self_attn.k_norm", e)))
        return -1;
    for (int i = 0; i < N_PROJECTIONS; i++)
        if (bind_projection(l, layer, &projections[i], e))
            return -1;
    return 0;
}

/* Checkpoints of the bare transformer, without its language model head, have no "model." in front. */
static int bind_all(loader *l, err *e)
{
    model *m = l->m;
    const model_config *c = &m->config;
    bool bare = safetensors_find(m->files, "embed_tokens.weight") != NULL;
    l->prefix = bare ? "" : "model.";
    l->whole.lm_head.n = 1;
    if (bind_matrix(l, &l->whole.embed, c->vocab, c->hidden, false, bare ? "embed_tokens" : "model.embed_tokens", e) ||
        bind_vector(l, &l->whole.final_norm, c->hidden, bare ? "norm" : "model.norm", "weight", e))
        return -1;
    if (!c->tie_embeddings && bind_weights(l, &l->whole.lm_head.part[0], c->vocab, c->hidden, "lm_head", e))
        return -1;
    for (int i = 0; i < c->n_layers; i++)
        if (bind_layer(l, i, e))
            return -1;
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), suffix = strlen(end);
    return n >= suffix && strcmp(text + n - suffix, end) == 0;
}

/* Returns whether the model does without an entry: rotary tables that old checkpoints stored, an output matrix beside
 * the embedding it is tied to, and scales for activations, which are not quantised. */
static bool is_redundant(const safetensors_entry *t, const model_config *c)
{
    if (ends_with(t->name, "rotary_emb.inv_freq") ||
        (c->quant != QUANT_NONE && ends_with(t->name, "_proj.input_scale")))
        return true;
    return c->tie_embeddings && strcmp(t->name, "lm_head.weight") == 0;
}

static int check_none_left(const loader *l, err *e)
{
    const model_config *c = &l->m->config;
    for (int i = 0; i < safetensors_count(l->m->files); i++) {
        const safetensors_entry *t = safetensors_at(l->m->files, i);
        if (!l->used[i] && !is_redundant(t, c))
            return err_set(e,
                           "%s: tensor \"%.120s\" has no place in the %s model of %d layers that config.json "
                           "describes",
                           t->file, t->name, c->family, c->n_layers);
    }
    return 0;
}

static int check_finite(const loader *l, err *e)
{
    const tensor **t = XNEW_ARRAY(const tensor *, l->n_slots);
    for (size_t i = 0; i < l->n_slots; i++)
        t[i] = l->slots[i].t;
    int bad = finite_scan(t, (int)l->n_slots);
    free(t);
    if (bad < 0)
        return 0;
    return err_set(e, "%s: tensor \"%s\" holds NaN or infinity", l->slots[bad].from->file, l->slots[bad].from->name);
}

/* Writes scales of any kind as [n, rows of w], see proj. */
static void spread_scales(float *out, quant_kind kind, const float *scale, const tensor *w)
{
    int n_blocks = scale_blocks(w->cols), n = kind == QUANT_BLOCK ? n_blocks : 1;
    for (int k = 0; k < n; k++)
        for (int row = 0; row < w->rows; row++)
            *out++ = kind == QUANT_TENSOR    ? scale[0]
                     : kind == QUANT_CHANNEL ? scale[row]
                                             : scale[row / SCALE_BLOCK * n_blocks + k];
}

/* The shape of a small tensor as ops read it. */
static tensor widened(const loader *l, const slot *s)
{
    bool blocks = s->kind == SLOT_SCALE && l->m->config.quant == QUANT_BLOCK;
    return (tensor){.type = DTYPE_F32,
                    .rows = blocks ? scale_blocks(s->scaled->cols) : 1,
                    .cols = s->kind == SLOT_SCALE ? s->scaled->rows : s->t->cols};
}

static void widen_slot(const loader *l, slot *s, float *at)
{
    tensor to = widened(l, s);
    to.data = at;
    if (s->kind == SLOT_VECTOR) {
        tensor_convert(at, DTYPE_F32, s->t);
    } else {
        float *stored = XNEW_ARRAY(float, (size_t)s->t->rows *(size_t)s->t->cols);
        tensor_convert(stored, DTYPE_F32, s->t);
        spread_scales(at, l->m->config.quant, stored, s->scaled);
        free(stored);
    }
    *s->t = to;
}

/* Converts everything but matrices to F32. */
static void widen_small(loader *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_slots; i++) {
        tensor t = widened(l, &l->slots[i]);
        n += l->slots[i].kind != SLOT_MATRIX ? tensor_bytes(&t) / sizeof(float) : 0;
    }
    float *at = l->m->vectors = XNEW_ARRAY(float, n);
    for (size_t i = 0; i < l->n_slots; i++)
        if (l->slots[i].kind != SLOT_MATRIX) {
            widen_slot(l, &l->slots[i], at);
            at += (size_t)l->slots[i].t->rows * (size_t)l->slots[i].t->cols;
        }
}

static int load_weights(model *m, const char *dir, err *e)
{
    if (safetensors_count(m->files) == 0)
        return err_set(e, "%s: the safetensors file holds no tensors", dir);
    loader l = {.m = m, .dir = dir, .used = XNEW_ARRAY(bool, (size_t)safetensors_count(m->files))};
    l.whole.layer = XNEW_ARRAY(model_layer, (size_t)m->config.n_layers);
    int status = bind_all(&l, e) || check_none_left(&l, e) || check_finite(&l, e) ? -1 : 0;
    if (status == 0) {
        widen_small(&l);
        status = model_adopt(m, &l.whole, e);
    }
    free(l.whole.layer);
    free(l.slots);
    free(l.used);
    return status;
}

int weights_form_find(const char *name, weights_form *form, err *e)
{
    if (strcmp(name, "stored") != 0 && strcmp(name, "fp8") != 0)
        return err_set(e, "unknown form of weights \"%s\"; known: stored, fp8", name);
    *form = name[0] == 'f' ? WEIGHTS_FP8 : WEIGHTS_STORED;
    return 0;
}

int kv_form_find(const char *name, kv_form *form, err *e)
{
    if (strcmp(name, "auto") != 0 && strcmp(name, "fp8") != 0)
        return err_set(e, "unknown form of the KvCache \"%s\"; known: auto, fp8", name);
    *form = name[0] == 'f' ? KV_FP8 : KV_PLAIN;
    return 0;
}

static int read_config(model_config *c, const char *dir, err *e)
{
    return file_is_dir(dir) ? model_config_read(c, dir, e) : err_set(e, "%s is not a directory", dir);
}

int model_weights_type(const char *dir, dtype *type, err *e)
{
    model_config c;
    if (read_config(&c, dir, e))
        return -1;
    *type = c.type;
    model_config_deinit(&c);
    return 0;
}

model *model_load(backend *be, const char *dir, weights_form form, err *e)
{
    model *m = XNEW(model);
    if (read_config(&m->config, dir, e) == 0 && model_init(m, be, form, e) == 0 &&
        (m->files = safetensors_open_dir(dir, e)) && load_weights(m, dir, e) == 0)
        return m;
    model_free(m);
    return NULL;
}
