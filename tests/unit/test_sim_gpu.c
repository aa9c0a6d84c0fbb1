/* test_sim_gpu.c - the simulated GPU: when steps end, and what it reports. Who runs is tested in test_admission.c. */
#include "sim/sim_gpu.h"

#include "support/test.h"

enum { N_PAGES = 100, PAGE_LEN = 16 };

/* 10 ms a step, 1 ms more for each request after the first, 3 ms if it has an adapter of its own; 10 ms and 0.1 ms a
 * row for prompts; 5 s for an adapter. */
static const step_model model = {.point = {{1, 0.010, 0.010}, {2, 0.011, 0.013}},
                                 .n_points = 2,
                                 .prefill_time = 0.01,
                                 .prefill_token_time = 0.0001,
                                 .adapter_load_time = 5};
static int woken[8];
static sim_wakeups wakeups = {.gpu = woken};

static sim_gpu *start(int n_pages)
{
    wakeups.n = 0;
    return sim_gpu_new(&(sim_gpu_setup){.max_batch = 4,
                                        .n_pages = n_pages,
                                        .page_len = PAGE_LEN,
                                        .n_adapters = 3,
                                        .model = &model,
                                        .wakeups = &wakeups});
}

static void add(sim_gpu *g, int id, int adapter, int n_prompt, int n_total)
{
    sim_gpu_add(g,
                &(sim_request){.id = id, .adapter = adapter, .attempt = 1, .n_tokens = n_prompt, .n_total = n_total});
}

static void assert_time(double a, double b)
{
    assert_true(a - b < 1e-9 && b - a < 1e-9);
}

static void steps_take_what_the_model_says(void **state)
{
    (void)state;
    sim_gpu *g = start(N_PAGES);
    assert_true(sim_gpu_start(g, 1) < 0);
    add(g, 7, 0, 20, 3);
    assert_int_equal(wakeups.n, 1);
    assert_time(sim_gpu_start(g, 10), 10 + 5 + 0.010 + 0.01 + 0.0020); /* adapter, step, prompt */
    add(g, 8, 0, 30, 9);
    add(g, 9, 1, 5, 9);
    assert_int_equal(wakeups.n, 1); /* it runs */
    const gpu_report *r = sim_gpu_end(g);
    assert_int_equal(r->n_tokens, 1);
    assert_true(r->tokens[0].id == 7 && r->tokens[0].attempt == 1 && r->tokens[0].index == 0);
    assert_int_equal(r->n_seen, 1);
    assert_int_equal(r->pages_free, N_PAGES - 2);
    assert_time(sim_gpu_start(g, 20), 20 + 0.011 + 0.01 + 0.0030); /* 8's adapter is there, 9's loads */
    assert_int_equal(sim_gpu_batch(g), 2);
    r = sim_gpu_end(g);
    assert_int_equal(r->n_tokens, 2);
    assert_int_equal(r->n_seen, 3);
    assert_int_equal(r->pages_free, N_PAGES - 2 - 2 - 1);
    assert_time(sim_gpu_start(g, 26), 26 + 0.014 + 0.01 + 0.0005); /* three of two adapters: between 12 and 16 ms */
    sim_gpu_end(g);
    sim_gpu_free(g);
}

/* Which grow with what has been learnt: four times what was measured at most. */
static void prompts_go_in_chunks(void **state)
{
    (void)state;
    static const int rows[] = {64, 256, 280};
    sim_gpu *g = start(N_PAGES);
    add(g, 1, 0, 600, 5);
    for (int i = 0; i < 3; i++) {
        assert_time(sim_gpu_start(g, 10), 10 + (i == 0 ? 5 : 0) + 0.010 + 0.01 + 0.0001 * rows[i]);
        assert_int_equal(sim_gpu_end(g)->n_tokens, i == 2);
    }
    sim_gpu_free(g);
}

static void commands_that_leave_nothing_to_do_are_reported(void **state)
{
    (void)state;
    sim_gpu *g = start(N_PAGES);
    add(g, 1, 0, 10, 5);
    sim_gpu_start(g, 0);
    sim_gpu_cancel(g, 1, 2); /* of another attempt */
    sim_gpu_end(g);
    assert_int_equal(sim_gpu_n_requests(g), 0); /* as far as it can tell */
    assert_true(sim_gpu_start(g, 7) > 7);
    assert_int_equal(sim_gpu_n_requests(g), 1);
    sim_gpu_cancel(g, 1, 1);
    sim_gpu_end(g);
    assert_time(sim_gpu_start(g, 8), 8);
    const gpu_report *r = sim_gpu_end(g);
    assert_int_equal(r->n_seen, 3);
    assert_int_equal(r->pages_free, N_PAGES);
    assert_int_equal(r->n_tokens + r->n_ends, 0);
    assert_true(sim_gpu_start(g, 8) < 0);
    sim_gpu_free(g);
}

/* Four pages, two for each: the newer one has to go when the other wants a third. */
static void ends_and_evictions_are_reported(void **state)
{
    (void)state;
    sim_gpu *g = start(4);
    int n_evicted = 0, n_ended = 0, n_tokens = 0;
    add(g, 1, 0, 16, 20);
    add(g, 2, 0, 15, 40);
    for (int i = 0; i < 20; i++) {
        sim_gpu_start(g, 0);
        const gpu_report *r = sim_gpu_end(g);
        n_tokens += r->n_tokens;
        for (int k = 0; k < r->n_ends; k++) {
            n_evicted += r->ends[k].id == 2 && r->ends[k].why == END_EVICTED;
            n_ended += r->ends[k].id == 1 && r->ends[k].why == END_LENGTH;
        }
    }
    assert_true(n_evicted == 1 && n_ended == 1);
    assert_int_equal(n_tokens, 20 + 17); /* both have 17 by then */
    assert_int_equal(sim_gpu_n_requests(g), 0);
    sim_gpu_free(g);
}

static void room_counts_what_is_on_its_way(void **state)
{
    (void)state;
    sim_gpu *g = start(10);
    assert_true(sim_gpu_has_room(g, 159) && !sim_gpu_has_room(g, 160));
    add(g, 1, 0, 31, 5); /* 2 pages, and one for it when another comes */
    assert_true(sim_gpu_has_room(g, 111) && !sim_gpu_has_room(g, 112));
    sim_gpu_start(g, 0);
    assert_true(sim_gpu_has_room(g, 111) && !sim_gpu_has_room(g, 112));
    for (int i = 2; i < 5; i++)
        add(g, i, 0, 1, 5);
    assert_false(sim_gpu_has_room(g, 1)); /* the batch is full */
    sim_gpu_end(g);
    sim_gpu_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_what_the_model_says),
        cmocka_unit_test(prompts_go_in_chunks),
        cmocka_unit_test(commands_that_leave_nothing_to_do_are_reported),
        cmocka_unit_test(ends_and_evictions_are_reported),
        cmocka_unit_test(room_counts_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
