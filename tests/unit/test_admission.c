/* test_admission.c - who runs, by the counts alone: no model, adapters without weights, loaders that do as they are
 * told */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "engine/admission.h"
#include "model/lora.h"
#include "support/test.h"
#include "support/told_loaders.h"

enum { PAGE_LEN = 16, MAX_ITEMS = 40 };

static told_loaders loaders;
static kv_pool *pool;
static adapter_slots *slots;
static admission *a;
static admission_item item[MAX_ITEMS]; /* by id */
static int evicted[MAX_ITEMS], n_evicted, failed[MAX_ITEMS], n_failed;
static err last_error;

static void release_nothing(backend *be, void *p)
{
    (void)be;
    assert_null(p);
}

static const backend_ops no_ops = {.release = release_nothing};
static backend no_device = {.ops = &no_ops, .owns_host_memory = true};

static lora *load(void *ctx, const char *name, err *e)
{
    (void)ctx;
    if (strcmp(name, "broken") != 0)
        return lora_new(1);
    err_set(e, "it is broken");
    return NULL;
}

/* Whoever is evicted is newer than all that stay. */
static void on_evicted(void *ctx, admission_item *it)
{
    int n;
    admission_item *const *active = admission_active(a, &n);
    (void)ctx;
    for (int i = 0; i < n; i++)
        assert_true(active[i]->arrival < it->arrival || (active[i]->arrival == it->arrival && active[i]->id < it->id));
    assert_true(!it->slot && it->kv.n_pages == 0);
    evicted[n_evicted++] = (int)it->id;
}

static void on_failed(void *ctx, admission_item *it, const err *why)
{
    (void)ctx;
    assert_true(!it->slot && it->kv.n_pages == 0);
    failed[n_failed++] = (int)it->id;
    last_error = *why;
}

static void start_with_host(admission_limits limits, int n_pages, int n_host, int n_slots)
{
    loaders = (told_loaders){.base.ops = &told_loaders_ops};
    pool = kv_pool_new(n_pages, n_host, PAGE_LEN);
    slots = adapter_slots_new(&no_device, n_slots, 0, (adapter_source){.load = load}, &loaders.base);
    a = admission_new(&limits, pool, slots, (admission_events){on_evicted, on_failed, NULL});
    n_evicted = n_failed = 0;
}

static void start(admission_limits limits, int n_pages, int n_slots)
{
    start_with_host(limits, n_pages, 0, n_slots);
}

static void stop(void)
{
    for (admission_item *it; (it = admission_last(a));)
        admission_remove(a, it);
    assert_int_equal(kv_pool_free_pages(pool), kv_pool_total_pages(pool));
    admission_free(a);
    adapter_slots_free(slots);
    kv_pool_free(pool);
    assert_int_equal(loaders.n_todo + loaders.n_done, 0);
}

static void add(int id, int arrival, const char *adapter, int n_tokens)
{
    item[id] = (admission_item){.id = (uint64_t)id,
                                .arrival = (uint64_t)arrival,
                                .adapter = (char *)adapter,
                                .n_tokens = n_tokens,
                                .limit = 10000};
    admission_add(a, &item[id]);
}

/* The ids that run, oldest first: "3 1 ". */
static const char *running(void)
{
    static char text[256];
    int n;
    admission_item *const *active = admission_active(a, &n);
    text[0] = 0;
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", (int)active[i]->id);
    return text;
}

/* Take a step: each item whose rows are complete gets a token. */
static void step(void)
{
    admission_make_room(a);
    admission_step s = admission_choose_rows(a);
    for (int i = 0; i < s.n_prefills + s.n_decodes; i++) {
        admission_rows *r = i < s.n_prefills ? &s.prefill[i] : &s.decode[i - s.n_prefills];
        r->item->n_done += r->n_rows;
        r->item->n_tokens += r->draws;
    }
}

static void order_is_by_arrival_then_id(void **state)
{
    (void)state;
    start((admission_limits){3, 256}, 100, 4);
    add(7, 5, NULL, 10);
    add(3, 5, NULL, 10);
    add(9, 4, NULL, 10);
    add(1, 6, NULL, 10);
    add(5, 5, NULL, 10);
    admission_admit(a, false);
    assert_string_equal(running(), "9 3 5 ");
    admission_remove(a, &item[3]);
    admission_admit(a, false);
    assert_string_equal(running(), "9 5 7 ");
    add(2, 1, NULL, 10); /* older than all: next, and before them in the batch */
    admission_remove(a, &item[9]);
    admission_admit(a, false);
    assert_string_equal(running(), "2 5 7 ");
    stop();
}

