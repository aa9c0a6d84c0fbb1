/* batch.h - what one model invocation works on, besides weights
 *
 * Built once per invocation by the engine and constant through all layers.
 *
 *   rows:      | prefill 0 ...... | prefill 1 .. | d | d | d | d |      one row per token
 *   sequences: |        0         |      1       | 2 | 3 | 4 | 5 |      prefills first, then decodes
 *   segments:  |  adapter X   | adapter Y               | base   |      rows of one adapter adjacent
 *
 * A decode is a sequence with one row. A prefill may be a chunk: its rows attend to everything
 * already in the sequence's pages, then to the chunk itself, causally. */
#ifndef PUNICA_BACKEND_BATCH_H
#define PUNICA_BACKEND_BATCH_H

#include "backend/tensor.h"

/* KvCache [n_pages, n_layers, 2, n_kv_heads] blocks of [page_len, head_dim] numbers; the 2 is keys, values. The type is
 * the backend's act type, or F8. With F8, page_len scales, F32, stand behind the numbers of each block, one for the
 * head's vector at each position; the vector's largest number is 448 times its scale. */
typedef struct {
    void *data; /* backend memory */
    dtype type;
    int n_pages, n_layers, n_kv_heads, page_len, head_dim;
} kv_cache;

/* Bytes of a block's numbers, rounded up so that scales may follow; below, of a block with its scales. */
static inline size_t kv_numbers_bytes(const kv_cache *kv)
{
    size_t bytes = (size_t)kv->page_len * (size_t)kv->head_dim * dtype_size(kv->type);
    return (bytes + 3) / 4 * 4;
}

static inline size_t kv_block_bytes(const kv_cache *kv)
{
    return kv_numbers_bytes(kv) + (kv->type == DTYPE_F8 ? (size_t)kv->page_len * sizeof(float) : 0);
}

/* Bytes of one page, all layers. */
static inline size_t kv_page_bytes(const kv_cache *kv)
{
    return (size_t)kv->n_layers * 2 * (size_t)kv->n_kv_heads * kv_block_bytes(kv);
}

#define LORA_MAX_RANK 512 /* larger adapters are refused when they are read */

/* One projection's low-rank addition: y += scale * (x A^T) B. rank 0: this projection is not adapted. */
typedef struct {
    int rank;
    float scale;
    tensor a; /* [rank, in], as PEFT stores lora_A */
    tensor b; /* [rank, out], lora_B transposed, so that a row is contiguous */
} lora_part;

#define MAX_PARTS 3 /* most projections of one `linear` (backend.h): q, k and v */

/* The additions to one linear: part i goes to its projection i. */
typedef struct { lora_part part[MAX_PARTS]; } lora_site;

/* An adapter in backend memory. site: [n_sites], indexed as the model numbers its linears; where a device has several
 * ranks, all sites of one rank, then those of the next. */
typedef struct lora {
    int n_sites;
    lora_site *site;
    int max_rank_sum;  /* over sites: the largest sum of the ranks of all parts */
    size_t bytes;      /* of backend memory held */
    void *data;        /* the one backend allocation all parts point into */
    void *table;       /* the backend's own index of the sites; behind the parts in data */
    struct lora *next; /* the shares of the next device of a group; NULL: none */
} lora;

/* Rows [indptr[i], indptr[i+1]) use lora[i]; NULL is the base model. */
typedef struct {
    int n;
    const int *indptr;       /* [n + 1] */
    const lora *const *lora; /* [n], borrowed: until the invocation ends */
} segments;

/* A token that only the device knows as yet, on backends that run ahead. */
#define TOKEN_DRAWN(i) (-1 - (i))

typedef struct {
    int n_rows;
    const int *token;          /* [n_rows]; TOKEN_DRAWN(i): what the last sample draws for its row i */
    const int *position;       /* [n_rows] place in its sequence, from 0 */
    int n_prefills, n_decodes; /* the paper's BatchLen: */
    const int
        *prefill_indptr;    /* [n_prefills + 1] first row of each prefill; the last entry is the first decode's row */
    const int *page_indptr; /* [n_prefills + n_decodes + 1] into page */
    const int *page;        /* pages of each sequence in order; cover all rows of this invocation */
    segments segs;
    int n_out;
    const int *out_row; /* [n_out] rows whose logits are wanted */
} batch;

#endif
