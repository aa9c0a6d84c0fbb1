/* config.c - see config.h
 *
 * Two generations of config.json are in use: the old one with rope_theta, rope_scaling and torch_dtype at the top
 * level, and since Transformers 5 one with rope_parameters and dtype. Keys that are absent take the default that
 * Transformers gives them for the family. Every number is bounded here, so that products of them fit an int or a size_t
 * later on. */
#include "model/config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/adapter.h"

#define MAX_CONFIG_FILE ((size_t)4 << 20)
#define MAX_WIDTH (1 << 20)
#define MAX_HEAD_DIM 1024
#define MAX_VOCAB (4 << 20)
#define MAX_POSITIONS (1 << 27)

/* What a family does regardless of config.json, and what it takes from there. */
typedef struct {
    const char *name;
    bool qkv_bias; /* always */
    bool reads_attention_bias, reads_mlp_bias;
    bool qk_norm;
    bool slides_on_request;              /* sliding_window counts only with use_sliding_window */
    int head_dim, max_positions, window; /* defaults; 0: derived, or none */
    int bos, eos;                        /* defaults; -1: none */
} family;

static const family families[] = {
    {"llama", .reads_attention_bias = true, .reads_mlp_bias = true, .max_positions = 2048, .bos = 1, .eos = 2},
    {"mistral", .max_positions = 131072, .window = 4096, .bos = 1, .eos = 2},
    {"qwen2", .qkv_bias = true, .slides_on_request = true, .max_positions = 32768, .window = 4096, .bos = -1,
     .eos = -1},
    {"qwen3", .reads_attention_bias = true, .qk_norm = true, .slides_on_request = true, .head_dim = 128,
     .max_positions = 32768, .window = 4096, .bos = -1, .eos = -1},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

static const family *find_family(const json_t *doc, err *e)
{
    const char *name = "";
    if (json_get_string(doc, "model_type", &name, e))
        return NULL;
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(name, families[i].name) == 0)
            return &families[i];
    buf known = {0};
    for (size_t i = 0; i < N_FAMILIES; i++)
        buf_printf(&known, "%s%s", i ? ", " : "", families[i].name);
    err_set(e, "model_type \"%.40s\" is not supported; supported: %s", name, known.data);
    buf_free(&known);
    return NULL;
}

static int get_int(const json_t *doc, const char *key, long min, long max, int *out, err *e)
{
    long n = *out;
    if (json_get_int(doc, key, min, max, &n, e))
        return -1;
    *out = (int)n;
    return 0;
}

static int need_int(const json_t *doc, const char *key, long min, long max, int *out, err *e)
{
    if (!json_member(doc, key))
        return err_set(e, "\"%s\" is missing", key);
    return get_int(doc, key, min, max, out, e);
}

static int read_sizes(model_config *c, const json_t *doc, const family *f, err *e)
{
    double eps = 1e-6;
    c->max_positions = f->max_positions;
    if (need_int(doc, "hidden_size", 1, MAX_WIDTH, &c->hidden, e) ||
        need_int(doc, "intermediate_size", 1, MAX_WIDTH, &c->ffn, e) ||
        need_int(doc, "num_hidden_layers", 1, MAX_LAYERS, &c->n_layers, e) ||
        need_int(doc, "vocab_size", 1, MAX_VOCAB, &c->vocab, e) ||
        get_int(doc, "max_position_embeddings", 1, MAX_POSITIONS, &c->max_positions, e) ||
        json_get_double_in(doc, "rms_norm_eps", 0, 1, &eps, e))
        return -1;
    c->rms_eps = (float)eps;
    return json_get_bool(doc, "tie_word_embeddings", &c->tie_embeddings, e);
}

static int read_heads(model_config *c, const json_t *doc, const family *f, err *e)
{
    if (need_int(doc, "num_attention_heads", 1, MAX_WIDTH, &c->n_heads, e))
        return -1;
    c->n_kv_heads = c->n_heads;
    c->head_dim = f->head_dim;
    if (get_int(doc, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads, e) ||
        get_int(doc, "head_dim", 2, MAX_HEAD_DIM, &c->head_dim, e))
        return -1;
    if (c->head_dim == 0 && c->hidden % c->n_heads)
        return err_set(e,
                       "\"hidden_size\" %d is not a multiple of \"num_attention_heads\" %d, and there is no "
                       "\"head_dim\"",
                       c->hidden, c->n_heads);
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > MAX_HEAD_DIM)
        return err_set(e, "a head dimension of %d is not supported: it must be even and at most %d", c->head_dim,
                       MAX_HEAD_DIM);
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, "\"num_attention_heads\" %d is not a multiple of \"num_key_value_heads\" %d", c->n_heads,
                       c->n_kv_heads);
    if ((long)c->n_heads * c->head_dim > MAX_WIDTH)
        return err_set(e, "%d heads of dimension %d are more than %d wide", c->n_heads, c->head_dim, MAX_WIDTH);
    return 0;
}

