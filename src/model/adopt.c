/* adopt.c - weights to the backends that compute with them
 *
 * A model lies whole in host memory, most of it mapped. Layer by layer each rank's backend adopts its share: the CPU
 * borrows it, a GPU copies it. So no rank ever holds more than its own. Beside the mapping the host needs memory for
 * one linear at a time: for a rank's share of a matrix that has gaps, or for one that is quantised on the way. */
#include <math.h>
#include <stdlib.h>

#include "backend/group.h"
#include "base/mem.h"
#include "base/pool.h"
#include "model/model.h"
#include "model/quantise.h"
#include "model/split.h"

static split split_of(const model *m, int rank)
{
    return (split){rank, group_ranks(m->be)};
}

int model_init(model *m, backend *be, weights_form form, err *e)
{
    int n = group_ranks(be);
    m->be = be;
    m->to_fp8 = form == WEIGHTS_FP8;
    m->rank = XNEW_ARRAY(model_rank, (size_t)n);
    for (int r = 0; r < n; r++)
        m->rank[r].layer = XNEW_ARRAY(model_layer, (size_t)m->config.n_layers);
    return split_check(&m->config, n, e);
}

/* Puts the rotary frequencies into each rank's backend. */
static int put_inv_freq(model *m, err *e)
{
    size_t n = (size_t)m->config.head_dim / 2;
    float *table = XNEW_ARRAY(float, n);
    int status = 0;
    model_config_inv_freq(&m->config, table);
    for (int r = 0; r < group_ranks(m->be) && status == 0; r++) {
        backend *be = group_device_of(m->be, r);
        float *to = m->rank[r].inv_freq = be->ops->alloc(be, n * sizeof *table, e);
        if (to)
            be->ops->upload(be, to, table, n * sizeof *table);
        else
            status = -1;
    }
    free(table);
    return status;
}

/* Takes over memory that shares of weights lie in: keeps it if backends borrow them, else frees it. */
static void keep(model *m, void *memory)
{
    if (!memory || !m->be->owns_host_memory) {
        free(memory);
        return;
    }
    m->made = xgrow(m->made, &m->made_cap, m->n_made + 1, sizeof *m->made);
    m->made[m->n_made++] = memory;
}

static int adopt_site(model *m, int layer, int site, linear *whole, pool *cores, err *e)
{
    void *quantised = m->to_fp8 ? quantise_linear(whole, cores) : NULL;
    int status = 0;
    for (int r = 0; r < group_ranks(m->be) && status == 0; r++) {
        backend *be = group_device_of(m->be, r);
        linear *to = &m->rank[r].layer[layer].site[site];
        void *packed = split_site(to, whole, &m->config, split_of(m, r), site, be->owns_host_memory);
        status = be->ops->adopt_linear(be, to, e);
        keep(m, packed);
    }
    keep(m, quantised);
    return status;
}

static int adopt_norms(model *m, int layer, const model_layer *whole, err *e)
{
    for (int r = 0; r < group_ranks(m->be); r++) {
        backend *be = group_device_of(m->be, r);
        model_layer *to = &m->rank[r].layer[layer];
        *to = (model_layer){whole->attn_norm, whole->q_norm, whole->k_norm, whole->mlp_norm, .site = {{0}}};
        tensor *norms[] = {&to->attn_norm, &to->mlp_norm, &to->q_norm, &to->k_norm};
        for (int i = 0; i < 4; i++)
            if (norms[i]->data && be->ops->adopt(be, norms[i], e))
                return -1;
    }
    return 0;
}

static int adopt_layer(model *m, int layer, const model_layer *whole, pool *cores, err *e)
{
    if (adopt_norms(m, layer, whole, e))
        return -1;
    for (int s = 0; s < N_SITES; s++) {
        linear w = whole->site[s];
        if (adopt_site(m, layer, s, &w, cores, e))
            return -1;
    }
    return 0;
}

static int adopt_layers(model *m, const model_rank *whole, err *e)
{
    pool *cores = m->to_fp8 ? pool_new(0) : NULL;
    int status = 0;
    for (int i = 0; i < m->config.n_layers && status == 0; i++)
        if (adopt_layer(m, i, &whole->layer[i], cores, e))
            status = err_wrap(e, "layer %d of %d", i + 1, m->config.n_layers);
    if (cores)
        pool_free(cores);
    return status;
}

/* Bytes of the elements of a projection that a rank holds, with their scales and biases. */
static double proj_bytes(const model *m, const proj *p, split_stretch rows, split_stretch cols, bool to_fp8)
{
    bool quantises = to_fp8 && p->w.type != DTYPE_F8;
    dtype held = quantises ? DTYPE_F8 : backend_weight_type(m->be, p->w.type);
    double scales = quantises ? 1 : p->scale.data ? p->scale.rows > 1 ? scale_blocks(cols.n) : 1 : 0;
    return (double)rows.n * cols.n * (double)dtype_size(held) + 4.0 * rows.n * (scales + (p->bias.data ? 1 : 0));
}

