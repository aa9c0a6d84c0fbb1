/* batch_builder.c - see batch_builder.h. Arrays grow to the largest batch seen and are reused. */
#include "engine/batch_builder.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A growing array of ints. */
typedef struct {
    int *at;
    size_t n, cap;
} ints;

struct batch_builder {
    batch b;
    ints token, position, prefill_indptr, page_indptr, page, out_row, seg_indptr;
    const lora **seg_lora;
    size_t n_segs, seg_cap;
};

static void push(ints *a, int value)
{
    a->at = xgrow(a->at, &a->cap, a->n + 1, sizeof *a->at);
    a->at[a->n++] = value;
}

static void push_all(ints *a, const int *values, int n)
{
    a->at = xgrow(a->at, &a->cap, a->n + (size_t)n, sizeof *a->at);
    memcpy(a->at + a->n, values, (size_t)n * sizeof *values);
    a->n += (size_t)n;
}

/* Order of items: those of adapter `first`, if it is one, then by adapter, the base model last. Adapters are compared
 * by place before address, so that runs in virtual time are repeatable. Within one adapter the order does not matter:
 * rows do not influence each other. */
static int compare(const void *pa, const void *pb, void *first)
{
    const batch_item *x = pa, *y = pb;
    const lora *a = x->lora, *b = y->lora;
    if (a == b)
        return 0;
    if (first && (a == first || b == first))
        return a == first ? -1 : 1;
    if (!a || !b)
        return a ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (uintptr_t)a < (uintptr_t)b ? -1 : 1;
}

static void add_rows(batch_builder *bb, const batch_item *it)
{
    int first_row = (int)bb->token.n;
    push_all(&bb->token, it->token, it->n_rows);
    for (int i = 0; i < it->n_rows; i++)
        push(&bb->position, it->position + i);
    push_all(&bb->page, it->kv->page, it->kv->n_pages);
    push(&bb->page_indptr, (int)bb->page.n);
    for (int i = it->n_rows - it->n_out; i < it->n_rows; i++)
        push(&bb->out_row, first_row + i);

    if (bb->n_segs == 0 || bb->seg_lora[bb->n_segs - 1] != it->lora) {
        bb->seg_lora = xgrow(bb->seg_lora, &bb->seg_cap, bb->n_segs + 1, sizeof *bb->seg_lora);
        bb->seg_lora[bb->n_segs++] = it->lora;
        push(&bb->seg_indptr, first_row);
    }
}

batch_builder *batch_builder_new(void)
{
    return XNEW(batch_builder);
}

void batch_builder_free(batch_builder *bb)
{
    if (!bb)
        return;
    ints *all[] = {&bb->token, &bb->position, &bb->prefill_indptr, &bb->page_indptr,
                   &bb->page,  &bb->out_row,  &bb->seg_indptr};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->at);
    free(bb->seg_lora);
    free(bb);
}

static void clear(batch_builder *bb)
{
    ints *all[] = {&bb->token, &bb->position, &bb->prefill_indptr, &bb->page_indptr,
                   &bb->page,  &bb->out_row,  &bb->seg_indptr};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i]->n = 0;
    bb->n_segs = 0;
}

const batch *batch_build(batch_builder *bb, batch_item *prefill, int n_prefills, batch_item *decode, int n_decodes)
{
    clear(bb);
    push(&bb->page_indptr, 0);
    qsort_r(prefill, (size_t)n_prefills, sizeof *prefill, compare, NULL);
    for (int i = 0; i < n_prefills; i++) {
        push(&bb->prefill_indptr, (int)bb->token.n);
        add_rows(bb, &prefill[i]);
    }
    push(&bb->prefill_indptr, (int)bb->token.n);
    const lora *shared = n_prefills ? prefill[n_prefills - 1].lora : NULL;
    qsort_r(decode, (size_t)n_decodes, sizeof *decode, compare, (void *)shared);
    for (int i = 0; i < n_decodes; i++)
        add_rows(bb, &decode[i]);
    push(&bb->seg_indptr, (int)bb->token.n);

    bb->b = (batch){
        .n_rows = (int)bb->token.n,
        .token = bb->token.at,
        .position = bb->position.at,
        .n_prefills = n_prefills,
        .n_decodes = n_decodes,
        .prefill_indptr = bb->prefill_indptr.at,
        .page_indptr = bb->page_indptr.at,
        .page = bb->page.at,
        .segs = {.n = (int)bb->n_segs, .indptr = bb->seg_indptr.at, .lora = bb->seg_lora},
        .n_out = (int)bb->out_row.n,
        .out_row = bb->out_row.at,
    };
    return &bb->b;
}