static int refuse_partial_rotary(const json_t *section, err *e)
{
    double factor = 1;
    if (json_get_double(section, "partial_rotary_factor", &factor, e))
        return -1;
    return factor == 1 ? 0 : err_set(e, "\"partial_rotary_factor\" %g is not supported; only 1 is", factor);
}

/* Refuses settings that change the computation in ways not implemented. */
static int refuse_unsupported(const json_t *doc, err *e)
{
    const char *act = "silu";
    if (json_get_string(doc, "hidden_act", &act, e) || refuse_partial_rotary(doc, e))
        return -1;
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return err_set(e, "\"hidden_act\" \"%.40s\" is not supported; silu is", act);
    return 0;
}

#define SUPPORTED_QUANT "compressed-tensors in format float-quantized and fp8 in blocks of 128 x 128 are supported"

/* Checks weight_block_size or block_structure, of which only [128, 128] is supported. */
static int check_block(const json_t *block, const char *key, err *e)
{
    for (size_t i = 0; i < 2; i++)
        if (json_array_size(block) != 2 || json_integer_value(json_array_get(block, i)) != SCALE_BLOCK)
            return err_set(e, "\"%s\" must be [%d, %d]", key, SCALE_BLOCK, SCALE_BLOCK);
    return 0;
}

/* Reads how a group of compressed-tensors stores its weights. They must be symmetric 8-bit floats with one scale for
 * the matrix, a row or a block. */
static int read_group_weights(model_config *c, const json_t *weights, err *e)
{
    const char *type = "", *strategy = "";
    int bits = 0;
    bool symmetric = true;
    if (!json_is_object(weights))
        return err_set(e, "\"weights\" must be an object");
    if (json_get_string(weights, "type", &type, e) || json_get_string(weights, "strategy", &strategy, e) ||
        get_int(weights, "num_bits", 0, 64, &bits, e) || json_get_bool(weights, "symmetric", &symmetric, e))
        return -1;
    if (strcmp(type, "float") != 0 || bits != 8 || !symmetric)
        return err_set(e, "weights of type \"%.40s\" and %d bits%s are not supported; symmetric floats of 8 bits are",
                       type, bits, symmetric ? "" : ", not symmetric");
    if (strcmp(strategy, "tensor") == 0)
        c->quant = QUANT_TENSOR;
    else if (strcmp(strategy, "channel") == 0)
        c->quant = QUANT_CHANNEL;
    else if (strcmp(strategy, "block") == 0)
        c->quant = QUANT_BLOCK;
    else
        return err_set(e, "\"strategy\" \"%.40s\" of weights is not supported; tensor, channel and block are",
                       strategy);
    return c->quant == QUANT_BLOCK ? check_block(json_member(weights, "block_structure"), "block_structure", e) : 0;
}

/* Activations are not quantised, so settings and scales for a layer's input are ignored. */
static int read_compressed_tensors(model_config *c, const json_t *q, err *e)
{
    const char *format = "";
    const json_t *groups = json_member(q, "config_groups"), *group;
    if (json_get_string(q, "format", &format, e))
        return -1;
    if (strcmp(format, "float-quantized") != 0)
        return err_set(e, "format \"%.40s\" is not supported; float-quantized is", format);
    if (json_member(q, "kv_cache_scheme"))
        return err_set(e,
                       "\"kv_cache_scheme\" is not supported: keys and values have no scales of the checkpoint here");
    if (!json_is_object(groups) || json_object_size(groups) != 1)
        return err_set(e, "\"config_groups\" must be one group; several are not supported");
    group = json_object_iter_value(json_object_iter((json_t *)groups));
    if (json_member(group, "output_activations"))
        return err_set(e, "quantised \"output_activations\" are not supported");
    c->quant_scale = "weight_scale";
    return read_group_weights(c, json_member(group, "weights"), e);
}

