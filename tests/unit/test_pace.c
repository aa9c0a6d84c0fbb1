/* test_pace.c - who is slow, who is not, and who is no more */
#include "scheduler/pace.h"
#include "support/test.h"

/* Time goes on as the test says; GPU 0 and 1 are of one kind, 2 is of another. */
typedef struct {
    pace *p;
    double now;
} fixture;

static fixture begin(void)
{
    fixture f = {.p = pace_new()};
    pace_gpu_up(f.p, 0, 0, "H200", false);
    pace_gpu_up(f.p, 0, 1, "H200", false);
    pace_gpu_up(f.p, 0, 2, "cpu", false);
    return f;
}

/* n steps alike; the last news of them. */
static pace_news steps(fixture *f, int gpu, int n, int rows, int context, double seconds)
{
    pace_news last = PACE_SAME;
    for (int i = 0; i < n; i++) {
        f->now += seconds;
        pace_news news = pace_step(f->p, f->now, gpu, rows, context, seconds, true);
        last = news == PACE_SAME ? last : news;
    }
    return last;
}

/* Looks every 0.1 s for so long, without a word of the GPU. */
static pace_news silence(fixture *f, int gpu, double seconds)
{
    pace_news last = PACE_SAME;
    for (double end = f->now + seconds; f->now < end; f->now += 0.1) {
        pace_news news = pace_look(f->p, f->now, gpu);
        last = news == PACE_SAME ? last : news;
    }
    return last;
}

static void a_gpu_at_a_hundredth_of_its_speed_is_slow_within_seconds(void **state)
{
    (void)state;
    fixture f = begin();
    assert_int_equal(steps(&f, 0, 1000, 32, 9000, 0.006), PACE_SAME);
    double since = f.now;
    assert_int_equal(steps(&f, 0, 4, 32, 9000, 0.6), PACE_SLOW);
    assert_true(f.now - since < 3);
    assert_true(pace_is_slow(f.p, 0) && !pace_is_slow(f.p, 1));
    pace_times t = pace_last(f.p, 0);
    assert_true(t.took > 0.59 && t.took < 0.61 && t.usual > 0.0059 && t.usual < 0.0061);
    pace_free(f.p);
}

static void one_that_was_never_fast_is_known_by_others_of_its_kind(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 1000, 8, 4000, 0.006);
    assert_int_equal(steps(&f, 1, 16, 1, 16, 0.6), PACE_SLOW); /* smaller steps */
    assert_int_equal(steps(&f, 2, 16, 1, 16, 0.6), PACE_SAME); /* another kind */
    pace_free(f.p);
}

static void a_long_prompt_is_no_fault(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 1000, 32, 9000, 0.006);
    assert_int_equal(steps(&f, 0, 40, 2048, 30000, 0.3), PACE_SAME); /* none as large was ever faster */
    assert_int_equal(steps(&f, 0, 40, 33, 1 << 20, 0.3), PACE_SAME); /* nor one over as much context */
    assert_int_equal(steps(&f, 0, 40, 16, 9000, 0.3), PACE_SLOW);    /* this one was */
    pace_free(f.p);
}

static void what_was_before_a_long_pause_is_forgotten(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 62 * 16, 32, 9000, 0.006);
    assert_int_equal(steps(&f, 0, 3, 32, 9000, 0.6), PACE_SAME); /* one stretch, and half of another */
    f.now += 10;
    pace_step(f.p, f.now, 0, 0, 0, 0, true); /* it has taken a request in */
    assert_int_equal(steps(&f, 0, 1, 32, 9000, 0.6), PACE_SAME);
    assert_int_equal(steps(&f, 0, 4, 32, 9000, 0.6), PACE_SLOW);
    pace_free(f.p);
}

static void a_hiccup_is_no_fault(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 1000, 32, 9000, 0.006);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(steps(&f, 0, 1, 32, 9000, 1.5), PACE_SAME);
        assert_int_equal(steps(&f, 0, 40, 32, 9000, 0.006), PACE_SAME);
    }
    /* Four times as long, or so short that nobody notices. */
    assert_int_equal(steps(&f, 0, 1000, 32, 9000, 0.024), PACE_SAME);
    pace_free(f.p);
}

static void it_comes_back_when_it_has_been_well_for_a_while(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 1000, 32, 9000, 0.006);
    assert_int_equal(steps(&f, 0, 8, 32, 9000, 0.6), PACE_SLOW);
    for (int i = 0; i < 5; i++) { /* it stutters */
        assert_int_equal(steps(&f, 0, 3 * 16, 1, 16, 0.006), PACE_SAME);
        assert_int_equal(steps(&f, 0, 2, 1, 16, 0.6), PACE_SAME);
    }
    assert_int_equal(steps(&f, 0, 5 * 16, 1, 16, 0.006), PACE_WELL); /* the first may hold the end of what was before */
    assert_false(pace_is_slow(f.p, 0));
    steps(&f, 0, 8, 32, 9000, 0.6);
    pace_gpu_up(f.p, f.now, 0, "H200", false); /* another process */
    assert_false(pace_is_slow(f.p, 0));
    pace_free(f.p);
}

static void one_on_probation_is_slow_until_it_has_worked_for_a_while(void **state)
{
    (void)state;
    fixture f = begin();
    pace_gpu_up(f.p, 0, 0, "H200", true);
    assert_true(pace_is_slow(f.p, 0));
    assert_int_equal(steps(&f, 0, 15, 1, 16, 0.006), PACE_SAME);
    assert_int_equal(steps(&f, 0, 1, 1, 16, 0.006), PACE_WELL);
    assert_false(pace_is_slow(f.p, 0));
    pace_free(f.p);
}

static void silence_in_a_step_is_slow_and_otherwise_is_not(void **state)
{
    (void)state;
    fixture f = begin();
    steps(&f, 0, 1000, 32, 9000, 0.006);
    assert_int_equal(silence(&f, 0, 1.9), PACE_SAME);
    assert_int_equal(silence(&f, 0, 0.5), PACE_SLOW);
    steps(&f, 1, 16, 32, 9000, 0.4); /* whose steps may take 3.2 s then */
    pace_step(f.p, f.now, 1, 32, 9000, 0.006, false);
    assert_int_equal(silence(&f, 1, 100), PACE_SAME); /* it has nothing to do */
    pace_step(f.p, f.now, 1, 0, 0, 0, true);
    assert_int_equal(silence(&f, 1, 100), PACE_SAME); /* or something new, and nobody knows how large that is */
    pace_step(f.p, f.now, 1, 32, 9000, 0.006, true);
    f.now += 100;
    assert_int_equal(pace_look(f.p, f.now, 1), PACE_SAME); /* nobody has looked for long */
    pace_free(f.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_at_a_hundredth_of_its_speed_is_slow_within_seconds),
        cmocka_unit_test(one_that_was_never_fast_is_known_by_others_of_its_kind),
        cmocka_unit_test(a_long_prompt_is_no_fault),
        cmocka_unit_test(what_was_before_a_long_pause_is_forgotten),
        cmocka_unit_test(a_hiccup_is_no_fault),
        cmocka_unit_test(it_comes_back_when_it_has_been_well_for_a_while),
        cmocka_unit_test(one_on_probation_is_slow_until_it_has_worked_for_a_while),
        cmocka_unit_test(silence_in_a_step_is_slow_and_otherwise_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