static void the_batch_has_a_limit(void **state)
{
    (void)state;
    start((admission_limits){4, 256}, 100, 4);
    for (int i = 0; i < 10; i++)
        add(i, i, NULL, 1);
    admission_admit(a, false);
    admission_stats s = admission_get_stats(a);
    assert_int_equal(s.n_active, 4);
    assert_int_equal(s.n_waiting, 6);
    stop();
}

/* Pages for the tokens, the next one, and one for every item that runs: with 2 of 6 taken, 47 tokens fit, 48 do not. */
static void admission_needs_pages(void **state)
{
    (void)state;
    for (int n = 47; n <= 48; n++) {
        start((admission_limits){8, 256}, 6, 4);
        add(0, 0, NULL, 31);
        add(1, 1, NULL, n);
        assert_int_equal(admission_get_stats(a).pages_wanted, 2 + (n == 47 ? 3 : 4));
        admission_admit(a, false);
        assert_string_equal(running(), n == 47 ? "0 1 " : "0 ");
        admission_stats s = admission_get_stats(a);
        assert_int_equal(s.pages_free, n == 47 ? 1 : 4);
        assert_int_equal(s.pages_wanted, n == 47 ? 0 : 4);
        stop();
    }
}

static void one_that_lacks_room_blocks_those_behind_it(void **state)
{
    (void)state;
    start((admission_limits){8, 256}, 6, 4);
    add(0, 0, NULL, 31);
    add(1, 1, NULL, 64);
    add(2, 2, NULL, 1);
    admission_admit(a, false);
    assert_string_equal(running(), "0 ");
    admission_remove(a, &item[1]);
    admission_admit(a, false);
    assert_string_equal(running(), "0 2 ");
    stop();
}

static void one_whose_adapter_loads_blocks_nobody(void **state)
{
    (void)state;
    start((admission_limits){8, 256}, 100, 4);
    add(0, 0, "x", 10);
    add(1, 1, NULL, 10);
    admission_admit(a, true); /* there is something to do: nobody waits */
    assert_string_equal(running(), "1 ");
    assert_int_equal(loaders.n_todo, 1);
    told_loaders_run(&loaders, 1);
    admission_admit(a, false);
    assert_string_equal(running(), "0 1 ");
    add(2, 2, "x", 10); /* it is there */
    admission_admit(a, false);
    assert_string_equal(running(), "0 1 2 ");
    stop();
}

static void it_waits_for_adapters_only_when_told_to(void **state)
{
    (void)state;
    start((admission_limits){8, 256}, 100, 4);
    add(0, 0, "x", 10);
    add(1, 1, "y", 10);
    admission_admit(a, false);
    assert_string_equal(running(), "");
    admission_admit(a, true);
    assert_string_equal(running(), "0 ");
    assert_int_equal(loaders.n_todo, 1); /* the first is enough */
    stop();
}

static void a_broken_adapter_fails_its_own(void **state)
{
    (void)state;
    start((admission_limits){8, 256}, 100, 2);
    add(0, 0, "broken", 10);
    add(1, 1, "x", 10);
    add(2, 2, "broken", 10);
    admission_admit(a, false);
    told_loaders_run(&loaders, 2);
    admission_admit(a, true);
    assert_string_equal(running(), "1 ");
    assert_int_equal(n_failed, 2);
    assert_true(failed[0] == 0 && failed[1] == 2);
    assert_string_equal(last_error.msg, "it is broken");
    add(3, 3, "broken", 10); /* tried again, not remembered */
    admission_admit(a, false);
    assert_int_equal(loaders.n_todo, 1);
    stop();
}

static void adapters_load_ahead_of_time_for_the_first_in_line(void **state)
{
    (void)state;
    static const char *const name[] = {"a", "b", "c", "d", "e", "f"};
    start((admission_limits){3, 256}, 100, 8);
    for (int i = 0; i < 6; i++)
        add(i, i, name[i], 10);
    admission_admit(a, false);
    assert_int_equal(loaders.n_todo, 3);
    assert_true(item[2].slot && !item[3].slot);
    stop();
}

