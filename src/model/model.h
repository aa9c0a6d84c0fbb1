/* model.h - a base model: its weights, in the backends' memory
 *
 * The linears of a layer are numbered as sites; an adapter's parts are filed under
 * layer * N_SITES + site. */
#ifndef PUNICA_MODEL_MODEL_H
#define PUNICA_MODEL_MODEL_H

#include <stdint.h>

#include "backend/backend.h"
#include "model/config.h"
#include "model/safetensors.h"

enum { SITE_QKV, SITE_O, SITE_GATE_UP, SITE_DOWN, N_SITES };

/* Norms and biases are F32 vectors, whatever the checkpoint stores them as; matrices keep their type. */
typedef struct {
    tensor attn_norm, q_norm, k_norm, mlp_norm; /* q_norm, k_norm absent unless config.qk_norm */
    linear site[N_SITES];                       /* q|k|v, o, gate|up, down */
} model_layer;

/* What one rank holds: the whole model, or its share of a split one (split.h). */
typedef struct {
    tensor embed; /* [its stretch of the vocabulary, hidden] */
    tensor final_norm;
    linear lm_head;     /* one part; the same data as embed when tied */
    model_layer *layer; /* [n_layers] */
    float *inv_freq;    /* [head_dim/2], backend memory */
} model_rank;

typedef struct {
    model_config config;
    backend *be;        /* borrowed: must outlive the model. Of a group: the first */
    model_rank *rank;   /* [group_ranks(be)] */
    safetensors *files; /* the mapped weights, or NULL for a random model */
    float *vectors;     /* norms, biases and FP8 scales converted from files, or NULL */
    void *random;       /* a random model's weights, or NULL */
    bool to_fp8;        /* quantise the layers' matrices that are not F8 yet when they are adopted */
    void **made;        /* [n_made] memory of quantised or packed weights that the backend borrows */
    size_t n_made, made_cap;
    size_t weight_bytes; /* as the backends hold them, of all ranks */
} model;

/* How a model's layers are to be held: as they are stored, or in FP8, quantised row by row while they are loaded (what
 * is FP8 already stays as it is). */
typedef enum { WEIGHTS_STORED, WEIGHTS_FP8 } weights_form;

/* Finds a form by its name, "stored" or "fp8". -1 with e set for any other. */
int weights_form_find(const char *name, weights_form *form, err *e);

/* How keys and values are held: in the backend's act type, or in FP8 with a scale for each head and position. */
typedef enum { KV_PLAIN, KV_FP8 } kv_form;

/* Finds a form by its name, "auto" (KV_PLAIN) or "fp8". -1 with e set for any other. */
int kv_form_find(const char *name, kv_form *form, err *e);

/* What to call weights of this form in output: "F16", "FP8". */
static inline const char *weights_name(weights_form form, quant_kind quant, dtype type)
{
    return form == WEIGHTS_FP8 || quant != QUANT_NONE ? "FP8" : dtype_name(type);
}

/* Loads a Hugging Face model directory. Weights are mapped, not copied, where the backend allows; all are checked for
 * shape, and for NaN and infinity. Result owned by the caller, or NULL with e set. */
model *model_load(backend *be, const char *dir, weights_form form, err *e);

/* Sets *type to what config.json says of the weights of a model directory. -1 with e set. */
int model_weights_type(const char *dir, dtype *type, err *e);

/* Makes a model of this shape with random weights of config.type, for benchmarks. Takes over config's owned fields, on
 * failure too. NULL with e set. */
model *model_random(backend *be, const model_config *config, weights_form form, uint64_t seed, err *e);

void model_free(model *m);

/* Prepares *m, which has its config, for model_adopt(). -1 with e set when it cannot be split as the backend's group
 * wants it. */
int model_init(model *m, backend *be, weights_form form, err *e);

/* Hands all weights, which lie whole in host memory, to the backends, each rank its share; whole is not needed after
 * that. -1 with e set. */
int model_adopt(model *m, const model_rank *whole, err *e);

/* Returns the bytes of the embedding, of which a step reads next to nothing. */
double model_embed_bytes(const model *m);

/* Finds the site and part of a projection by its name, "q_proj" ... "down_proj". False if there is none. */
bool model_find_proj(const char *name, int *site, int *part);

/* Finds the name of a projection and of the block it stands in: "q_proj" and "self_attn". */
void model_proj_name(int site, int part, const char **block, const char **name);

/* Projections at a site: 3, 1, 2, 1. */
int model_site_parts(int site);

/* in and out dimensions of one projection. */
void model_proj_shape(const model_config *c, int site, int part, int *in, int *out);

#endif
