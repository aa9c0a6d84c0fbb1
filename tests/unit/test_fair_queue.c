/* test_fair_queue.c - who is next among jobs of different sizes, and the budget that their memory comes from */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget.h"
#include "base/fair_queue.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/test.h"

#define MB ((size_t)1 << 20)

static void push(fair_queue *q, fair_item *i, size_t size)
{
    i->size = size;
    fair_queue_push(q, i);
}

static void test_short_pass(void **state)
{
    (void)state;
    fair_queue *q = fair_queue_new();
    fair_item large[3], small[2];
    for (int i = 0; i < 3; i++)
        push(q, &large[i], 8 * MB);
    push(q, &small[0], 1000);
    push(q, &small[1], 1000);
    assert_ptr_equal(fair_queue_pop(q, false), &small[0]);
    assert_ptr_equal(fair_queue_pop(q, true), &small[1]);
    assert_ptr_equal(fair_queue_pop(q, false), &large[0]);
    assert_true(fair_queue_remove(q, &large[1]));
    assert_false(fair_queue_remove(q, &large[0]));
    assert_false(fair_queue_remove(q, &large[1]));
    assert_ptr_equal(fair_queue_try_pop(q), &large[2]);
    assert_null(fair_queue_try_pop(q));
    fair_queue_close(q);
    assert_null(fair_queue_pop(q, false));
    fair_queue_free(q);
}

/* A large one is overtaken by no more work than it is itself. */
static void test_nobody_starves(void **state)
{
    (void)state;
    fair_queue *q = fair_queue_new();
    fair_item large, small[200];
    push(q, &large, 8 * MB);
    size_t overtaken = 0;
    bool came = false;
    for (int i = 0; i < 200 && !came; i++) {
        push(q, &small[i], MB / 8);
        fair_item *next = fair_queue_pop(q, false);
        came = next == &large;
        overtaken += came ? 0 : next->size;
    }
    assert_true(came && overtaken >= 7 * MB && overtaken <= 8 * MB);
    while (fair_queue_try_pop(q))
        ;
    fair_queue_free(q);
}

/* Whatever is pushed and removed, what is popped is in order of turns. */
static void test_random(void **state)
{
    (void)state;
    enum { N = 500 };
    fair_queue *q = fair_queue_new();
    fair_item item[N], *next;
    int n_left = N;
    for (int i = 0; i < N; i++)
        push(q, &item[i], (size_t)(rng_u64(1, (uint64_t)i) % 300000));
    for (int i = 0; i < N; i += 3)
        n_left -= fair_queue_remove(q, &item[rng_u64(2, (uint64_t)i) % N]);
    uint64_t last = 0;
    while ((next = fair_queue_try_pop(q))) {
        assert_true(next->turn >= last);
        last = next->turn;
        n_left--;
    }
    assert_int_equal(n_left, 0);
    fair_queue_free(q);
}

static void *pop_short(void *q)
{
    return fair_queue_pop(q, true);
}

static void test_wakes(void **state)
{
    (void)state;
    fair_queue *q = fair_queue_new();
    fair_item large, small;
    pthread_t thread;
    void *got;
    assert_int_equal(pthread_create(&thread, NULL, pop_short, q), 0);
    push(q, &large, MB);
    push(q, &small, 1);
    pthread_join(thread, &got);
    assert_ptr_equal(got, &small);
    assert_ptr_equal(fair_queue_try_pop(q), &large);
    fair_queue_free(q);
}

static void test_budget(void **state)
{
    (void)state;
    budget b = {.limit = 100000};
    charged_buf small = {.of = &b}, large = {.of = &b}, more = {.of = &b}, free_one = {0};
    char bytes[60000] = {0};
    assert_true(charged_buf_add(&small, bytes, 16000, 16000));
    assert_int_equal(b.used, 0); /* what everybody is given */
    assert_true(charged_buf_add(&large, bytes, 60000, 60000));
    assert_int_equal(b.used, 60001);
    assert_false(charged_buf_add(&more, bytes, 60000, 60000));
    assert_true(more.bytes.len == 0 && b.used == 60001);
    assert_true(charged_buf_add(&free_one, bytes, 60000, 60000));
    assert_false(budget_take(&b, 50000));
    budget_charge(&b, 50000);
    assert_false(budget_take(&b, 1));
    budget_give(&b, 50000);
    charged_buf_free(&large);
    assert_int_equal(b.used, 0);
    assert_true(charged_buf_add(&more, bytes, 60000, 60000));
    charged_buf_free(&more);
    charged_buf_free(&small);
    charged_buf_free(&free_one);
    assert_false(budget_take(&b, SIZE_MAX));
    assert_true(budget_take(&b, 75000) && !budget_take(&b, 1));
    assert_true(budget_take_more(&b, 25000) && !budget_take_more(&b, 1)); /* for what runs */
}