/* Two slots, both claimed ahead of time; then an older one comes that needs a third adapter. */
static void claims_ahead_of_time_are_taken_back(void **state)
{
    (void)state;
    start((admission_limits){2, 256}, 100, 2);
    add(1, 1, NULL, 10);
    add(2, 2, NULL, 10);
    add(8, 8, "x", 10);
    add(9, 9, "y", 10);
    admission_admit(a, false); /* the two of the base fill the batch */
    admission_admit(a, false);
    told_loaders_run(&loaders, 2);
    admission_admit(a, false);
    assert_true(item[8].slot && item[9].slot);
    add(5, 5, "z", 10);
    admission_admit(a, false);
    assert_true(item[5].slot && item[8].slot && !item[9].slot); /* the newest gave way */
    told_loaders_run(&loaders, 1);
    admission_remove(a, &item[1]);
    admission_remove(a, &item[2]);
    admission_admit(a, false);
    assert_string_equal(running(), "5 8 ");
    admission_admit(a, false);
    assert_null(item[9].slot); /* those that run keep theirs */
    admission_remove(a, &item[5]);
    admission_admit(a, false);
    told_loaders_run(&loaders, 1); /* y, in z's place */
    admission_admit(a, false);
    assert_string_equal(running(), "8 9 ");
    stop();
}

static void the_newest_are_evicted(void **state)
{
    (void)state;
    start((admission_limits){4, 256}, 8, 4);
    add(3, 3, NULL, 16);
    add(1, 1, NULL, 16);
    add(2, 2, "x", 16);
    admission_admit(a, false);
    told_loaders_run(&loaders, 1);
    admission_admit(a, false);
    assert_string_equal(running(), "1 2 3 ");
    for (int i = 0; i < 17; i++) /* up to 33 tokens, with two pages for 32 each: six of eight */
        step();
    assert_int_equal(n_evicted, 0);
    assert_int_equal(item[1].n_tokens, 33);
    step(); /* 1 and 2 get the last two pages, 3 has to go */
    assert_string_equal(running(), "1 2 ");
    assert_true(n_evicted == 1 && evicted[0] == 3);
    for (int i = 0; i < 32; i++)
        step();
    assert_string_equal(running(), "1 ");
    assert_true(n_evicted == 2 && evicted[1] == 2);
    admission_stats s = admission_get_stats(a);
    assert_int_equal(s.evictions, 2);
    assert_int_equal(s.pages_peak, 8);
    add(2, 2, "x", 65); /* back, with what it has: five pages and one for 1 are not there */
    admission_admit(a, false);
    assert_string_equal(running(), "1 ");
    stop();
}

/* The last token is not computed with: neither a page nor a row is wanted for it, in flight or not. */
static void the_last_token_needs_nothing(void **state)
{
    (void)state;
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        start((admission_limits){4, 256}, 2, 4);
        add(0, 0, NULL, 31);
        admission_admit(a, false);
        item[0].n_done = 32;
        item[0].n_tokens = 33 - in_flight;
        item[0].in_flight = in_flight;
        item[0].limit = 33;
        admission_make_room(a);
        assert_int_equal(n_evicted, 0);
        admission_step s = admission_choose_rows(a);
        assert_int_equal(s.n_prefills + s.n_decodes, 0);
        item[0].limit = 34;
        admission_make_room(a); /* a third page, of two */
        assert_int_equal(n_evicted, 1);
        stop();
    }
}

static void check_rows(const admission_rows *r, int id, int n_rows, bool draws)
{
    assert_int_equal(r->item->id, id);
    assert_int_equal(r->n_rows, n_rows);
    assert_int_equal(r->draws, draws);
}

