/* test_row_budget.c - rows of prompts on devices of known speed: steps keep to the target, and use what it leaves */
#include "engine/row_budget.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "support/test.h"

static const double TARGET = 0.05;

/* Seconds of a step: fixed, per decode, per position they read; fixed, per row of a prompt, per position it reads. */
typedef struct { double fixed, decode, read, prompt, row, prompt_read, noise; } device;

/* A 7B model on a GPU; a small model on two cores; a large one there, whose decodes alone are beyond the target. */
static const device gpu = {4e-3, 1e-5, 1e-7, 1e-3, 2.1e-5, 4e-10, 0.05};
static const device cores = {2e-3, 3e-4, 1e-8, 1e-3, 2.5e-4, 1e-9, 0.2};
static const device slow_cores = {0.1, 1e-2, 1e-6, 0.01, 4e-3, 1e-7, 0.2};

static double time_of(const device *d, const step_work *w, uint64_t number)
{
    double t = d->fixed + d->decode * w->n_decodes + d->read * w->decode_reads;
    if (w->n_rows > 0)
        t += d->prompt + d->row * w->n_rows + d->prompt_read * w->prompt_reads;
    return t * (1 + d->noise * (2 * rng_uniform(5, number) - 1));
}

/* The next step with n_decodes streams of some hundred tokens, while prompts of prompt_len tokens come without end.
 * *at: where the oldest stands. */
static step_work next_step(const row_budget *b, int n_decodes, int prompt_len, int *at)
{
    step_work w = {.n_decodes = n_decodes, .has_elders = n_decodes > 0, .decode_reads = n_decodes * 517.0};
    for (int n; (n = row_budget_add_rows(b, &w, *at, prompt_len - *at)) > 0 && w.n_rows < 100000;)
        *at = (*at + n) % prompt_len;
    return w;
}

/* So many steps; the mean time of the last half, and their rows. */
static double run(row_budget *b, const device *d, int n_decodes, int prompt_len, int n_steps, double *rows)
{
    double seconds = 0;
    int at = 0;
    *rows = 0;
    for (int i = 0; i < n_steps; i++) {
        step_work w = next_step(b, n_decodes, prompt_len, &at);
        double t = time_of(d, &w, (uint64_t)i);
        row_budget_learn(b, &w, t);
        seconds += i >= n_steps / 2 ? t : 0;
        *rows += i >= n_steps / 2 ? w.n_rows : 0;
    }
    *rows /= n_steps - n_steps / 2;
    return seconds / (n_steps - n_steps / 2);
}

static void learn_decodes(row_budget *b, const device *d, int most)
{
    for (int i = 0; i < 100; i++) {
        int n = 1 + i * most / 100;
        step_work w = {.n_decodes = n, .decode_reads = n * (300.0 + 5 * i)};
        row_budget_learn(b, &w, time_of(d, &w, 1000 + (uint64_t)i));
    }
}

static void steps_take_what_the_target_allows(void **state)
{
    (void)state;
    static const device *const devices[] = {&gpu, &cores};
    static const int prompt_len[] = {33, 1021, 32003};
    for (int d = 0; d < 2; d++)
        for (int l = 0; l < 3; l++) {
            row_budget b;
            double rows, n_decodes = d == 0 ? 37 : 13;
            row_budget_init(&b, TARGET);
            learn_decodes(&b, devices[d], 40);
            double mean = run(&b, devices[d], (int)n_decodes, prompt_len[l], 300, &rows);
            assert_true(mean > 0.75 * TARGET && mean < TARGET);
        }
}

/* No step with decodes alone has been seen: the first prompts are beside them. */
static void nothing_need_be_known(void **state)
{
    (void)state;
    row_budget b;
    double rows;
    row_budget_init(&b, TARGET);
    double mean = run(&b, &gpu, 37, 1021, 300, &rows);
    assert_true(mean > 0.75 * TARGET && mean < TARGET);
}

/* Where no stream waits, steps are long enough that what each of them costs does not show. */
static void steps_without_streams_are_long(void **state)
{
    (void)state;
    row_budget b;
    double rows, mean;
    row_budget_init(&b, TARGET);
    mean = run(&b, &gpu, 0, 1021, 100, &rows);
    assert_true(rows > 3500 && mean < 2.5 * TARGET);
    row_budget_init(&b, TARGET);
    mean = run(&b, &slow_cores, 0, 1021, 100, &rows);
    assert_true(rows > 60 && mean < 2.5);
}

/* The target cannot be kept: prompts get as much time as the decodes. */
static void prompts_go_on_beside_slow_decodes(void **state)
{
    (void)state;
    row_budget b;
    double rows;
    step_work none = {.n_decodes = 20, .decode_reads = 20 * 517.0};
    row_budget_init(&b, TARGET);
    learn_decodes(&b, &slow_cores, 32);
    double mean = run(&b, &slow_cores, 20, 1021, 300, &rows), alone = time_of(&slow_cores, &none, 0);
    assert_true(mean > 1.5 * alone && mean < 2.5 * alone);
}

