/* test_kv_pool.c - the page ledger: nothing is handed out twice, nothing is lost */
#include <string.h>

#include "base/rng.h"
#include "engine/kv_pool.h"
#include "support/test.h"

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
    kv_pool *p = kv_pool_new(PAGES, 0, PAGE_LEN);
    kv_seq seq[SEQS] = {0};
    int refused = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        kv_seq *s = &seq[rng_u64(3, i) % SEQS];
        if (rng_u64(4, i) % 5 == 0) {
            kv_pool_release(p, s);
        } else {
            int len = s->n_pages * PAGE_LEN + (int)(rng_u64(5, i) % 40), before = s->n_pages,
                room = kv_pool_free_pages(p);
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
    kv_pool *p = kv_pool_new(PAGES, 0, PAGE_LEN);
    kv_seq seq[SEQS] = {0};
    int text[SEQS], token[SEQS][128], n_found = 0, n_released = 0;
    int content[PAGES][PAGE_LEN], before[PAGES]; /* what a device would hold: the tokens, and which page they follow */
    for (uint64_t i = 0; i < 20000; i++) {
        int k = (int)(rng_u64(3, i) % SEQS), n = 1 + (int)(rng_u64(4, i) % 127);
        kv_key root = {{1 + rng_u64(5, i) % 2 * 2, 7}};
        if (seq[k].n_pages) {
            kv_pool_release(p, &seq[k]);
            n_released++;
            continue;
        }
        text[k] = (int)(rng_u64(6, i) % 6);
        for (int t = 0; t < n; t++)
            token[k][t] = text_token(text[k], t);
        kv_found f = kv_pool_find(p, root, token[k], n - 1);
        int found = f.n_pages, in_use = f.in_use, have = kv_pool_free_pages(p);
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

/* A device and a host whose pages say which text they hold: the tokens of a page and of all before it, hashed. */
enum { FEW_PAGES = 30, HOST_PAGES = 24, TEXT = 128 };

typedef struct {
    kv_seq kv;
    kv_key root;
    int token[TEXT], n, n_shared;
    bool runs;
} reader;

typedef struct {
    uint64_t content[FEW_PAGES], host[HOST_PAGES];
    kv_move move[N_LANES][1024]; /* begun, not ended */
    int n_moves[N_LANES];
    uint64_t used[FEW_PAGES]; /* the last step in which somebody had the page */
    uint64_t n_steps, n_done;
    int n_at_once; /* batches that do not wait for steps */
} machine;

static uint64_t content_of(kv_key root, const int *token, int n_pages)
{
    uint64_t hash = rng_mix(root.part[0]);
    for (int i = 0; i < n_pages * PAGE_LEN; i++)
        hash = rng_mix(hash ^ (uint64_t)token[i]);
    return hash;
}

static void begin_moves(kv_pool *p, machine *m)
{
    for (int lane = 0; lane < N_LANES; lane++) {
        int n;
        bool behind_steps;
        const kv_move *move = kv_pool_begin_moves(p, lane, &n, &behind_steps);
        m->n_at_once += n > 0 && !behind_steps;
        for (int i = 0; i < n; i++) {
            m->move[lane][m->n_moves[lane]++] = move[i];
            assert_true(behind_steps || m->used[move[i].page] <= m->n_done);
        }
    }
}

/* A step is given to the device, which has done all but the last few. */
static void count_step(kv_pool *p, machine *m, const reader *readers)
{
    m->n_steps++;
    uint64_t lag = rng_u64(20, m->n_steps) % 3, done = m->n_steps > lag ? m->n_steps - lag : 0;
    m->n_done = done > m->n_done ? done : m->n_done;
    for (int k = 0; k < SEQS; k++)
        for (int i = 0; i < readers[k].kv.n_pages; i++)
            m->used[readers[k].kv.page[i]] = m->n_steps;
    kv_pool_note_steps(p, m->n_steps, m->n_done);
}

/* The copies happen when they end: whatever was done to their pages in between is what they copy, or what they write
 * over. */
static void end_moves(kv_pool *p, machine *m, kv_lane lane, int n)
{
    for (int i = 0; i < n; i++) {
        const kv_move *v = &m->move[lane][i];
        if (lane == LANE_OUT)
            m->host[v->host] = m->content[v->page];
        else
            m->content[v->page] = m->host[v->host];
    }
    m->n_moves[lane] -= n;
    memmove(m->move[lane], m->move[lane] + n, (size_t)m->n_moves[lane] * sizeof(kv_move));
    kv_pool_end_moves(p, lane, n);
}

/* What it shares is what it says: only looked at when it has arrived. Then the rest is computed. */
static void run_reader(kv_pool *p, machine *m, reader *r)
{
    for (int g = 0; g < r->n_shared; g++)
        assert_true(m->content[r->kv.page[g]] == content_of(r->root, r->token, g + 1));
    for (int g = r->n_shared; (g + 1) * PAGE_LEN <= r->n; g++)
        m->content[r->kv.page[g]] = content_of(r->root, r->token, g + 1);
    kv_pool_publish(p, &r->kv, r->root, r->token, r->n);
    r->runs = true;
}

static bool start_reader(kv_pool *p, reader *r, uint64_t i, bool near_only)
{
    r->n = 1 + (int)(rng_u64(4, i) % (TEXT - 1));
    r->root = (kv_key){{1 + rng_u64(5, i) % 2 * 2, 7}};
    r->runs = false;
    int text = (int)(rng_u64(6, i) % 12);
    for (int t = 0; t < r->n; t++)
        r->token[t] = text_token(text, t);
    kv_found f = kv_pool_find(p, r->root, r->token, r->n - 1);
    assert_true(f.n_near + f.n_far <= f.n_pages && f.in_use <= f.n_pages - f.n_far);
    if (kv_pool_pages_for(p, r->n) - f.in_use > kv_pool_free_pages(p))
        return false;
    int want = near_only ? f.n_near : f.n_pages;
    assert_int_equal(kv_pool_share(p, &r->kv, r->root, r->token, want * PAGE_LEN), want * PAGE_LEN);
    assert_int_equal(kv_pool_reserve(p, &r->kv, r->n), 0);
    r->n_shared = want;
    return true;
}

/* Readers that come, wait, run, spoil their pages and leave at any time; moves that take as long as they like. */
static void contents_survive_on_the_host(void **state)
{
    (void)state;
    static machine m;
    static reader reader_of[SEQS];
    kv_pool *p = kv_pool_new(FEW_PAGES, HOST_PAGES, PAGE_LEN);
    int n_far = 0, n_waits = 0, n_spoilt = 0;
    for (uint64_t i = 0; i < 60000; i++) {
        reader *r = &reader_of[rng_u64(3, i) % SEQS];
        if (r->kv.n_pages == 0) {
            int before = kv_pool_tier(p).moving[LANE_IN];
            start_reader(p, r, i, rng_u64(8, i) % 4 == 0);
            n_far += kv_pool_tier(p).moving[LANE_IN] - before;
        } else if (r->runs || rng_u64(9, i) % 3 == 0) {
            n_spoilt += r->runs && rng_u64(10, i) % 50 == 0;
            if (r->runs && rng_u64(10, i) % 50 == 0)
                kv_pool_spoil(p, &r->kv);
            kv_pool_release(p, &r->kv);
        }
        kv_pool_save(p, 1 + (int)(rng_u64(11, i) % 8));
        begin_moves(p, &m);
        if (kv_pool_must_wait(p)) {
            n_waits++;
            end_moves(p, &m, LANE_OUT, m.n_moves[LANE_OUT]);
            end_moves(p, &m, LANE_IN, m.n_moves[LANE_IN]);
        }
        for (int k = 0; k < SEQS; k++)
            if (reader_of[k].kv.n_pages && !reader_of[k].runs && kv_pool_has_arrived(p, &reader_of[k].kv))
                run_reader(p, &m, &reader_of[k]);
        count_step(p, &m, reader_of);
        for (int lane = 0; lane < N_LANES && i / 100 % 3; lane++) /* else none ends for a while */
            end_moves(p, &m, lane, (int)(rng_u64(12 + (uint64_t)lane, i) % (uint64_t)(m.n_moves[lane] + 1)));
        kv_pool_check(p);
    }
    kv_tier t = kv_pool_tier(p);
    assert_true(n_far > 1000 && n_spoilt > 50 && n_waits > 0 && m.n_at_once > 1000);
    assert_true(t.n_used > 0 && t.moved[LANE_OUT] > 1000 &&
                t.moved[LANE_IN] + (uint64_t)t.moving[LANE_IN] == (uint64_t)n_far);
    for (int k = 0; k < SEQS; k++)
        kv_pool_release(p, &reader_of[k].kv);
    kv_pool_check(p);
    assert_int_equal(kv_pool_free_pages(p), FEW_PAGES);
    kv_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_use_keeps_the_ledger),
                                       cmocka_unit_test(what_is_shared_is_the_same),
                                       cmocka_unit_test(contents_survive_on_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
