/* lora.c - see lora.h */
#include "model/lora.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

lora *lora_new(int n_layers)
{
    lora *l = XNEW(lora);
    l->n_sites = n_layers * N_SITES;
    l->site = XNEW_ARRAY(lora_site, (size_t)l->n_sites);
    return l;
}

/* Point every part into a block that begins at `at`. */
static void point_into(lora *l, char *at)
{
    l->data = at;
    for (int i = 0; i < l->n_sites; i++)
        for (lora_part *p = l->site[i].part; p < l->site[i].part + 3; p++)
            if (p->rank) {
                p->a.data = at;
                p->b.data = at + padded(&p->a);
                at += padded(&p->a) + padded(&p->b);
            }
}

void lora_place(lora *l)
{
    for (int i = 0; i < l->n_sites; i++) {
        int rank_sum = 0;
        for (lora_part *p = l->site[i].part; p < l->site[i].part + 3; p++) {
            rank_sum += p->rank;
            l->bytes += p->rank ? padded(&p->a) + padded(&p->b) : 0;
        }
        l->max_rank_sum = rank_sum > l->max_rank_sum ? rank_sum : l->max_rank_sum;
    }
    void *data = mem_alloc_block(l->bytes);
    CHECK(data);
    memset(data, 0, l->bytes);
    point_into(l, data);
}

lora *lora_index(const lora *l, void *data)
{
    lora *copy = XNEW(lora);
    *copy = (lora){.n_sites = l->n_sites, .max_rank_sum = l->max_rank_sum, .bytes = l->bytes};
    copy->site = XNEW_ARRAY(lora_site, (size_t)l->n_sites);
    memcpy(copy->site, l->site, (size_t)l->n_sites * sizeof *l->site);
    point_into(copy, data);
    return copy;
}

lora *lora_upload(const lora *host, backend *be, err *e)
{
    char *data = be->ops->alloc(be, host->bytes + be->ops->lora_table_bytes(be, host->n_sites), e);
    if (!data)
        return NULL;
    lora *l = lora_index(host, data);
    be->ops->bind_lora(be, l, data + host->bytes);
    be->ops->upload(be, data, host->data, host->bytes);
    return l;
}

lora *lora_random(const model_config *base, int rank, dtype type, unsigned long seed)
{
    lora *l = lora_new(base->n_layers);
    for (int i = 0; i < l->n_sites; i++)
        for (int part = 0, in, out; part < model_site_parts(i % N_SITES); part++) {
            lora_part *p = &l->site[i].part[part];
            model_proj_shape(base, i % N_SITES, part, &in, &out);
            *p = (lora_part){.rank = rank, .scale = 1, .a = {NULL, type, rank, in}, .b = {NULL, type, rank, out}};
        }
    lora_place(l);
    for (int i = 0; i < l->n_sites * 3; i++) {
        const lora_part *p = &l->site[i / 3].part[i % 3];
        if (!p->rank)
            continue;
        random_fill(p->a.data, (tensor_bytes(&p->a) + 7) / 8, type, exponent_for(p->a.cols), rng_u64(seed, 2 * (uint64_t)i));
        random_fill(p->b.data, (tensor_bytes(&p->b) + 7) / 8, type, -8, rng_u64(seed, 2 * (uint64_t)i + 1));
    }
    return l;
}

void lora_free(lora *l, backend *be)
{
    if (!l)
        return;
    if (be)
        be->ops->release(be, l->data);
    else
        free(l->data);
    free(l->site);
    free(l);
}