static void rows_are_all_decodes_and_the_oldest_prompts(void **state)
{
    (void)state;
    start((admission_limits){8, 40}, 100, 4);
    add(0, 0, NULL, 1); /* a prompt of one token is a row like a decode's */
    add(1, 1, NULL, 30);
    add(2, 2, NULL, 25);
    add(3, 3, NULL, 5);
    add(4, 4, NULL, 5);
    admission_admit(a, false);
    admission_step s = admission_choose_rows(a);
    assert_true(s.n_decodes == 1 && s.n_prefills == 2);
    check_rows(&s.decode[0], 0, 1, true);
    check_rows(&s.prefill[0], 1, 30, true);
    check_rows(&s.prefill[1], 2, 10, false); /* the rest of the 40 */
    step();
    s = admission_choose_rows(a);
    assert_true(s.n_decodes == 2 && s.n_prefills == 3);
    check_rows(&s.decode[1], 1, 1, true);
    check_rows(&s.prefill[0], 2, 15, true);
    check_rows(&s.prefill[1], 3, 5, true);
    check_rows(&s.prefill[2], 4, 5, true);
    assert_true(s.work.n_decodes == 2 && s.work.n_rows == 25);
    step();
    item[3].n_tokens--; /* its value is not known yet */
    item[3].in_flight = 1;
    s = admission_choose_rows(a);
    assert_true(s.n_decodes == 5 && s.n_prefills == 0);
    stop();
}

/* A row takes a millisecond: while a stream runs, prompts get what is left of the target, and all of a step before. */
static void rows_of_prompts_keep_to_the_target(void **state)
{
    (void)state;
    start((admission_limits){8, 4096, 4096, 0.1}, 1000, 4);
    add(0, 0, NULL, 2000);
    for (int i = 1; i < 4; i++)
        add(i, i, NULL, 3000);
    admission_admit(a, false);
    int alone = 0, beside = 0;
    for (int i = 0; item[3].n_tokens == 3000; i++) {
        assert_true(i < 1000);
        admission_step s = admission_choose_rows(a);
        admission_learn(a, &s.work, (s.work.n_decodes + s.work.n_rows) * 1e-3);
        alone = s.n_decodes == 0 && s.work.n_rows > alone ? s.work.n_rows : alone;
        beside = s.n_decodes > 0 && s.work.n_rows > beside ? s.work.n_rows : beside;
        step();
    }
    assert_in_range(alone, 170, 200);
    assert_in_range(beside, 80, 100);
    stop();
}

/* A decode takes 0.1 s, as long as the target; a row a millisecond. Prompts that come beside a stream take as long as
 * its decodes; of prompts that come together, the first one's stream waits until the others are computed. */
static void a_burst_is_computed_before_its_streams(void **state)
{
    (void)state;
    start((admission_limits){8, 4096, 4096, 0.1}, 1000, 4);
    add(0, 0, NULL, 100);
    admission_admit(a, false);
    for (int i = 0; i < 30; i++) {
        if (i == 10) {
            add(1, 1, NULL, 300);
            add(2, 2, NULL, 300);
            admission_admit(a, false);
        }
        admission_step s = admission_choose_rows(a);
        assert_int_equal(s.work.has_elders, i >= 10 && s.n_prefills > 0);
        assert_true(i < 15 || s.work.n_rows < 120);
        admission_learn(a, &s.work, s.work.n_decodes * 0.1 + s.work.n_rows * 1e-3);
        step();
    }
    admission_remove(a, &item[0]);
    admission_remove(a, &item[1]);
    admission_remove(a, &item[2]);
    for (int i = 3; i < 7; i++)
        add(i, i, NULL, 1000);
    admission_admit(a, false);
    int n_steps = 0;
    for (; item[6].n_tokens == 1000; n_steps++) {
        admission_step s = admission_choose_rows(a);
        assert_false(s.work.has_elders);
        admission_learn(a, &s.work, s.work.n_decodes * 0.1 + s.work.n_rows * 1e-3);
        step();
    }
    assert_true(n_steps < 8); /* 4000 rows; with 100 a step it would be 40 */
    stop();
}