/* The mean rows of a step with 14 streams and one long prompt, and seconds of such a step. */
static double rows_beside(const device *d, bool has_elders, double *seconds)
{
    row_budget b;
    double rows = 0;
    *seconds = 0;
    row_budget_init(&b, TARGET);
    learn_decodes(&b, d, 20);
    for (int i = 0; i < 100; i++) {
        step_work w = {.n_decodes = 14, .has_elders = has_elders, .decode_reads = 14 * 517.0};
        row_budget_add_rows(&b, &w, 0, 100000);
        double t = time_of(d, &w, (uint64_t)i);
        row_budget_learn(&b, &w, t);
        rows += i < 50 ? 0 : w.n_rows / 50.0;
        *seconds += i < 50 ? 0 : t / 50;
    }
    return rows;
}

/* The streams have begun since the prompt was admitted: where the target would leave it less than three quarters of a
 * step, 20 times what the rest takes, up to 2 s. It never gets less than beside elders. */
static void a_burst_goes_before_its_own_streams(void **state)
{
    (void)state;
    static const device medium = {8e-3, 5e-4, 1e-8, 1e-3, 2.5e-4, 1e-9, 0.1};
    static const device slowest = {1, 0.1, 1e-6, 0.1, 4e-2, 1e-6, 0.1};
    static const struct {
        const device *d;
        double least, most;
    } cases[] = {
        {&gpu, 0.04, 0.05}, {&cores, 0.04, 0.05}, {&medium, 0.27, 0.37}, {&slow_cores, 1.7, 2.2}, {&slowest, 4.3, 5.2}};
    for (int i = 0; i < 5; i++) {
        double seconds, beside_elders, rows = rows_beside(cases[i].d, false, &seconds);
        assert_true(seconds > cases[i].least && seconds < cases[i].most);
        assert_true(rows > 0.95 * rows_beside(cases[i].d, true, &beside_elders));
    }
}

/* A device that has become slower, and then as fast as it was. */
static void changes_are_noticed(void **state)
{
    (void)state;
    row_budget b;
    double rows;
    device slower = gpu;
    slower.fixed *= 3;
    slower.decode *= 3;
    slower.read *= 3;
    slower.row *= 3;
    row_budget_init(&b, TARGET);
    run(&b, &gpu, 7, 1021, 300, &rows);
    double slow = run(&b, &slower, 7, 1021, 300, &rows), again = run(&b, &gpu, 7, 1021, 300, &rows);
    assert_true(slow > 0.7 * TARGET && slow < TARGET);
    assert_true(again > 0.7 * TARGET && again < TARGET);
}

/* Now and then something else has the machine for a while: this says nothing of the next step. */
static void interruptions_hardly_count(void **state)
{
    (void)state;
    row_budget b;
    double fewest = 1e9, most = 0;
    int at = 0;
    row_budget_init(&b, TARGET);
    learn_decodes(&b, &gpu, 40);
    for (int i = 0; i < 400; i++) {
        step_work w = next_step(&b, 19, 1021, &at);
        row_budget_learn(&b, &w, time_of(&gpu, &w, (uint64_t)i) + (i % 10 == 9 ? 1 : 0));
        fewest = i > 200 ? fmin(fewest, w.n_rows) : fewest;
        most = i > 200 ? fmax(most, w.n_rows) : most;
    }
    assert_true(fewest > 1000 && most < 2500);
}

/* Decodes alone for a long time: what prompts cost is still known. */
static void prompts_are_not_forgotten(void **state)
{
    (void)state;
    row_budget b;
    double rows;
    int at = 0;
    row_budget_init(&b, TARGET);
    run(&b, &cores, 5, 333, 200, &rows);
    for (int i = 0; i < 20; i++)
        learn_decodes(&b, &cores, 32);
    step_work w = next_step(&b, 5, 333, &at);
    assert_true(fabs(w.n_rows - rows) < 0.3 * rows);
}

/* A few rows whatever they cost, but not of many prompts. */
static void every_prompt_comes_to_its_end(void **state)
{
    (void)state;
    row_budget b;
    step_work w = {.n_decodes = 3, .n_rows = 64}, next = {.n_decodes = 3, .has_elders = true};
    row_budget_init(&b, TARGET);
    for (int i = 0; i < 10; i++)
        row_budget_learn(&b, &w, 100);
    assert_in_range(row_budget_add_rows(&b, &next, 5000, 200), 1, 64);
    assert_int_equal(row_budget_add_rows(&b, &next, 0, 200), 0);
    row_budget_init(&b, 0); /* no target, no limit */
    assert_int_equal(row_budget_add_rows(&b, &next, 0, 50000), 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_what_the_target_allows),   cmocka_unit_test(nothing_need_be_known),
        cmocka_unit_test(steps_without_streams_are_long),      cmocka_unit_test(prompts_go_on_beside_slow_decodes),
        cmocka_unit_test(a_burst_goes_before_its_own_streams), cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(interruptions_hardly_count),          cmocka_unit_test(prompts_are_not_forgotten),
        cmocka_unit_test(every_prompt_comes_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