static double layer_bytes(const model *m, const model_layer *l, split s)
{
    const tensor *norms[] = {&l->attn_norm, &l->mlp_norm, &l->q_norm, &l->k_norm};
    double bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes += norms[i]->data ? (double)tensor_bytes(norms[i]) : 0;
    for (int site = 0; site < N_SITES; site++)
        for (int part = 0; part < l->site[site].n; part++)
            bytes += proj_bytes(m, &l->site[site].part[part], split_out(&m->config, s, site, part),
                                split_in(&m->config, s, site), m->to_fp8);
    return bytes;
}

/* Bytes that a rank's backend will hold: vectors as F32, matrices in its own type where it has one, or FP8. */
static double rank_bytes(const model *m, const model_rank *whole, split s)
{
    const model_config *c = &m->config;
    split_stretch vocab = split_vocab(c, s), hidden = {0, c->hidden};
    proj embed = {.w = whole->embed};
    double bytes = (double)tensor_bytes(&whole->final_norm) + proj_bytes(m, &embed, vocab, hidden, false);
    if (!c->tie_embeddings)
        bytes += proj_bytes(m, &whole->lm_head.part[0], vocab, hidden, false);
    for (int i = 0; i < c->n_layers; i++)
        bytes += layer_bytes(m, &whole->layer[i], s);
    return bytes;
}

/* -1 with e set when weights that a backend copies do not fit; where they are borrowed they are in memory already. */
static int check_room(const model *m, double rank, err *e)
{
    for (int d = 0; d < group_devices(m->be); d++) {
        backend *be = group_device(m->be, d);
        double left = be->owns_host_memory ? INFINITY : (double)be->ops->available(be),
               need = rank * group_ranks_per_device(m->be);
        if (need > left)
            return err_set(e, "the weights are %.2f GB; %s has %.2f GB free", need * 1e-9, be->name, left * 1e-9);
    }
    return 0;
}

static int measure(model *m, const model_rank *whole, err *e)
{
    double most = 0, all = 0;
    for (int r = 0; r < group_ranks(m->be); r++) {
        double bytes = rank_bytes(m, whole, split_of(m, r));
        most = bytes > most ? bytes : most;
        all += bytes;
    }
    m->weight_bytes = (size_t)all;
    return check_room(m, most, e);
}

static int adopt_ends(model *m, int rank, const model_rank *whole, err *e)
{
    backend *be = group_device_of(m->be, rank);
    model_rank *to = &m->rank[rank];
    split_stretch vocab = split_vocab(&m->config, split_of(m, rank));
    size_t row = (size_t)whole->embed.cols * dtype_size(whole->embed.type);
    to->embed =
        (tensor){(char *)whole->embed.data + (size_t)vocab.from * row, whole->embed.type, vocab.n, whole->embed.cols};
    to->final_norm = whole->final_norm;
    if (be->ops->adopt(be, &to->embed, e) || be->ops->adopt(be, &to->final_norm, e))
        return err_wrap(e, "embedding");
    if (m->config.tie_embeddings) {
        to->lm_head = (linear){.n = 1, .part = {{.w = to->embed}}};
        return 0;
    }
    void *packed = split_output(&to->lm_head, &whole->lm_head, &m->config, split_of(m, rank), be->owns_host_memory);
    int status = be->ops->adopt_linear(be, &to->lm_head, e);
    keep(m, packed);
    return status ? err_wrap(e, "output matrix") : 0;
}

int model_adopt(model *m, const model_rank *whole, err *e)
{
    if (measure(m, whole, e))
        return -1;
    for (int r = 0; r < group_ranks(m->be); r++)
        if (adopt_ends(m, r, whole, e))
            return -1;
    return adopt_layers(m, whole, e) || put_inv_freq(m, e) ? -1 : 0;
}

double model_embed_bytes(const model *m)
{
    double bytes = 0;
    for (int r = 0; r < group_ranks(m->be); r++)
        bytes += (double)tensor_bytes(&m->rank[r].embed);
    return bytes;
}

void model_free(model *m)
{
    if (!m)
        return;
    for (int r = 0; m->rank && r < group_ranks(m->be); r++) {
        backend *be = group_device_of(m->be, r);
        if (m->rank[r].inv_freq)
            be->ops->release(be, m->rank[r].inv_freq);
        free(m->rank[r].layer);
    }
    safetensors_close(m->files);
    free(m->random);
    free(m->vectors);
    for (size_t i = 0; i < m->n_made; i++)
        free(m->made[i]);
    free(m->made);
    free(m->rank);
    model_config_deinit(&m->config);
    free(m);
}
