/* test_kv_pool.c - the page ledger: nothing is handed out twice, nothing is lost */
#include <string.h>

#include "base/rng.h"
#include "engine/kv_pool.h"
#include "test.h"

enum { PAGES = 64, PAGE_LEN = 16, SEQS = 12 };

static void check_ledger(const kv_pool *p, const kv_seq *seq)
{
    char used[PAGES] = {0};
    int n = 0;
    for (int s = 0; s < SEQS; s++)
        for (int i = 0; i < seq[s].n_pages; i++, n++) {
            assert_in_range(seq[s].page[i], 0, PAGES - 1);
            assert_false(used[seq[s].page[i]]);
            used[seq[s].page[i]] = 1;
        }
    assert_int_equal(n + kv_pool_free_pages(p), PAGES);
}

static void random_use_keeps_the_ledger(void **state)
{
    (void)state;
    kv_pool *p = kv_pool_new(PAGES, PAGE_LEN);
    kv_seq seq[SEQS] = {0};
    int refused = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        kv_seq *s = &seq[rng_u64(3, i) % SEQS];
        if (rng_u64(4, i) % 5 == 0) {
            kv_pool_release(p, s);
        } else {
            int len = s->n_pages * PAGE_LEN + (int)(rng_u64(5, i) % 40), before = s->n_pages, room = kv_pool_free_pages(p);
            int want = kv_pool_pages_for(p, len);
            int fits = want - before <= room;
            assert_int_equal(kv_pool_reserve(p, s, len), fits ? 0 : -1);
            assert_int_equal(s->n_pages, fits && want > before ? want : before);
            refused += !fits;
        }
        check_ledger(p, seq);
    }
    assert_true(refused > 100);
    for (int s = 0; s < SEQS; s++)
        kv_pool_release(p, &seq[s]);
    assert_int_equal(kv_pool_free_pages(p), PAGES);
    kv_pool_free(p);
}

/* A few texts, of which sequences have beginnings. */
static int text_token(int text, int i)
{
    return (int)(rng_u64((uint64_t)(i < 40 ? text / 2 : text), (uint64_t)i) % 3);
}

static void what_is_shared_is_the_same(void **state)
{
    (void)state;
    kv_pool *p = kv_pool_new(PAGES, PAGE_LEN);
    kv_seq seq[SEQS] = {0};
    int text[SEQS], token[SEQS][128], n_found = 0, n_released = 0;
    int content[PAGES][PAGE_LEN], before[PAGES];        /* what a device would hold: the tokens, and which page they follow */
    for (uint64_t i = 0; i < 20000; i++) {
        int k = (int)(rng_u64(3, i) % SEQS), n = 1 + (int)(rng_u64(4, i) % 127), in_use;
        kv_key root = {{1 + rng_u64(5, i) % 2 * 2, 7}};
        if (seq[k].n_pages) {
            kv_pool_release(p, &seq[k]);
            n_released++;
            continue;
        }
        text[k] = (int)(rng_u64(6, i) % 6);
        for (int t = 0; t < n; t++)
            token[k][t] = text_token(text[k], t);
        int found = kv_pool_find(p, root, token[k], n - 1, &in_use), have = kv_pool_free_pages(p);
        if (kv_pool_pages_for(p, n) - in_use > have)
            continue;
        assert_int_equal(kv_pool_share(p, &seq[k], root, token[k], n - 1), found * PAGE_LEN);
        n_found += found;
        for (int g = 0; g < found; g++) {
            assert_memory_equal(content[seq[k].page[g]], token[k] + g * PAGE_LEN, sizeof content[0]);
            assert_int_equal(before[seq[k].page[g]], g ? seq[k].page[g - 1] : -(int)root.part[0]);
        }
        assert_int_equal(kv_pool_reserve(p, &seq[k], n), 0);
        assert_int_equal(kv_pool_free_pages(p), have - (seq[k].n_pages - in_use));
        for (int t = found * PAGE_LEN; t < n; t++) {
            content[seq[k].page[t / PAGE_LEN]][t % PAGE_LEN] = token[k][t];
            before[seq[k].page[t / PAGE_LEN]] = t >= PAGE_LEN ? seq[k].page[t / PAGE_LEN - 1] : -(int)root.part[0];
        }
        kv_pool_publish(p, &seq[k], root, token[k], n);
        kv_pool_check(p);
    }
    assert_true(n_found > 1000 && n_released > 1000);
    for (int k = 0; k < SEQS; k++)
        kv_pool_release(p, &seq[k]);
    kv_pool_check(p);
    assert_int_equal(kv_pool_free_pages(p), PAGES);
    kv_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_use_keeps_the_ledger), cmocka_unit_test(what_is_shared_is_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
