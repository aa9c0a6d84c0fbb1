/* test_jobs.c - work beside the caller: every job comes back once, finished or not begun */
#include <stdatomic.h>
#include <unistd.h>

#include "base/jobs.h"
#include "support/test.h"

enum { N_JOBS = 64 };

typedef struct {
    job base;
    int n_runs;
} counted; /* n_runs: handed over with the job */

static atomic_int n_begun, gate_open;

static void count(job *j)
{
    ((counted *)j)->n_runs++;
}

/* Wait until four have begun, and for the gate. */
static void count_at_the_gate(job *j)
{
    n_begun++;
    while (n_begun < 4 || !gate_open)
        usleep(100);
    count(j);
}

static void all_come_back_once(void **state)
{
    (void)state;
    static counted all[N_JOBS];
    jobs *w = jobs_threads_new(3);
    assert_null(jobs_finished(w, false));
    for (int i = 0; i < N_JOBS; i++) {
        all[i].base.run = count;
        jobs_start(w, &all[i].base);
    }
    for (int i = 0; i < N_JOBS; i++) {
        counted *c = (counted *)jobs_finished(w, true);
        assert_int_equal(c->n_runs, 1);
        c->n_runs = -1;
    }
    assert_null(jobs_finished(w, false));
    jobs_free(w);
    jobs_free(NULL);
}

/* Four threads are held up, so the jobs after the fourth have not begun. */
static void those_not_begun_can_be_taken_back(void **state)
{
    (void)state;
    static counted all[10];
    jobs *w = jobs_threads_new(4);
    for (int i = 0; i < 10; i++) {
        all[i].base.run = count_at_the_gate;
        jobs_start(w, &all[i].base);
    }
    while (n_begun < 4)
        usleep(100);
    for (int i = 4; i < 10; i++)
        assert_ptr_equal(jobs_take_back(w), &all[i].base);
    assert_null(jobs_take_back(w));
    assert_null(jobs_finished(w, false));
    gate_open = 1;
    for (int i = 0; i < 4; i++)
        assert_int_equal(((counted *)jobs_finished(w, true))->n_runs, 1);
    jobs_free(w);
    for (int i = 4; i < 10; i++)
        assert_int_equal(all[i].n_runs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_come_back_once),
        cmocka_unit_test(those_not_begun_can_be_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