/* Nobody who came with a burst is held up for more than 16 s. */
static void a_stream_is_not_young_for_long(void **state)
{
    (void)state;
    start((admission_limits){8, 4096, 4096, 0.1}, 3000, 4);
    add(0, 0, NULL, 20);
    add(1, 1, NULL, 17000);
    add(2, 2, NULL, 17000);
    admission_admit(a, false);
    int n_young = 0, n_old = 0;
    for (double decoded = 0; item[2].n_tokens == 17000;) { /* seconds since the first decode was chosen */
        admission_step s = admission_choose_rows(a);
        bool is_young = decoded < 16;
        double seconds = s.work.n_decodes * 0.04 + s.work.n_rows * 1e-3;
        assert_int_equal(s.work.has_elders, !is_young);
        assert_true(is_young || s.work.n_rows <= 60);
        admission_learn(a, &s.work, seconds);
        decoded += s.n_decodes ? seconds : 0;
        n_young += s.n_decodes && is_young;
        n_old += !is_young;
        step();
    }
    assert_true(n_young > 10 && n_old > 10);
    stop();
}

/* All moves that were decided on begin and end. Returns how many came in. */
static int move_all(void)
{
    int n[N_LANES];
    bool behind;
    for (int lane = 0; lane < N_LANES; lane++) {
        kv_pool_begin_moves(pool, lane, &n[lane], &behind);
        kv_pool_end_moves(pool, lane, n[lane]);
    }
    return n[LANE_IN];
}

/* Compute what is pending: a row of a prompt takes a millisecond, decodes 50. */
static void compute(void)
{
    admission_make_room(a);
    admission_step s = admission_choose_rows(a);
    admission_learn(a, &s.work, 1e-3 * s.work.n_rows + (s.n_decodes ? 50e-3 : 0));
    for (int i = 0; i < s.n_prefills; i++)
        admission_advance(a, s.prefill[i].item, s.prefill[i].n_rows);
    for (int i = 0; i < s.n_decodes; i++)
        admission_advance(a, s.decode[i].item, 1);
}

static void add_text(int id, int *token, int n)
{
    item[id] = (admission_item){
        .id = (uint64_t)id, .arrival = (uint64_t)id, .n_tokens = n, .limit = 10000, .token = token, .root = {{1, 1}}};
    admission_add(a, &item[id]);
}

static void prefixes_come_back_where_that_is_faster(void **state)
{
    (void)state;
    enum { LEN = 10 * PAGE_LEN + 1, TEXTS = 9 };
    static int text[TEXTS][LEN], other[3] = {77, 78, 79};
    for (int i = 0; i < TEXTS * LEN; i++)
        text[i / LEN][i % LEN] = i;
    for (int slow = 0; slow < 2; slow++) {
        start_with_host((admission_limits){4, 1000}, 60, 100, 1);
        admission_learn_fetch(a, (slow ? 1.1e-3 : 0.9e-3) * PAGE_LEN);
        for (int round = 0; round < TEXTS; round++) { /* text 0 is computed, and loses its pages to the others */
            add_text(round, text[round], LEN);
            admission_admit(a, false);
            assert_int_equal(item[round].n_cached, 0);
            for (int i = 0; item[round].n_done < LEN; i++)
                compute();
            admission_remove(a, &item[round]);
            for (int i = 0; i < 10; i++) { /* pages that will be taken next, a few at a time */
                kv_pool_save(pool, 4);
                assert_int_equal(move_all(), 0);
            }
        }
        kv_found f = kv_pool_find(pool, (kv_key){{1, 1}}, text[0], LEN - 1);
        assert_true(f.n_pages == 10 && f.n_far == 10 && f.n_near == 0);
        add_text(20, text[0], LEN);
        admission_admit(a, false);
        assert_int_equal(item[20].n_cached, slow ? 0 : f.n_pages * PAGE_LEN);
        admission_step s = admission_choose_rows(a);
        assert_int_equal(s.n_prefills + s.n_decodes, slow); /* nothing of it is computed before its prefix is there */
        assert_int_equal(move_all(), slow ? 0 : f.n_pages);
        s = admission_choose_rows(a);
        assert_int_equal(s.n_prefills + s.n_decodes, 1);
        while (item[20].n_done < LEN)
            compute();
        admission_remove(a, &item[20]);
        f = kv_pool_find(pool, (kv_key){{1, 1}}, text[0], LEN - 1);
        assert_true(f.n_near == f.n_pages && f.n_pages == 10); /* on the device again, either way */

        add_text(21, other, 1); /* one that decodes: what comes back waits for its step, too */
        admission_admit(a, false);
        compute();
        item[21].n_tokens++;
        compute();
        item[21].n_tokens++;
        f = kv_pool_find(pool, (kv_key){{1, 1}}, text[1], LEN - 1);
        assert_int_equal(f.n_far, 10);
        add_text(22, text[1], LEN);
        admission_admit(a, false);
        assert_int_equal(item[22].n_cached, 0);
        stop();
    }
}