static int read_blockwise(model_config *c, const json_t *q, err *e)
{
    const char *scheme = "dynamic", *format = "e4m3";
    const json_t *block = json_member(q, "weight_block_size");
    if (json_get_string(q, "activation_scheme", &scheme, e) || json_get_string(q, "fmt", &format, e))
        return -1;
    if (strcmp(scheme, "dynamic") != 0)
        return err_set(e, "\"activation_scheme\" \"%.40s\" is not supported; dynamic is", scheme);
    if (strcmp(format, "e4m3") != 0)
        return err_set(e, "\"fmt\" \"%.40s\" is not supported; e4m3 is", format);
    c->quant = QUANT_BLOCK;
    c->quant_scale = "weight_scale_inv";
    return check_block(block, "weight_block_size", e);
}

/* The lists of modules that are not quantised (ignore, modules_to_not_convert) are not read: the files show it. */
static int read_quantization(model_config *c, const json_t *doc, err *e)
{
    const json_t *q = json_member(doc, "quantization_config");
    const char *method = "";
    int status;
    if (!q)
        return 0;
    if (!json_is_object(q))
        return err_set(e, "\"quantization_config\" must be an object");
    if (json_get_string(q, "quant_method", &method, e))
        return err_wrap(e, "\"quantization_config\"");
    if (strcmp(method, "compressed-tensors") == 0)
        status = read_compressed_tensors(c, q, e);
    else if (strcmp(method, "fp8") == 0)
        status = read_blockwise(c, q, e);
    else
        status = err_set(e, "\"quant_method\" \"%.40s\" is not supported; " SUPPORTED_QUANT, method);
    return status ? err_wrap(e, "\"quantization_config\"") : 0;
}

static int read_biases(model_config *c, const json_t *doc, const family *f, err *e)
{
    bool attention = false;
    c->qk_norm = f->qk_norm;
    if (f->reads_attention_bias && json_get_bool(doc, "attention_bias", &attention, e))
        return -1;
    if (f->reads_mlp_bias && json_get_bool(doc, "mlp_bias", &c->mlp_bias, e))
        return -1;
    c->qkv_bias = f->qkv_bias || attention;
    c->o_bias = attention;
    return 0;
}

/* Finds the rope section of either generation, or NULL. As in Transformers, a rope_scaling that is not empty takes
 * precedence over rope_parameters. */
static int find_rope(const json_t *doc, const json_t **rope, err *e)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    *rope = NULL;
    for (int i = 0; i < 2; i++) {
        const json_t *section = json_member(doc, keys[i]);
        if (section && !json_is_object(section))
            return err_set(e, "\"%s\" must be an object", keys[i]);
        if (!*rope && json_object_size(section))
            *rope = section;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)*rope, key, value) if (json_is_object(value)) return err_set(
        e, "rope parameters by layer type (\"%.40s\") are not supported", key);
    return 0;
}

static int read_llama3(model_config *c, const json_t *doc, const json_t *rope, err *e)
{
    if (!json_member(rope, "low_freq_factor") || !json_member(rope, "high_freq_factor"))
        return err_set(e, "rope type \"llama3\" needs \"low_freq_factor\" and \"high_freq_factor\"");
    c->rope_original = c->max_positions;
    if (json_get_double_in(rope, "low_freq_factor", 1e-3, 1e6, &c->rope_low, e) ||
        json_get_double_in(rope, "high_freq_factor", 1e-3, 1e6, &c->rope_high, e) ||
        json_get_double_in(rope, "original_max_position_embeddings", 1, MAX_POSITIONS, &c->rope_original, e) ||
        json_get_double_in(doc, "original_max_position_embeddings", 1, MAX_POSITIONS, &c->rope_original, e))
        return -1;
    if (c->rope_high <= c->rope_low)
        return err_set(e, "\"high_freq_factor\" %g must be larger than \"low_freq_factor\" %g", c->rope_high,
                       c->rope_low);
    return 0;
}

static int read_rope_scaling(model_config *c, const json_t *doc, const json_t *rope, err *e)
{
    const char *type = "default";
    if (json_get_string(rope, "type", &type, e) || json_get_string(rope, "rope_type", &type, e) ||
        refuse_partial_rotary(rope, e))
        return -1;
    if (strcmp(type, "default") == 0)
        return 0;
    if (strcmp(type, "linear") == 0)
        c->rope = ROPE_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        c->rope = ROPE_LLAMA3;
    else
        return err_set(e, "rope type \"%.40s\" is not supported; default, linear and llama3 are", type);
    if (!json_member(rope, "factor"))
        return err_set(e, "rope type \"%s\" needs \"factor\"", type);
    if (json_get_double_in(rope, "factor", 1e-3, 1e6, &c->rope_factor, e))
        return -1;
    return c->rope == ROPE_LLAMA3 ? read_llama3(c, doc, rope, e) : 0;
}

