/* lora.c - see lora.h */
#include "model/lora.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/random.h"

#define ALIGNMENT 64

static size_t padded(const tensor *t)
{
    return (tensor_bytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The exponent of A's elements near 1/sqrt(in), at which x A^T keeps the size of x's elements. */
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

/* Zeroes what lies between a tensor and the next. */
static void pad(const tensor *t)
{
    memset((char *)t->data + tensor_bytes(t), 0, padded(t) - tensor_bytes(t));
}

/* Points every part into a block that begins at `at`. */
static void point_into(lora *l, char *at)
{
    l->data = at;
    for (int i = 0; i < l->n_sites; i++)
        for (lora_part *p = l->site[i].part; p < l->site[i].part + MAX_PARTS; p++)
            if (p->rank) {
                p->a.data = at;
                p->b.data = at + padded(&p->a);
                at += padded(&p->a) + padded(&p->b);
            }
}

/* Bytes of the block that n_sites sites point into. */
static size_t block_bytes(const lora_site *site, int n_sites)
{
    size_t bytes = 0;
    for (int i = 0; i < n_sites * MAX_PARTS; i++) {
        const lora_part *p = &site[i / MAX_PARTS].part[i % MAX_PARTS];
        bytes += p->rank ? padded(&p->a) + padded(&p->b) : 0;
    }
    return bytes;
}

void lora_place(lora *l)
{
    for (int i = 0; i < l->n_sites; i++) {
        int rank_sum = 0;
        for (int part = 0; part < MAX_PARTS; part++)
            rank_sum += l->site[i].part[part].rank;
        l->max_rank_sum = rank_sum > l->max_rank_sum ? rank_sum : l->max_rank_sum;
    }
    l->bytes = block_bytes(l->site, l->n_sites);
    void *data = mem_alloc_block(l->bytes);
    CHECK(data);
    point_into(l, data);
    for (int i = 0; i < l->n_sites * MAX_PARTS; i++)
        if (l->site[i / MAX_PARTS].part[i % MAX_PARTS].rank) {
            pad(&l->site[i / MAX_PARTS].part[i % MAX_PARTS].a);
            pad(&l->site[i / MAX_PARTS].part[i % MAX_PARTS].b);
        }
}

/* Makes an adapter of n_sites sites of l, from `first` on, whose parts lie in a block of their own. */
static lora *index_sites(const lora *l, int first, int n_sites, void *data)
{
    lora *copy = XNEW(lora);
    *copy = (lora){.n_sites = n_sites, .max_rank_sum = l->max_rank_sum, .bytes = block_bytes(l->site + first, n_sites)};
    copy->site = XNEW_ARRAY(lora_site, (size_t)n_sites);
    memcpy(copy->site, l->site + first, (size_t)n_sites * sizeof *l->site);
    point_into(copy, data);
    return copy;
}

lora *lora_index(const lora *l, void *data)
{
    return index_sites(l, 0, l->n_sites, data);
}

/* Uploads what the ranks of one device of a group hold. */
static lora *upload_share(const lora *host, backend *be, int device, int n_devices, err *e)
{
    int n_sites = host->n_sites / n_devices, first = device * n_sites;
    size_t bytes = block_bytes(host->site + first, n_sites);
    char *data = be->ops->alloc(be, bytes + be->ops->lora_table_bytes(be, n_sites), e);
    if (!data)
        return NULL;
    lora *l = index_sites(host, first, n_sites, data);
    be->ops->bind_lora(be, l, data + bytes);
    be->ops->upload(be, data, (const char *)host->data + block_bytes(host->site, first), bytes);
    return l;
}

lora *lora_upload(const lora *host, backend *be, err *e)
{
    lora *first = NULL, **at = &first;
    for (int d = 0; d < group_devices(be); d++, at = &(*at)->next)
        if (!(*at = upload_share(host, group_device(be, d), d, group_devices(be), e))) {
            lora_free(first, be);
            return NULL;
        }
    return first;
}

lora_part lora_part_of(const model_config *base, split s, int site, int part, int rank, dtype a, dtype b)
{
    int in = split_in(base, s, site).n, out = split_out(base, s, site, part).n;
    return (lora_part){.rank = rank, .scale = 1, .a = {NULL, a, rank, in}, .b = {NULL, b, rank, out}};
}

lora *lora_random(const model_config *base, int n_ranks, int rank, dtype type, unsigned long seed)
{
    lora *l = lora_new(base->n_layers * n_ranks);
    for (int i = 0; i < l->n_sites; i++)
        for (int part = 0; part < model_site_parts(i % N_SITES); part++)
            l->site[i].part[part] = lora_part_of(base, (split){i / (base->n_layers * N_SITES), n_ranks}, i % N_SITES,
                                                 part, rank, type, type);
    lora_place(l);
    for (int i = 0; i < l->n_sites * MAX_PARTS; i++) {
        const lora_part *p = &l->site[i / MAX_PARTS].part[i % MAX_PARTS];
        if (!p->rank)
            continue;
        random_fill(p->a.data, (tensor_bytes(&p->a) + 7) / 8, type, exponent_for(p->a.cols),
                    rng_u64(seed, 2 * (uint64_t)i));
        random_fill(p->b.data, (tensor_bytes(&p->b) + 7) / 8, type, -8, rng_u64(seed, 2 * (uint64_t)i + 1));
    }
    return l;
}

/* A host image has no next. */
void lora_free(lora *l, backend *be)
{
    for (int d = 0; l; d++) {
        lora *next = l->next;
        if (be)
            group_device(be, d)->ops->release(group_device(be, d), l->data);
        else
            free(l->data);
        free(l->site);
        free(l);
        l = next;
    }
}
