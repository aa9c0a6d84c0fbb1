/* lora.c - see lora.h */
#include "model/lora.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/random.h"

#define ALIGNMENT 64

static size_t padded(const tensor *t)
{
    return (tensor_bytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* x A^T keeps the size of x's elements when A's are near 1/sqrt(in). */
static int exponent_for(int in)
{
    int exponent = -1;
    while (exponent > -10 && (1 << (-2 * exponent)) < in)
        exponent--;
    return exponent;
}

/* Up to the tensor's padding, which random_fill may need the first bytes of. */
static void fill_random(const lora *l, void *image, const tensor *t, int exponent, uint64_t seed)
{
    random_fill(lora_in_image(l, image, t), (tensor_bytes(t) + 7) / 8, t->type, exponent, seed);
}

lora *lora_new(int n_layers)
{
    lora *l = XNEW(lora);
    l->n_sites = n_layers * N_SITES;
    l->site = XNEW_ARRAY(lora_site, (size_t)l->n_sites);
    return l;
}

int lora_place(lora *l, backend *be, err *e)
{
    for (int i = 0; i < l->n_sites; i++) {
        int rank_sum = 0;
        for (lora_part *p = l->site[i].part; p < l->site[i].part + 3; p++) {
            rank_sum += p->rank;
            l->bytes += p->rank ? padded(&p->a) + padded(&p->b) : 0;
        }
        l->max_rank_sum = rank_sum > l->max_rank_sum ? rank_sum : l->max_rank_sum;
    }
    char *at = l->data = be->ops->alloc(be, l->bytes, e);
    if (!at)
        return -1;
    for (int i = 0; i < l->n_sites; i++)
        for (lora_part *p = l->site[i].part; p < l->site[i].part + 3; p++)
            if (p->rank) {
                p->a.data = at;
                p->b.data = at + padded(&p->a);
                at += padded(&p->a) + padded(&p->b);
            }
    return be->ops->bind_lora(be, l, e);
}

void *lora_in_image(const lora *l, void *image, const tensor *t)
{
    return (char *)image + ((const char *)t->data - (const char *)l->data);
}

lora *lora_random(backend *be, const model_config *base, int rank, dtype type, unsigned long seed, err *e)
{
    lora *l = lora_new(base->n_layers);
    for (int i = 0; i < l->n_sites; i++)
        for (int part = 0, in, out; part < model_site_parts(i % N_SITES); part++) {
            lora_part *p = &l->site[i].part[part];
            model_proj_shape(base, i % N_SITES, part, &in, &out);
            *p = (lora_part){.rank = rank, .scale = 1, .a = {NULL, type, rank, in}, .b = {NULL, type, rank, out}};
        }
    if (lora_place(l, be, e)) {
        lora_free(l, be);
        return NULL;
    }
    void *image = xcalloc(1, l->bytes);
    for (int i = 0; i < l->n_sites * 3; i++) {
        const lora_part *p = &l->site[i / 3].part[i % 3];
        if (!p->rank)
            continue;
        fill_random(l, image, &p->a, exponent_for(p->a.cols), rng_u64(seed, 2 * (uint64_t)i));
        fill_random(l, image, &p->b, -8, rng_u64(seed, 2 * (uint64_t)i + 1));
    }
    be->ops->upload(be, l->data, image, l->bytes);
    free(image);
    return l;
}

void lora_free(lora *l, backend *be)
{
    if (!l)
        return;
    if (l->table)
        be->ops->release(be, l->table);
    if (l->data)
        be->ops->release(be, l->data);
    free(l->site);
    free(l);
}
