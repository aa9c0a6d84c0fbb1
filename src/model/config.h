/* config.h - the shape of a base model, read from config.json and generation_config.json */
#ifndef PUNICA_MODEL_CONFIG_H
#define PUNICA_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/tensor.h"
#include "base/err.h"

#define MAX_EOS 16
#define MAX_LAYERS 1024

typedef enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 } rope_kind;

/* What one scale of quantised (FP8) weights covers: the whole matrix, a row, or SCALE_BLOCK x SCALE_BLOCK numbers. */
typedef enum { QUANT_NONE, QUANT_TENSOR, QUANT_CHANNEL, QUANT_BLOCK } quant_kind;

typedef struct {
    char family[16]; /* "llama", "mistral", "qwen2", "qwen3" */
    int n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab;
    int max_positions;
    float rms_eps;
    double rope_theta;
    rope_kind rope;
    double rope_factor, rope_low, rope_high, rope_original; /* linear: factor; llama3: all */
    bool tie_embeddings, qkv_bias, o_bias, mlp_bias, qk_norm;
    int window;                   /* sliding window of attention, 0: none */
    bool *layer_slides;           /* [n_layers], owned: which layers use the window */
    dtype type;                   /* of the weights by config.json; tensors may differ */
    quant_kind quant;             /* of the matrices that are FP8; the files say which ones are */
    const char *quant_scale;      /* their scales are named MODULE.quant_scale */
    int bos, n_eos, eos[MAX_EOS]; /* bos -1: none. eos of both files, each once; all are below vocab */
} model_config;

/* Reads dir/config.json and, if present, dir/generation_config.json. -1 with e set; c then needs no deinit. */
int model_config_read(model_config *c, const char *dir, err *e);
void model_config_deinit(model_config *c);

/* The same from the texts of the two files; generation may be NULL. */
int model_config_parse(model_config *c, const char *config, size_t n_config, const char *generation,
                       size_t n_generation, err *e);

/* Writes the rotary frequencies [head_dim/2], with the scaling applied. */
void model_config_inv_freq(const model_config *c, float *inv_freq);

#endif