static int read_rope(model_config *c, const json_t *doc, err *e)
{
    const json_t *rope;
    c->rope_theta = 10000;
    c->rope = ROPE_PLAIN;
    if (find_rope(doc, &rope, e) || json_get_double_in(doc, "rope_theta", 1, 1e12, &c->rope_theta, e))
        return -1;
    if (json_get_double_in(json_member(doc, "rope_parameters"), "rope_theta", 1, 1e12, &c->rope_theta, e) ||
        json_get_double_in(rope, "rope_theta", 1, 1e12, &c->rope_theta, e))
        return -1;
    return rope ? read_rope_scaling(c, doc, rope, e) : 0;
}

/* Reads layer_types: "full_attention" or "sliding_attention" for each layer. */
static int read_layer_types(model_config *c, const json_t *types, err *e)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers)
        return err_set(e, "\"layer_types\" must be a list of %d names, one per layer", c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        c->layer_slides[i] = type && strcmp(type, "sliding_attention") == 0;
        if (!c->layer_slides[i] && (!type || strcmp(type, "full_attention") != 0))
            return err_set(e, "\"layer_types\" has \"%.40s\"; full_attention and sliding_attention are supported",
                           type ? type : "something that is not a name");
        if (c->layer_slides[i] && c->window == 0)
            return err_set(e, "\"layer_types\" has sliding_attention, but no \"sliding_window\" is in force");
    }
    return 0;
}

static int read_window(model_config *c, const json_t *doc, const family *f, err *e)
{
    bool slides = !f->slides_on_request;
    int from_layer = f->slides_on_request ? 28 : 0;
    c->layer_slides = XNEW_ARRAY(bool, (size_t)c->n_layers);
    if (f->slides_on_request && (json_get_bool(doc, "use_sliding_window", &slides, e) ||
                                 get_int(doc, "max_window_layers", 0, INT_MAX, &from_layer, e)))
        return -1;
    if (slides && f->window && !json_is_null(json_object_get(doc, "sliding_window"))) {
        c->window = f->window;
        if (get_int(doc, "sliding_window", 1, INT_MAX, &c->window, e))
            return -1;
    }
    for (int i = 0; i < c->n_layers; i++)
        c->layer_slides[i] = c->window > 0 && i >= from_layer;
    const json_t *types = json_member(doc, "layer_types");
    return types ? read_layer_types(c, types, e) : 0;
}

static int read_dtype(model_config *c, const json_t *doc, err *e)
{
    const char *name = "float32";
    if (json_get_string(doc, "torch_dtype", &name, e) || json_get_string(doc, "dtype", &name, e))
        return -1;
    if (strcmp(name, "float32") == 0)
        c->type = DTYPE_F32;
    else if (strcmp(name, "float16") == 0)
        c->type = DTYPE_F16;
    else if (strcmp(name, "bfloat16") == 0)
        c->type = DTYPE_BF16;
    else
        return err_set(e, "dtype \"%.40s\" is not supported; float32, float16 and bfloat16 are", name);
    return 0;
}

/* Adds an end token. One outside the vocabulary can never be drawn, so it is left out. */
static int add_eos(model_config *c, const json_t *id, err *e)
{
    double x = json_number_value(id);
    if (!json_is_number(id) || x < 0 || x != floor(x))
        return err_set(e, "\"eos_token_id\" must be a token id or a list of them");
    if (x >= c->vocab)
        return 0;
    int token = (int)x;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == token)
            return 0;
    if (c->n_eos == MAX_EOS)
        return err_set(e, "\"eos_token_id\" has more than %d tokens", MAX_EOS);
    c->eos[c->n_eos++] = token;
    return 0;
}

static int read_eos(model_config *c, const json_t *doc, err *e)
{
    const json_t *ids = json_member(doc, "eos_token_id"), *id;
    size_t i;
    if (ids && !json_is_array(ids))
        return add_eos(c, ids, e);
    json_array_foreach((json_t *)ids, i, id) if (add_eos(c, id, e)) return -1;
    return 0;
}

static int read_bos(model_config *c, const json_t *doc, err *e)
{
    if (get_int(doc, "bos_token_id", -1, INT_MAX, &c->bos, e))
        return -1;
    if (c->bos >= c->vocab)
        c->bos = -1;
    return 0;
}

