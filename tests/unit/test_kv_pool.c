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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_use_keeps_the_ledger)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
