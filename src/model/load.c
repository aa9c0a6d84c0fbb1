/* load.c - a model from a Hugging Face directory, and what model.h says about shapes
 *
 * Loading goes in passes over one list of slots: bind each tensor the configuration calls for to its
 * entry in the files; see that no entry is left over; scan all of them for NaN and infinity, which
 * also brings the mapping in; widen the small vectors to F32; let the backend adopt each. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "model/finite.h"
#include "model/model.h"

/* A tensor of the model and where it comes from. */
typedef struct { tensor *t; const safetensors_entry *from; bool is_vector; } slot;

typedef struct {
    model *m;
    const char *dir;
    const char *prefix;             /* of tensor names: "model." or "" */
    slot *slots;                    /* [n_slots] */
    size_t n_slots, cap_slots;
    bool *used;                     /* [entries in the files] */
} loader;

typedef struct { const char *name, *block; int site, part; } projection;

static const projection projections[] = {
    {"q_proj", "self_attn", SITE_QKV, 0}, {"k_proj", "self_attn", SITE_QKV, 1}, {"v_proj", "self_attn", SITE_QKV, 2},
    {"o_proj", "self_attn", SITE_O, 0}, {"gate_proj", "mlp", SITE_GATE_UP, 0}, {"up_proj", "mlp", SITE_GATE_UP, 1},
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

int model_put_inv_freq(model *m, err *e)
{
    size_t n = (size_t)m->config.head_dim / 2;
    float *table = XNEW_ARRAY(float, n);
    model_config_inv_freq(&m->config, table);
    m->inv_freq = m->be->ops->alloc(m->be, n * sizeof *table, e);
    if (m->inv_freq)
        m->be->ops->upload(m->be, m->inv_freq, table, n * sizeof *table);
    free(table);
    return m->inv_freq ? 0 : -1;
}

static int adopt_layer(backend *be, model_layer *l, err *e)
{
    tensor *norms[] = {&l->attn_norm, &l->mlp_norm, &l->q_norm, &l->k_norm};
    for (int i = 0; i < 4; i++)
        if (norms[i]->data && be->ops->adopt(be, norms[i], e))
            return -1;
    for (int s = 0; s < N_SITES; s++)
        if (be->ops->adopt_linear(be, &l->site[s], e))
            return -1;
    return 0;
}

/* Weights that are copied must fit; where they are borrowed they are there already. */
static int check_room(const model *m, err *e)
{
    backend *be = m->be;
    size_t left = be->owns_host_memory ? SIZE_MAX : be->ops->available(be);
    if (m->weight_bytes <= left)
        return 0;
    return err_set(e, "the weights are %.2f GB; %s has %.2f GB free", (double)m->weight_bytes * 1e-9, be->name, (double)left * 1e-9);
}

int model_adopt(model *m, err *e)
{
    backend *be = m->be;
    if (check_room(m, e))
        return -1;
    if (be->ops->adopt(be, &m->embed, e) || be->ops->adopt(be, &m->final_norm, e))
        return err_wrap(e, "embedding");
    if (m->config.tie_embeddings)
        m->lm_head.part[0].w = m->embed;
    else if (be->ops->adopt_linear(be, &m->lm_head, e))
        return err_wrap(e, "output matrix");
    for (int i = 0; i < m->config.n_layers; i++)
        if (adopt_layer(be, &m->layer[i], e))
            return err_wrap(e, "layer %d of %d", i + 1, m->config.n_layers);
    return 0;
}

static int check_entry(const safetensors_entry *t, int n_dims, int rows, int cols, err *e)
{
    char found[SAFETENSORS_SHAPE_TEXT], wanted[32];
    if (n_dims == 2)
        snprintf(wanted, sizeof wanted, "[%d, %d]", rows, cols);
    else
        snprintf(wanted, sizeof wanted, "[%d]", cols);
    if (strcmp(safetensors_shape(t, found), wanted) != 0)
        return err_set(e, "%s: tensor \"%s\" is %s; by config.json it must be %s", t->file, t->name, found, wanted);
    if (!t->usable)
        return err_set(e, "%s: tensor \"%s\" is %s; only F32, F16 and BF16 are supported", t->file, t->name,
                       t->dtype_text);
    return 0;
}

/* Bind a tensor to the entry of this name. A vector has n_dims 1 and rows 1. */
static int bind(loader *l, tensor *t, int n_dims, int rows, int cols, const char *name, err *e)
{
    const safetensors_entry *first = safetensors_at(l->m->files, 0), *from = safetensors_find(l->m->files, name);
    if (!from)
        return err_set(e, "%s: tensor \"%s\" is missing", l->dir, name);
    if (check_entry(from, n_dims, rows, cols, e))
        return -1;
    *t = from->t;
    l->used[from - first] = true;
    l->slots = xgrow(l->slots, &l->cap_slots, l->n_slots + 1, sizeof *l->slots);
    l->slots[l->n_slots++] = (slot){.t = t, .from = from, .is_vector = n_dims == 1};
    return 0;
}

static int bind_matrix(loader *l, tensor *t, int rows, int cols, const char *module, err *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", module);
    return bind(l, t, 2, rows, cols, name, e);
}

static int bind_vector(loader *l, tensor *t, int n, const char *module, const char *what, err *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", module, what);
    return bind(l, t, 1, 1, n, name, e);
}

static bool has_bias(const model_config *c, int site)
{
    return site == SITE_QKV ? c->qkv_bias : site == SITE_O ? c->o_bias : c->mlp_bias;
}

static int bind_projection(loader *l, int layer, const projection *p, err *e)
{
    const model_config *c = &l->m->config;
    linear *to = &l->m->layer[layer].site[p->site];
    char module[96];
    int in, out;
    snprintf(module, sizeof module, "%slayers.%d.%s.%s", l->prefix, layer, p->block, p->name);
    model_proj_shape(c, p->site, p->part, &in, &out);
    to->n = model_site_parts(p->site);
    if (bind_matrix(l, &to->part[p->part].w, out, in, module, e))
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
    model_layer *to = &l->m->layer[layer];
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
    m->lm_head.n = 1;
    if (bind_matrix(l, &m->embed, c->vocab, c->hidden, bare ? "embed_tokens" : "model.embed_tokens", e) ||
        bind_vector(l, &m->final_norm, c->hidden, bare ? "norm" : "model.norm", "weight", e))
        return -1;
    if (!c->tie_embeddings && bind_matrix(l, &m->lm_head.part[0].w, c->vocab, c->hidden, "lm_head", e))
        return -1;
    for (int i = 0; i < c->n_layers; i++)
        if (bind_layer(l, i, e))
            return -1;
    return 0;
}

/* Entries the model does without: rotary tables that old checkpoints stored, and an output matrix
 * beside the embedding it is tied to. */
static bool is_redundant(const safetensors_entry *t, const model_config *c)
{
    static const char table[] = "rotary_emb.inv_freq";
    size_t n = strlen(t->name), suffix = sizeof table - 1;
    if (n >= suffix && strcmp(t->name + n - suffix, table) == 0)
        return true;
    return c->tie_embeddings && strcmp(t->name, "lm_head.weight") == 0;
}

static int check_none_left(const loader *l, err *e)
{
    const model_config *c = &l->m->config;
    for (int i = 0; i < safetensors_count(l->m->files); i++) {
        const safetensors_entry *t = safetensors_at(l->m->files, i);
        if (!l->used[i] && !is_redundant(t, c))
            return err_set(e, "%s: tensor \"%.120s\" has no place in the %s model of %d layers that config.json "
                           "describes", t->file, t->name, c->family, c->n_layers);
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

/* Any vector as F32. */
static void widen(float *out, const tensor *t)
{
    const uint16_t *half = t->data;
    if (t->type == DTYPE_F32)
        memcpy(out, t->data, tensor_bytes(t));
    for (int i = 0; t->type != DTYPE_F32 && i < t->cols; i++)
        out[i] = t->type == DTYPE_BF16 ? bf16_to_float(half[i]) : f16_to_float(half[i]);
}

static void widen_vectors(loader *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_slots; i++)
        n += l->slots[i].is_vector ? (size_t)l->slots[i].t->cols : 0;
    float *at = l->m->vectors = XNEW_ARRAY(float, n);
    for (size_t i = 0; i < l->n_slots; i++) {
        tensor *t = l->slots[i].t;
        if (!l->slots[i].is_vector)
            continue;
        widen(at, t);
        *t = (tensor){.data = at, .type = DTYPE_F32, .rows = 1, .cols = t->cols};
        at += t->cols;
    }
}

/* As the backend holds them: vectors as F32, matrices in its own type where it has one. */
static void count_bytes(loader *l)
{
    for (size_t i = 0; i < l->n_slots; i++) {
        tensor held = *l->slots[i].t;
        if (!l->slots[i].is_vector)
            held.type = backend_weight_type(l->m->be, held.type);
        l->m->weight_bytes += tensor_bytes(&held);
    }
}

static int load_weights(model *m, const char *dir, err *e)
{
    if (safetensors_count(m->files) == 0)
        return err_set(e, "%s: the safetensors file holds no tensors", dir);
    loader l = {.m = m, .dir = dir, .used = XNEW_ARRAY(bool, (size_t)safetensors_count(m->files))};
    int status = bind_all(&l, e) || check_none_left(&l, e) || check_finite(&l, e) ? -1 : 0;
    if (status == 0) {
        widen_vectors(&l);
        count_bytes(&l);
        status = model_adopt(m, e);
    }
    free(l.slots);
    free(l.used);
    return status;
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

model *model_load(backend *be, const char *dir, err *e)
{
    model *m = XNEW(model);
    m->be = be;
    if (read_config(&m->config, dir, e) == 0 && (m->files = safetensors_open_dir(dir, e))) {
        m->layer = XNEW_ARRAY(model_layer, (size_t)m->config.n_layers);
        if (load_weights(m, dir, e) == 0 && model_put_inv_freq(m, e) == 0)
            return m;
    }
    model_free(m);
    return NULL;
}

void model_free(model *m)
{
    if (!m)
        return;
    if (m->inv_freq)
        m->be->ops->release(m->be, m->inv_freq);
    safetensors_close(m->files);
    free(m->random);
    free(m->vectors);
    free(m->layer);
    model_config_deinit(&m->config);
    free(m);
}