/* A longer text with the same beginning runs on pages that are known behind those of a shorter one, which is on the
 * host only by now. Who is to compute that beginning anew shares none of them, and needs room for all. */
static void what_is_not_shared_needs_room(void **state)
{
    (void)state;
    enum { SHORT = 10 * PAGE_LEN + 1, LONG = 20 * PAGE_LEN + 1, OTHER = 3 * PAGE_LEN + 1, OTHERS = 12 };
    static int text[LONG], other[OTHERS][OTHER];
    for (int i = 0; i < LONG; i++)
        text[i] = i;
    for (int i = 0; i < OTHERS * OTHER; i++)
        other[i / OTHER][i % OTHER] = 10000 + i;
    start_with_host((admission_limits){4, 1000}, 40, 100, 1);
    admission_learn_fetch(a, 1); /* a page takes a second: nothing comes back */
    add_text(0, text, SHORT);
    add_text(1, text, LONG);
    admission_admit(a, false);
    assert_string_equal(running(), "0 1 ");
    compute();
    assert_true(item[0].n_done == SHORT && item[1].n_done == LONG);
    admission_remove(a, &item[0]);
    for (int i = 0; i < OTHERS; i++) {
        for (int k = 0; k < 10; k++) {
            kv_pool_save(pool, 4);
            move_all();
        }
        add_text(2 + i, other[i], OTHER);
        admission_admit(a, false);
        while (item[2 + i].n_done < OTHER)
            compute();
        admission_remove(a, &item[2 + i]);
    }
    kv_found f = kv_pool_find(pool, (kv_key){{1, 1}}, text, LONG - 1);
    assert_true(f.n_near == 0 && f.n_far == 10 && f.in_use == 10);
    add_text(30, text, LONG);
    admission_admit(a, false);
    assert_string_equal(running(), "1 "); /* 21 pages, of which 19 are free */
    admission_remove(a, &item[1]);
    admission_admit(a, false);
    assert_string_equal(running(), "30 ");
    stop();
}

static void cancel_in_every_state(void **state)
{
    (void)state;
    start((admission_limits){4, 16}, 18, 3);
    add(0, 0, NULL, 20); /* runs: will decode, a token in flight */
    add(1, 1, "x", 40);  /* runs: half of its prompt is done */
    add(2, 2, "y", 200); /* waits for pages; its adapter is there */
    add(3, 3, "z", 10);  /* waits; its adapter loads */
    add(4, 4, "x", 10);  /* waits; shares an adapter */
    add(5, 5, "q", 10);  /* waits; not near enough to the front to claim a slot */
    admission_admit(a, false);
    told_loaders_run(&loaders, 2);
    admission_admit(a, false);
    assert_string_equal(running(), "0 1 ");
    for (int i = 0; i < 3; i++)
        step();
    item[0].n_tokens--; /* its value is not known yet */
    item[0].in_flight = 1;
    assert_true(item[0].n_done == 21 && item[1].n_done > 0 && item[1].n_done < 40);
    assert_true(item[2].slot && item[3].slot && item[4].slot && !item[5].slot);
    for (int i = 5; i >= 0; i--) {
        int before = kv_pool_free_pages(pool), held = item[i].kv.n_pages;
        assert_int_equal(held > 0, i < 2);
        assert_ptr_equal(admission_find(a, (uint64_t)i), &item[i]);
        admission_remove(a, &item[i]);
        assert_int_equal(kv_pool_free_pages(pool), before + held); /* at once */
        assert_null(admission_find(a, (uint64_t)i));
        assert_true(!item[i].slot && !item[i].kv.page);
    }
    told_loaders_run(&loaders, 1); /* z, which nobody wants any more */
    admission_admit(a, false);
    add(6, 6, "r", 10); /* no claim is left over: all three slots can be had */
    add(7, 7, "s", 10);
    add(8, 8, "t", 10);
    admission_admit(a, false);
    told_loaders_run(&loaders, 3);
    admission_admit(a, false);
    assert_string_equal(running(), "6 7 8 ");
    stop();
}

