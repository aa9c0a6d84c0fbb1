/* random.c - a model of a given shape with random weights, for benchmarks: weights do not affect
 * speed, as long as the numbers stay ordinary (no zeros, infinities or denormals). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/quantise.h"
#include "model/random.h"

/* One block of host memory for all weights, handed out front to back. */
typedef struct {
    char *base;
    size_t used, size;
    uint64_t seed;
} region;

void random_fill(uint64_t *bits, size_t n, dtype type, int exponent, uint64_t seed)
{
    uint64_t keep, fixed, x = rng_mix(seed) | 1;
    if (type == DTYPE_F32) {
        keep = 0x807fffff807fffffu;
        fixed = (uint64_t)(exponent + 127) * 0x0080000000800000u;
    } else if (type == DTYPE_F8) {
        keep = 0x8787878787878787u;
        fixed = (uint64_t)(exponent + 7) * 0x0808080808080808u;
    } else if (type == DTYPE_F16) {
        keep = 0x83ff83ff83ff83ffu;
        fixed = (uint64_t)(exponent + 15) * 0x0400040004000400u;
    } else {
        keep = 0x807f807f807f807fu;
        fixed = (uint64_t)(exponent + 127) * 0x0080008000800080u;
    }
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bits[i] = (x & keep) | fixed;
    }
}

void random_upload(backend *be, void *dst, size_t bytes, dtype type, int exponent)
{
    size_t block = bytes < (size_t)32 << 20 ? bytes : (size_t)32 << 20;
    uint64_t *bits = xmalloc(block + 8);
    random_fill(bits, (block + 7) / 8, type, exponent, 1);
    for (size_t at = 0; at < bytes; at += block)
        be->ops->upload(be, (char *)dst + at, bits, bytes - at < block ? bytes - at : block);
    free(bits);
}

/* The next tensor of the region; every tensor starts on 64 bytes. */
static tensor next_tensor(region *r, dtype t, int rows, int cols)
{
    tensor out = {.data = r->base + r->used, .type = t, .rows = rows, .cols = cols};
    size_t bytes = (tensor_bytes(&out) + 63) / 64 * 64;
    CHECK(r->used + bytes <= r->size);
    if (rows > 1 || t != DTYPE_F32)
        random_fill(out.data, bytes / 8, t, -6, r->seed + r->used); /* about as in a trained layer of width 2048 */
    else
        for (int i = 0; i < cols; i++)
            ((float *)out.data)[i] = 1;
    r->used += bytes;
    return out;
}

static void make_layer(region *r, const model_config *c, model_layer *l)
{
    l->attn_norm = next_tensor(r, DTYPE_F32, 1, c->hidden);
    l->mlp_norm = next_tensor(r, DTYPE_F32, 1, c->hidden);
    if (c->qk_norm) {
        l->q_norm = next_tensor(r, DTYPE_F32, 1, c->head_dim);
        l->k_norm = next_tensor(r, DTYPE_F32, 1, c->head_dim);
    }
    for (int s = 0; s < N_SITES; s++) {
        l->site[s].n = model_site_parts(s);
        for (int p = 0; p < l->site[s].n; p++) {
            int in, out;
            model_proj_shape(c, s, p, &in, &out);
            l->site[s].part[p].w = next_tensor(r, c->type, out, in);
            if (s == SITE_QKV && c->qkv_bias)
                l->site[s].part[p].bias = next_tensor(r, DTYPE_F32, 1, out);
        }
    }
}

/* Upper bound of the bytes that all tensors of so many layers take. */
static size_t region_size(const model_config *c, int n_layers)
{
    size_t params = 2 * (size_t)c->vocab * (size_t)c->hidden, small = (size_t)c->hidden * 4 + 64;
    for (int s = 0; s < N_SITES; s++)
        for (int p = 0, in, out; p < model_site_parts(s); p++) {
            model_proj_shape(c, s, p, &in, &out);
            params += (size_t)n_layers * (size_t)in * (size_t)out;
            small += (size_t)n_layers * ((size_t)out * 4 + 64);
        }
    small += (size_t)n_layers * (2 * (size_t)c->hidden + 2 * (size_t)c->head_dim) * 4;
    return params * dtype_size(c->type) + small + (size_t)n_layers * 1024 + (2u << 20);
}

/* Where the backend copies weights, all layers share one copy in host memory: so a model may be larger than the host,
 * and is quantised once. */
static void make_layers(region *r, const model *m, model_layer *layer, void *quantised[N_SITES])
{
    bool shared = !m->be->owns_host_memory;
    for (int i = 0; i < (shared ? 1 : m->config.n_layers); i++)
        make_layer(r, &m->config, &layer[i]);
    if (shared && m->to_fp8) {
        pool *cores = pool_new(0);
        for (int s = 0; s < N_SITES; s++)
            quantised[s] = quantise_linear(&layer[0].site[s], cores);
        pool_free(cores);
    }
    for (int i = 1; shared && i < m->config.n_layers; i++)
        layer[i] = layer[0];
}

static void make_all(region *r, const model *m, model_rank *whole, void *quantised[N_SITES])
{
    const model_config *c = &m->config;
    whole->embed = next_tensor(r, c->type, c->vocab, c->hidden);
    whole->final_norm = next_tensor(r, DTYPE_F32, 1, c->hidden);
    whole->lm_head.n = 1;
    whole->lm_head.part[0].w = c->tie_embeddings ? whole->embed : next_tensor(r, c->type, c->vocab, c->hidden);
    make_layers(r, m, whole->layer, quantised);
}

model *model_random(backend *be, const model_config *config, weights_form form, uint64_t seed, err *e)
{
    model *m = XNEW(model);
    m->config = *config;
    if (model_init(m, be, form, e)) {
        model_free(m);
        return NULL;
    }
    model_rank whole = {.layer = XNEW_ARRAY(model_layer, (size_t)config->n_layers)};
    region r = {.size = region_size(config, be->owns_host_memory ? config->n_layers : 1), .seed = seed};
    m->random = r.base = mem_alloc_block(r.size);
    int status = r.base ? 0 : err_set(e, "not enough memory for random weights of %zu MB", r.size >> 20);
    void *quantised[N_SITES] = {NULL};
    if (status == 0) {
        make_all(&r, m, &whole, quantised);
        status = model_adopt(m, &whole, e);
    }
    for (int s = 0; s < N_SITES; s++)
        free(quantised[s]);
    free(whole.layer);
    if (status == 0)
        return m;
    model_free(m);
    return NULL;
}
