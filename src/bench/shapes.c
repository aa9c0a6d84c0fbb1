/* shapes.c - see shapes.h. Dimensions are those of the models' published config.json; what does not
 * affect speed (position limit, epsilon) is the same for all. */
#include "bench/shapes.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

typedef struct {
    const char *name, *family;
    int n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab;
    double rope_theta;
} shape;

static const shape shapes[] = {
    {"small", "llama", 8, 512, 8, 4, 64, 1408, 4096, 10000},
    {"tinyllama-1.1b", "llama", 22, 2048, 32, 4, 64, 5632, 32000, 10000},
    {"llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 10000},
    {"llama2-13b", "llama", 40, 5120, 40, 40, 128, 13824, 32000, 10000},
    {"llama2-70b", "llama", 80, 8192, 64, 8, 128, 28672, 32000, 10000},
    {"llama2-70b/8", "llama", 80, 8192, 8, 1, 128, 3584, 4000, 10000}, /* what one of 8 ranks holds of llama2-70b */
    {"llama3-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 500000},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 1000000},
};

#define N_SHAPES (sizeof shapes / sizeof shapes[0])

const char *shape_names(char names[SHAPE_NAMES])
{
    size_t n = 0;
    for (size_t i = 0; i < N_SHAPES; i++)
        n += (size_t)snprintf(names + n, n < SHAPE_NAMES ? SHAPE_NAMES - n : 0, "%s%s", i ? ", " : "", shapes[i].name);
    CHECK(n < SHAPE_NAMES);
    return names;
}

int shape_find(const char *name, dtype type, model_config *c, err *e)
{
    const shape *s = NULL;
    for (size_t i = 0; i < N_SHAPES && !s; i++)
        if (strcmp(shapes[i].name, name) == 0)
            s = &shapes[i];
    char names[SHAPE_NAMES];
    if (!s)
        return err_set(e, "unknown shape \"%s\"; known: %s", name, shape_names(names));
    *c = (model_config){.n_layers = s->n_layers,
                        .hidden = s->hidden,
                        .n_heads = s->n_heads,
                        .n_kv_heads = s->n_kv_heads,
                        .head_dim = s->head_dim,
                        .ffn = s->ffn,
                        .vocab = s->vocab,
                        .max_positions = 4096,
                        .rms_eps = 1e-5f,
                        .rope_theta = s->rope_theta,
                        .type = type,
                        .bos = -1,
                        .qkv_bias = strcmp(s->family, "qwen2") == 0,
                        .layer_slides = XNEW_ARRAY(bool, (size_t)s->n_layers)};
    snprintf(c->family, sizeof c->family, "%s", s->family);
    return 0;
}

/* Sum over all projections of per_weight * in * out + per_rank * (in + out). */
static double sum_projections(const model_config *c, double per_weight, double per_rank)
{
    double sum = 0;
    for (int s = 0; s < N_SITES; s++)
        for (int p = 0; p < model_site_parts(s); p++) {
            int in, out;
            model_proj_shape(c, s, p, &in, &out);
            sum += per_weight * in * out + per_rank * (in + out);
        }
    return sum * c->n_layers;
}

double shape_row_flops(const model_config *c)
{
    return sum_projections(c, 2, 0);
}

double shape_head_flops(const model_config *c)
{
    return 2.0 * c->hidden * c->vocab;
}

double shape_lora_params(const model_config *c, int rank)
{
    return sum_projections(c, 0, rank);
}