/* What holds between any two steps. Pages of those that wait would be missing from the sum. */
static void check_state(int max_batch, int n_here)
{
    int n, held = 0;
    admission_item *const *active = admission_active(a, &n);
    assert_true(n <= max_batch);
    for (int i = 0; i < n; i++) {
        held += active[i]->kv.n_pages;
        assert_true(active[i]->kv.n_pages * PAGE_LEN >= active[i]->n_done);
        assert_true(!active[i]->adapter || adapter_slot_lora(active[i]->slot));
        assert_true(i == 0 || active[i - 1]->arrival < active[i]->arrival);
    }
    admission_stats s = admission_get_stats(a);
    assert_int_equal(s.pages_free + held, s.pages_total);
    assert_int_equal(s.n_active + s.n_waiting, n_here);
}

/* Remove those that have all their tokens, and now and then another. How many they were. */
static int remove_some(uint64_t chance)
{
    int n = 0;
    for (int i = 0; i < MAX_ITEMS; i++)
        if (admission_find(a, (uint64_t)i) && (item[i].n_tokens >= item[i].limit || chance == (uint64_t)i)) {
            admission_remove(a, &item[i]);
            n++;
        }
    return n;
}

static void add_random(int id, uint64_t seed)
{
    static const char *const name[] = {NULL, "a", "b", "c", "d", "broken"};
    add(id, id, name[rng_u64(seed, 0) % 6], 1 + (int)(rng_u64(seed, 1) % 60));
    item[id].limit = item[id].n_tokens + 1 + (int)(rng_u64(seed, 2) % 60);
}

/* Random arrivals, cancels and loads, with too few of everything: the counts agree, and all come to an end. */
static void nothing_is_lost(void **state)
{
    (void)state;
    uint64_t n_evictions = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        int max_batch = 1 + (int)(seed % 5), n_added = 0, n_here = 0;
        start((admission_limits){max_batch, 8 + (int)seed}, 8 + (int)(seed % 7), 1 + (int)(seed % 4));
        for (uint64_t k = 0; n_added < MAX_ITEMS || n_here > 0; k += 4) {
            assert_true(k < 100000);
            if (n_added < MAX_ITEMS && rng_u64(seed, k) % 3 == 0) {
                add_random(n_added++, seed + k);
                n_here++;
            }
            if (loaders.n_todo && rng_u64(seed, k + 1) % 4 == 0)
                told_loaders_run(&loaders, 1);
            n_evicted = n_failed = 0;
            admission_admit(a, rng_u64(seed, k + 2) % 2);
            step();
            for (int i = 0; i < n_evicted; i++) {
                item[evicted[i]].n_done = 0;
                admission_add(a, &item[evicted[i]]);
            }
            n_here -= n_failed + remove_some(rng_u64(seed, k + 3) % 400);
            check_state(max_batch, n_here);
        }
        n_evictions += admission_get_stats(a).evictions;
        stop();
    }
    assert_true(n_evictions > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_by_arrival_then_id),
        cmocka_unit_test(the_batch_has_a_limit),
        cmocka_unit_test(admission_needs_pages),
        cmocka_unit_test(one_that_lacks_room_blocks_those_behind_it),
        cmocka_unit_test(one_whose_adapter_loads_blocks_nobody),
        cmocka_unit_test(it_waits_for_adapters_only_when_told_to),
        cmocka_unit_test(a_broken_adapter_fails_its_own),
        cmocka_unit_test(adapters_load_ahead_of_time_for_the_first_in_line),
        cmocka_unit_test(claims_ahead_of_time_are_taken_back),
        cmocka_unit_test(the_newest_are_evicted),
        cmocka_unit_test(the_last_token_needs_nothing),
        cmocka_unit_test(rows_are_all_decodes_and_the_oldest_prompts),
        cmocka_unit_test(rows_of_prompts_keep_to_the_target),
        cmocka_unit_test(a_burst_is_computed_before_its_streams),
        cmocka_unit_test(a_stream_is_not_young_for_long),
        cmocka_unit_test(prefixes_come_back_where_that_is_faster),
        cmocka_unit_test(what_is_not_shared_needs_room),
        cmocka_unit_test(cancel_in_every_state),
        cmocka_unit_test(nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
