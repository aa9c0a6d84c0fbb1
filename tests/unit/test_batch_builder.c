/* test_batch_builder.c - rows, pages and segments of a batch, against a plain reading of the rules */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/batch_builder.h"
#include "support/test.h"

enum { MAX_ITEMS = 12, MAX_ROWS = 20 };

static lora adapters[4];
static int tokens[MAX_ITEMS * 2][MAX_ROWS], pages[MAX_ITEMS * 2][4];
static kv_seq kvs[MAX_ITEMS * 2];

static batch_item random_item(uint64_t seed, int i, int n_rows)
{
    for (int k = 0; k < n_rows; k++)
        tokens[i][k] = i * 100 + k;
    kvs[i] = (kv_seq){.page = pages[i], .n_pages = 1 + (int)(rng_u64(seed, 7) % 4)};
    for (int k = 0; k < kvs[i].n_pages; k++)
        pages[i][k] = i * 10 + k;
    int which = (int)(rng_u64(seed, (uint64_t)i) % 5);
    return (batch_item){.owner = &kvs[i],
                        .token = tokens[i],
                        .n_rows = n_rows,
                        .position = i,
                        .kv = &kvs[i],
                        .lora = which == 4 ? NULL : &adapters[which],
                        .place = 10 - which,
                        .n_out = (int)(rng_u64(seed, 50 + (uint64_t)i) % 3) % (n_rows + 1)};
}

static void check_rows(const batch *b, const batch_item *it, int seq, int *row, int *out)
{
    assert_int_equal(b->page_indptr[seq + 1] - b->page_indptr[seq], it->kv->n_pages);
    assert_memory_equal(b->page + b->page_indptr[seq], it->kv->page, (size_t)it->kv->n_pages * sizeof(int));
    for (int i = 0; i < it->n_rows; i++, (*row)++) {
        assert_int_equal(b->token[*row], it->token[i]);
        assert_int_equal(b->position[*row], it->position + i);
        int seg = 0;
        while (*row >= b->segs.indptr[seg + 1])
            seg++;
        assert_ptr_equal(b->segs.lora[seg], it->lora);
    }
    for (int i = it->n_out; i > 0; i--)
        assert_int_equal(b->out_row[(*out)++], *row - i);
}

/* Adapters are in the order of their places (not of their addresses), the base model is last. Each adapter has at most
 * one segment among the prefills and one among the decodes, and the one at the border is shared, unless it is the base
 * model: its rows need no LoRA work. */
static void check_segments(const batch *b, const batch_item *prefill, const batch_item *decode)
{
    int border = b->prefill_indptr[b->n_prefills];
    for (int i = 0; i < b->segs.n; i++)
        for (int k = i + 1; k < b->segs.n; k++)
            if (b->segs.lora[i] == b->segs.lora[k])
                assert_true(b->segs.indptr[i + 1] <= border && b->segs.indptr[k] >= border);
    for (int i = 0; i < b->n_decodes && b->n_prefills; i++)
        if (decode[i].lora && decode[i].lora == prefill[b->n_prefills - 1].lora)
            assert_ptr_equal(decode[0].lora, decode[i].lora);
    const lora *shared = b->n_prefills ? prefill[b->n_prefills - 1].lora : NULL;
    for (int i = 0; i + 1 < b->n_decodes; i++) {
        assert_true(decode[i].lora || !decode[i + 1].lora);
        assert_true(!decode[i + 1].lora || decode[i].lora == shared || decode[i].place <= decode[i + 1].place);
    }
    for (int i = 0; i + 1 < b->n_prefills; i++)
        assert_true(!prefill[i + 1].lora || prefill[i].place <= prefill[i + 1].place);
}

static void batches_follow_the_rules(void **state)
{
    (void)state;
    batch_builder *bb = batch_builder_new();
    for (uint64_t seed = 0; seed < 500; seed++) {
        batch_item prefill[MAX_ITEMS], decode[MAX_ITEMS];
        int np = (int)(rng_u64(seed, 1) % 4), nd = (int)(rng_u64(seed, 2) % MAX_ITEMS), row = 0, out = 0;
        for (int i = 0; i < np; i++)
            prefill[i] = random_item(seed, i, 2 + (int)(rng_u64(seed, 90 + (uint64_t)i) % (MAX_ROWS - 2)));
        for (int i = 0; i < nd; i++)
            decode[i] = random_item(seed, MAX_ITEMS + i, 1);
        const batch *b = batch_build(bb, prefill, np, decode, nd);
        for (int i = 0; i < np; i++) {
            assert_int_equal(b->prefill_indptr[i], row);
            check_rows(b, &prefill[i], i, &row, &out);
        }
        assert_int_equal(b->prefill_indptr[np], row);
        for (int i = 0; i < nd; i++)
            check_rows(b, &decode[i], np + i, &row, &out);
        assert_int_equal(b->n_rows, row);
        assert_int_equal(b->n_out, out);
        assert_int_equal(b->segs.indptr[b->segs.n], row);
        check_segments(b, prefill, decode);
    }
    batch_builder_free(bb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_follow_the_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