static int read_config(model_config *c, const json_t *doc, err *e)
{
    if (!json_is_object(doc))
        return err_set(e, "not a JSON object");
    const family *f = find_family(doc, e);
    if (!f)
        return -1;
    strcpy(c->family, f->name);
    if (refuse_unsupported(doc, e) || read_sizes(c, doc, f, e) || read_heads(c, doc, f, e) ||
        read_biases(c, doc, f, e) || read_quantization(c, doc, e) || read_rope(c, doc, e) ||
        read_window(c, doc, f, e) || read_dtype(c, doc, e))
        return -1;
    c->bos = json_object_get(doc, "bos_token_id") ? -1 : f->bos;
    return read_bos(c, doc, e) || read_eos(c, doc, e) ? -1 : 0;
}

static int read_generation(model_config *c, const json_t *doc, err *e)
{
    if (!json_is_object(doc))
        return err_set(e, "not a JSON object");
    return read_bos(c, doc, e) || read_eos(c, doc, e) ? -1 : 0;
}

/* When neither file names an end token, the family's own is used. */
static void default_eos(model_config *c, const json_t *config, const json_t *generation)
{
    if (json_object_get(config, "eos_token_id") || json_object_get(generation, "eos_token_id"))
        return;
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(c->family, families[i].name) == 0 && families[i].eos >= 0 && families[i].eos < c->vocab)
            c->eos[c->n_eos++] = families[i].eos;
}

int model_config_parse(model_config *c, const char *config, size_t n_config, const char *generation,
                       size_t n_generation, err *e)
{
    *c = (model_config){.bos = -1};
    int status = -1;
    json_t *second = NULL, *first = json_read_text(config, n_config, e);
    if (!first || read_config(c, first, e)) {
        err_wrap(e, "config.json");
        goto out;
    }
    if (generation) {
        second = json_read_text(generation, n_generation, e);
        if (!second || read_generation(c, second, e)) {
            err_wrap(e, "generation_config.json");
            goto out;
        }
    }
    default_eos(c, first, second);
    status = 0;
out:
    json_decref(second);
    json_decref(first);
    if (status)
        model_config_deinit(c);
    return status;
}

/* Adds to e, the reason why config.json could not be read, that the directory has an adapter, if it has one. */
static void explain_absence(const char *dir, const char *path, err *e)
{
    char *peft = path_join(dir, ADAPTER_CONFIG);
    if (!file_exists(path) && file_exists(peft))
        err_set(e, "%s is a LoRA adapter, not a base model; give the model that it was made for, and --adapter NAME=%s",
                dir, dir);
    free(peft);
}

int model_config_read(model_config *c, const char *dir, err *e)
{
    char *path = path_join(dir, "config.json"), *generation_path = path_join(dir, "generation_config.json");
    buf config = {0}, generation = {0};
    int status = -1;
    *c = (model_config){.bos = -1};
    buf_add_str(&config, "");
    if (file_read(&config, path, MAX_CONFIG_FILE, e)) {
        explain_absence(dir, path, e);
        goto out;
    }
    if (file_exists(generation_path)) {
        buf_add_str(&generation, "");
        if (file_read(&generation, generation_path, MAX_CONFIG_FILE, e))
            goto out;
    }
    status = model_config_parse(c, config.data, config.len, generation.data, generation.len, e);
    if (status) {
        err inner = *e;
        err_set(e, "%.200s/%s", dir, inner.msg);
    }
out:
    buf_free(&generation);
    buf_free(&config);
    free(generation_path);
    free(path);
    return status;
}

void model_config_deinit(model_config *c)
{
    free(c->layer_slides);
    *c = (model_config){.bos = -1};
}

/* Llama 3's scaling: long wavelengths are stretched by the factor, short ones stay, and those between are interpolated
 * by how often they turn within the original context. */
static double scale_llama3(const model_config *c, double freq)
{
    double wavelength = 2 * M_PI / freq;
    if (wavelength < c->rope_original / c->rope_high)
        return freq;
    if (wavelength > c->rope_original / c->rope_low)
        return freq / c->rope_factor;
    double smooth = (c->rope_original / wavelength - c->rope_low) / (c->rope_high - c->rope_low);
    return (1 - smooth) * freq / c->rope_factor + smooth * freq;
}

void model_config_inv_freq(const model_config *c, float *inv_freq)
{
    for (int i = 0; i < c->head_dim / 2; i++) {
        double freq = pow(c->rope_theta, -2.0 * i / c->head_dim);
        if (c->rope == ROPE_LINEAR)
            freq /= c->rope_factor;
        else if (c->rope == ROPE_LLAMA3)
            freq = scale_llama3(c, freq);
        inv_freq[i] = (float)freq;
    }
}