/* One who takes all it gets leaves room for others, who leave room for more. What runs has no such bound. */
static void test_parts(void **state)
{
    (void)state;
    shared_budget *b = XNEW(shared_budget);
    shared_budget_init(b, 160000); /* of which something new may have 120000 */
    budget *greedy = shared_budget_part(b, "greedy"), *other = shared_budget_part(b, "other");
    assert_true(greedy != other && greedy == shared_budget_part(b, "greedy"));
    assert_true(shared_budget_part(b, NULL) == &b->whole && !shared_budget_part(NULL, "greedy"));
    while (budget_take(greedy, 1000))
        ;
    assert_int_equal(greedy->used, 90000);
    while (budget_take(other, 1000))
        ;
    assert_int_equal(other->used, 30000); /* less than a third, and all there is */
    assert_int_equal(b->whole.used, 120000);
    budget_give(greedy, 50000);
    assert_false(budget_take(greedy, 20001)); /* it has an equal part, one more counted in */
    assert_true(budget_take(other, 10000) && budget_take(&b->whole, 40000));
    assert_true(budget_take_more(greedy, 40000) && !budget_take_more(greedy, 1));
    budget_give(greedy, 80000);
    budget_give(&b->whole, 40000);
    budget_charge(other, 1000);
    assert_int_equal(b->whole.used, 41000);
    assert_int_equal(b->whole.n_parts, 1);
    budget_give(other, 41000);
    assert_true(b->whole.n_parts == 0 && b->whole.used == 0 && !budget_take(other, SIZE_MAX));
    free(b);
}

/* Large buffers have half of it, but a user's equal share of that half is its own, however much others took piece by
 * piece. */
static void test_large_parts(void **state)
{
    (void)state;
    shared_budget *b = XNEW(shared_budget);
    shared_budget_init(b, 160000);
    budget *greedy = shared_budget_part(b, "greedy"), *other = shared_budget_part(b, "other");
    charged_buf large = {.of = greedy};
    assert_false(charged_buf_reserve(&large, 60000)); /* three quarters of the half */
    assert_true(charged_buf_reserve(&large, 59000));
    while (budget_take(greedy, 1000))
        ;
    assert_true(b->whole.used > 80000);
    charged_buf others = {.of = other};
    assert_false(charged_buf_reserve(&others, 27000));
    assert_true(charged_buf_reserve(&others, 26000)); /* a third of the half */
    charged_buf_free(&large);
    charged_buf_free(&others);
    budget_give(greedy, greedy->used);
    assert_int_equal(b->whole.used, 0);
    free(b);
}

/* A growing one never owes more than twice what it has, nor more than it will have. */
static void test_growth(void **state)
{
    (void)state;
    budget b = {.limit = SIZE_MAX};
    charged_buf grows = {.of = &b};
    for (size_t n = 0; n < 8 * MB; n += 1000) {
        assert_true(charged_buf_add(&grows, "x", 1, 8 * MB));
        char piece[999] = {0};
        assert_true(charged_buf_add(&grows, piece, sizeof piece, 8 * MB));
        assert_true(b.used <= 2 * (grows.bytes.len + 4096) && b.used <= 8 * MB + 1001);
    }
    charged_buf_free(&grows);
    assert_int_equal(b.used, 0);
}

/* Eight megabytes of [] would take some four hundred. */
static void test_json_within(void **state)
{
    (void)state;
    err e;
    bool too_large;
    buf text = {0};
    buf_add_str(&text, "[[]");
    while (text.len < 8 * MB)
        buf_add_str(&text, ",[]");
    buf_add_str(&text, "]");
    assert_null(json_read_within(text.data, text.len, 64 * MB, NULL, &too_large, &e));
    assert_true(too_large);
    json_t *all = json_read_within("[1,2]", 5, 64 * MB, NULL, &too_large, &e);
    assert_true(all && !too_large);
    json_decref(all);
    assert_null(json_read_within("[1,2", 4, 64 * MB, NULL, &too_large, &e));
    assert_false(too_large);
    atomic_bool stop = true;
    assert_null(json_read_within("[1,2]", 5, 64 * MB, &stop, &too_large, &e));
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_pass),  cmocka_unit_test(test_nobody_starves), cmocka_unit_test(test_random),
        cmocka_unit_test(test_wakes),       cmocka_unit_test(test_budget),         cmocka_unit_test(test_parts),
        cmocka_unit_test(test_large_parts), cmocka_unit_test(test_growth),         cmocka_unit_test(test_json_within)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
