/* test_scheduler.c - every rule of the scheduler by example */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/command_words.h"
#include "support/test.h"

/* One scheduler, frontends 0 and 1, time that the test sets. */
typedef struct {
    scheduler *s;
    buf said;
    double now;
} fixture;

static scheduler_options plain_options(void)
{
    scheduler_options o = scheduler_options_default();
    o.consolidate_every = 0;
    return o;
}

static fixture *begin_with(scheduler_options o)
{
    fixture *f = XNEW(fixture);
    f->s = scheduler_new(&o, command_words_write, &f->said);
    scheduler_frontend_up(f->s, 0);
    scheduler_frontend_up(f->s, 1);
    return f;
}

static fixture *begin(void)
{
    return begin_with(plain_options());
}

static void finish(fixture *f)
{
    scheduler_check(f->s);
    scheduler_free(f->s);
    buf_free(&f->said);
    free(f);
}

/* Everything said since the last call, in short: "add 1 to 0" for each add and so on. */
static void expect(fixture *f, const char *want)
{
    buf got = {0};
    char *save = NULL;
    buf_add_str(&got, "");
    for (char *line = f->said.data ? strtok_r(f->said.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        char *stop = strncmp(line, "add", 3) == 0      ? strstr(line, " as #")
                     : strncmp(line, "cancel", 6) == 0 ? strchr(line, ',')
                                                       : NULL;
        if (stop)
            *stop = 0;
        buf_printf(&got, "%s%s", got.len ? "; " : "", line);
    }
    buf_clear(&f->said);
    scheduler_check(f->s);
    assert_string_equal(got.data, want);
    buf_free(&got);
}

/* GPU number n, uuid "gpu-<n>", pages of 4 tokens. */
static void gpu_is_up(fixture *f, int n, int max_batch, int n_pages)
{
    char uuid[16];
    snprintf(uuid, sizeof uuid, "gpu-%d", n);
    scheduler_gpu_up(f->s, f->now, n, &(gpu_info){uuid, max_batch, n_pages, 4, 1000});
}

/* Tokens that count up. */
static void submit_as(fixture *f, int frontend, submission w)
{
    int token[1000];
    for (int i = 0; i < w.n_tokens; i++)
        token[i] = i;
    w.token = token;
    scheduler_submit(f->s, f->now, frontend, &w);
}

static void submit_tokens(fixture *f, int frontend, uint64_t id, double arrival, int n_tokens, int n_prompt,
                          int max_tokens)
{
    submit_as(f, frontend,
              (submission){
                  .id = id, .arrival = arrival, .n_tokens = n_tokens, .n_prompt = n_prompt, .max_tokens = max_tokens});
}

/* A prompt of three tokens: one page with its first token. It arrived at its id. */
static void submit(fixture *f, uint64_t id)
{
    submit_tokens(f, 0, id, (double)id, 3, 3, 100);
}

static void submit_long(fixture *f, uint64_t id, int n_tokens)
{
    submit_tokens(f, 0, id, (double)id, n_tokens, n_tokens, 100);
}

/* It was submitted before, and had no output then. */
static void submit_again(fixture *f, uint64_t id, int n_tokens)
{
    submit_as(f, 0,
              (submission){.id = id,
                           .arrival = (double)id,
                           .n_tokens = n_tokens,
                           .n_prompt = n_tokens,
                           .max_tokens = 100,
                           .again = true});
}

/* A report that has seen n_seen commands and says nothing of requests. */
static void reports(fixture *f, int gpu, uint64_t n_seen, int pages_free)
{
    scheduler_report(f->s, f->now, gpu, &(gpu_report){.n_seen = n_seen, .pages_free = pages_free});
}

static void reports_token(fixture *f, int gpu, uint64_t n_seen, int pages_free, uint64_t id, uint32_t attempt,
                          int index, int token)
{
    report_tokens t = {.id = id, .attempt = attempt, .index = index, .n = 1, .token = &token};
    scheduler_report(f->s, f->now, gpu,
                     &(gpu_report){.n_seen = n_seen, .pages_free = pages_free, .n_tokens = 1, .tokens = &t});
}

static void reports_end(fixture *f, int gpu, uint64_t n_seen, int pages_free, uint64_t id, uint32_t attempt,
                        end_reason why)
{
    report_end e = {.id = id, .attempt = attempt, .why = why, .message = "because"};
    scheduler_report(f->s, f->now, gpu,
                     &(gpu_report){.n_seen = n_seen, .pages_free = pages_free, .n_ends = 1, .ends = &e});
}

/* Its worker dies, having taken in so many commands. */
static void dies(fixture *f, int gpu, uint64_t n_seen)
{
    reports(f, gpu, n_seen, 50);
    scheduler_gpu_gone(f->s, f->now, gpu, LOSS_CRASH);
}

static void the_largest_working_set_with_room_is_chosen(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    gpu_is_up(f, 1, 2, 100);
    gpu_is_up(f, 2, 2, 100);
    submit(f, 1);
    expect(f, "add 1 to 2"); /* all idle: the highest uuid */
    submit(f, 2);
    expect(f, "add 2 to 2"); /* the busiest */
    submit(f, 3);
    expect(f, "add 3 to 1"); /* that is full now */
    submit(f, 4);
    submit(f, 5);
    expect(f, "add 4 to 1; add 5 to 0");
    finish(f);
}

/* Twenty tokens, which others begin with as well; 6 pages with the first that is made. */
static void submit_common(fixture *f, uint64_t id, const char *tenant)
{
    submit_as(
        f, 0,
        (submission){
            .id = id, .arrival = (double)id, .n_tokens = 20, .n_prompt = 20, .max_tokens = 100, .tenant = tenant});
}

/* GPU 0 has one request, GPU 1 two: who begins as the one on GPU 0 goes there, unless GPU 0 is lightly loaded. */
static void a_beginning_goes_where_it_was(void **state)
{
    (void)state;
    for (int light = 0; light < 2; light++) {
        fixture *f = begin();
        int batch = light ? 16 : 4;
        gpu_is_up(f, 1, batch, 100);
        submit(f, 1);
        submit(f, 2);
        reports(f, 1, 2, 3); /* no room for more */
        gpu_is_up(f, 0, batch, 100);
        submit_common(f, 3, "a");
        expect(f, "add 1 to 1; add 2 to 1; add 3 to 0");
        reports(f, 1, 2, 90);
        submit_common(f, 4, "a");
        expect(f, light ? "add 4 to 1" : "add 4 to 0");
        submit_common(f, 5, "b"); /* what another tenant said is no beginning of its */
        expect(f, "add 5 to 1");
        finish(f);
    }
}

/* As full as the fullest is good enough: of two that are idle, the one that has it and not the highest uuid. */
static void a_beginning_decides_between_equals(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 16, 100);
    submit_common(f, 1, NULL);
    reports_end(f, 0, 1, 100, 1, 1, END_STOP);
    buf_clear(&f->said);
    gpu_is_up(f, 1, 16, 100);
    submit_common(f, 2, NULL);
    expect(f, "add 2 to 0");
    reports_end(f, 0, 2, 100, 2, 2, END_STOP);
    buf_clear(&f->said);
    gpu_is_up(f, 0, 16, 100); /* started anew, it has nothing any more */
    submit_common(f, 3, NULL);
    expect(f, "add 3 to 1");
    finish(f);
}

static void highest_uuid_wins_not_highest_number(void **state)
{
    (void)state;
    fixture *f = begin();
    scheduler_gpu_up(f->s, 0, 0, &(gpu_info){"zz", 2, 100, 4, 1000});
    scheduler_gpu_up(f->s, 0, 1, &(gpu_info){"aa", 2, 100, 4, 1000});
    submit(f, 1);
    expect(f, "add 1 to 0");
    finish(f);
}

static void pages_for_the_prompt_and_one_for_each_that_runs(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 8, 5);
    submit_long(f, 1, 7); /* 8 tokens with the first of output: 2 pages; 3 left */
    expect(f, "add 1 to 0");
    submit_long(f, 2, 8); /* 3 pages and one for request 1: 4 */
    expect(f, "");
    scheduler_cancel(f->s, 0, 0, 2);
    submit_long(f, 3, 7); /* 2 pages and one: 3; 1 left */
    expect(f, "add 3 to 0");
    submit_long(f, 4, 3); /* 1 page and two: 3 */
    expect(f, "");
    finish(f);
}

static void a_request_too_large_for_the_busiest_goes_to_another(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 8, 10);
    gpu_is_up(f, 1, 8, 4);
    submit(f, 1);
    expect(f, "add 1 to 1");
    submit_long(f, 2, 20);
    expect(f, "add 2 to 0");
    finish(f);
}

static void pages_on_their_way_are_reckoned_off(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 8, 6);
    submit_long(f, 1, 11); /* 3 pages */
    expect(f, "add 1 to 0");
    reports(f, 0, 0, 6);   /* it had not seen the add */
    submit_long(f, 2, 11); /* 3 and one: 4 of 3 */
    expect(f, "");
    reports(f, 0, 1, 3); /* now it has: the same */
    expect(f, "");
    reports(f, 0, 1, 4);
    expect(f, "add 2 to 0");
    finish(f);
}

static void the_first_in_the_queue_holds_up_those_behind(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 6);
    submit(f, 1);
    expect(f, "add 1 to 0");
    submit_long(f, 2, 23); /* 6 pages */
    submit(f, 3);          /* would fit */
    expect(f, "");
    reports_end(f, 0, 1, 6, 1, 1, END_STOP);
    expect(f, "end 1 for 0: stop; add 2 to 0");
    reports_end(f, 0, 2, 6, 2, 2, END_STOP);
    expect(f, "end 2 for 0: stop; add 3 to 0");
    finish(f);
}

static void the_queue_is_by_first_arrival_then_id(void **state)
{
    (void)state;
    fixture *f = begin();
    submit_tokens(f, 0, 9, 5, 3, 3, 10);
    submit_tokens(f, 0, 7, 5, 3, 3, 10);
    submit_tokens(f, 1, 8, 4, 3, 3, 10);
    expect(f, ""); /* no GPU is up: they wait */
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 8 to 0; add 7 to 0; add 9 to 0");
    finish(f);
}

static void an_evicted_request_comes_back_before_later_ones(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    for (uint64_t id = 1; id <= 4; id++)
        submit(f, id);
    expect(f, "add 1 to 0; add 2 to 0");
    reports_token(f, 0, 2, 90, 2, 2, 0, 77);
    expect(f, "tokens of 2 for 0 from 0: 77");
    reports_end(f, 0, 2, 100, 2, 2, END_EVICTED);
    assert_non_null(strstr(f->said.data, "add 2 to 0 as #3, 3 of 100: 0 1 2 77\n")); /* with its token, before 3 */
    assert_int_equal(scheduler_get_stats(f->s).evicted, 1);
    finish(f);
}

static void the_newest_leave_a_gpu_that_is_short_of_pages(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 8, 30);
    for (uint64_t id = 1; id <= 4; id++)
        submit(f, id);
    expect(f, "add 1 to 0; add 2 to 0; add 3 to 0; add 4 to 0");
    gpu_is_up(f, 1, 8, 30);
    reports(f, 0, 4, -2);
    expect(f, "cancel 4 on 0; cancel 3 on 0; add 3 to 1; add 4 to 1");
    reports(f, 0, 4, -2); /* said before it saw the cancels: nothing more to do */
    expect(f, "");
    reports(f, 0, 6, -1); /* said after */
    expect(f, "cancel 2 on 0; add 2 to 1");
    finish(f);
}

static void stale_reports_are_ignored(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    gpu_is_up(f, 1, 2, 100);
    submit(f, 1);
    expect(f, "add 1 to 1");
    reports_token(f, 1, 1, 99, 1, 2, 0, 5); /* an attempt that is not */
    reports_token(f, 0, 0, 99, 1, 1, 0, 5); /* another GPU */
    reports_token(f, 1, 1, 99, 6, 1, 0, 5); /* nobody */
    reports_token(f, 7, 1, 99, 1, 1, 0, 5); /* no GPU */
    expect(f, "");
    assert_int_equal(scheduler_get_stats(f->s).stale, 3);
    reports_token(f, 1, 1, 99, 1, 1, 0, 5);
    expect(f, "tokens of 1 for 0 from 0: 5");
    finish(f);
}

/* After a lost link the frontend submits the same id again: what the first attempt said must not count. */
static void attempts_of_the_same_id_never_repeat(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    submit(f, 1);
    expect(f, "add 1 to 0");
    scheduler_frontend_gone(f->s, 0, 0);
    scheduler_frontend_up(f->s, 0);
    submit(f, 1);
    expect(f, "cancel 1 on 0; add 1 to 0");
    reports_token(f, 0, 1, 99, 1, 1, 0, 5);
    expect(f, "");
    finish(f);
}

static void ends_reach_the_frontend_that_asked(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit_tokens(f, 1, 1, 1, 3, 3, 10);
    submit_tokens(f, 0, 2, 2, 3, 3, 10);
    submit_tokens(f, 1, 3, 3, 3, 3, 10);
    expect(f, "add 1 to 0; add 2 to 0; add 3 to 0");
    reports_end(f, 0, 3, 99, 1, 1, END_STOP);
    reports_end(f, 0, 3, 99, 2, 2, END_LENGTH);
    reports_end(f, 0, 3, 99, 3, 3, END_FAILED);
    expect(f, "end 1 for 1: stop; end 2 for 0: length; end 3 for 1: failed");
    scheduler_stats t = scheduler_get_stats(f->s);
    assert_int_equal(t.finished, 2);
    assert_int_equal(t.failed, 1);
    finish(f);
}

static void requests_of_a_lost_gpu_go_to_others(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    gpu_is_up(f, 1, 4, 100);
    submit(f, 1);
    submit(f, 2);
    expect(f, "add 1 to 1; add 2 to 1");
    reports_token(f, 1, 2, 98, 1, 1, 0, 42);
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK);
    expect(f, "tokens of 1 for 0 from 0: 42; add 1 to 0; add 2 to 0");
    assert_int_equal(scheduler_get_stats(f->s).recovered, 2);
    finish(f);
}

static void gpus_of_one_lost_link_go_at_once(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 1, 100);
    gpu_is_up(f, 1, 1, 100);
    gpu_is_up(f, 2, 1, 100);
    submit(f, 1);
    submit(f, 2);
    expect(f, "add 1 to 2; add 2 to 1");
    scheduler_gpus_gone(f->s, 0, (int[]){2, 0, 7}, 3);
    expect(f, ""); /* not from 2 to 0 */
    scheduler_gpus_gone(f->s, 0, NULL, 0);
    reports_end(f, 1, 1, 100, 2, 2, END_STOP);
    expect(f, "end 2 for 0: stop; add 1 to 1");
    finish(f);
}

static void suspects_run_apart_until_they_make_a_token(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    submit(f, 2);
    submit(f, 3);
    expect(f, "add 1 to 0; add 2 to 0; add 3 to 0");
    dies(f, 0, 3);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0"); /* the others wait for it */
    submit(f, 4);
    expect(f, "add 4 to 0"); /* who is not a suspect does not */
    gpu_is_up(f, 1, 4, 100);
    expect(f, "add 2 to 1");
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 3);
    reports_token(f, 0, 2, 98, 1, 4, 0, 5);
    expect(f, "tokens of 1 for 0 from 0: 5; add 3 to 0");
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 2);
    finish(f);
}

static void a_suspect_whose_worker_dies_again_runs_alone(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    submit(f, 2);
    dies(f, 0, 2);
    gpu_is_up(f, 0, 4, 100);
    submit(f, 3);
    expect(f, "add 1 to 0; add 2 to 0; add 1 to 0; add 3 to 0");
    dies(f, 0, 2); /* whose fault it was cannot be said: 1 is confined, 3 a suspect */
    expect(f, "");
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0");
    submit(f, 4);
    expect(f, ""); /* nobody joins it */
    reports_token(f, 0, 1, 98, 1, 5, 0, 5);
    expect(f, "tokens of 1 for 0 from 0: 5; add 2 to 0; add 4 to 0");
    finish(f);
}

static void who_is_alone_when_three_workers_die_is_a_killer(void **state)
{
    (void)state;
    fixture *f = begin();
    submit(f, 1);
    for (int i = 0; i < 3; i++) {
        gpu_is_up(f, 0, 4, 100);
        expect(f, "add 1 to 0");
        dies(f, 0, 1);
    }
    expect(f, "end 1 for 0: kills workers");
    submit(f, 2); /* the same prompt again */
    expect(f, "end 2 for 0: kills workers");
    f->now += 700;
    submit(f, 3);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 3 to 0");
    finish(f);
}

static void a_token_or_company_takes_the_blame_away(void **state)
{
    (void)state;
    fixture *f = begin();
    submit(f, 1);
    for (int i = 0; i < 2; i++) {
        gpu_is_up(f, 0, 4, 100);
        dies(f, 0, 1);
    }
    gpu_is_up(f, 0, 4, 100);
    reports_token(f, 0, 1, 98, 1, 3, 0, 5);
    expect(f, "add 1 to 0; add 1 to 0; add 1 to 0; tokens of 1 for 0 from 0: 5");
    dies(f, 0, 1); /* the third time alone, but it has made a token between */
    gpu_is_up(f, 0, 4, 100);
    submit(f, 2);
    expect(f, "add 1 to 0; add 2 to 0");
    dies(f, 0, 2);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0");
    finish(f);
}

static void who_goes_on_killing_is_confined_for_good(void **state)
{
    (void)state;
    fixture *f = begin();
    int n = 0;
    submit(f, 1);
    for (; n < 16; n++) { /* it makes a token each time, and then kills in company */
        gpu_is_up(f, 0, 4, 100);
        submit(f, (uint64_t)(100 + n));
        reports_token(f, 0, 2, 98, 1, (uint32_t)(2 * n + 1), n, 5);
        scheduler_cancel(f->s, f->now, 0, (uint64_t)(100 + n));
        dies(f, 0, 2);
    }
    buf_clear(&f->said);
    gpu_is_up(f, 0, 4, 100);
    reports_token(f, 0, 1, 98, 1, (uint32_t)(2 * n + 1), n, 5);
    submit(f, 2);
    expect(f, "add 1 to 0; tokens of 1 for 0 from 16: 5");
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "end 1 for 0: kills workers; add 2 to 0");
    finish(f);
}

/* GPU 0 comes, is given request 1, takes it in and is killed from outside. */
static void is_killed(fixture *f)
{
    gpu_is_up(f, 0, 4, 100);
    reports(f, 0, 1, 98);
    scheduler_gpu_gone(f->s, f->now, 0, LOSS_KILLED);
}

static void workers_killed_from_outside_are_no_evidence(void **state)
{
    (void)state;
    fixture *f = begin();
    submit(f, 1);
    for (int i = 0; i < 15; i++) {
        is_killed(f);
        expect(f, "add 1 to 0");
    }
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 1);
    for (int i = 0; i < 2; i++) { /* crashes are counted apart from these, and begin from none */
        gpu_is_up(f, 0, 4, 100);
        dies(f, 0, 1);
        expect(f, "add 1 to 0");
    }
    gpu_is_up(f, 0, 4, 100);
    reports_token(f, 0, 1, 98, 1, 18, 0, 5); /* and a token clears it of all */
    expect(f, "add 1 to 0; tokens of 1 for 0 from 0: 5");
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 0);
    scheduler_gpu_gone(f->s, f->now, 0, LOSS_KILLED);
    for (int i = 0; i < 14; i++)
        is_killed(f);
    expect(f, "add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; "
              "add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0");
    is_killed(f); /* 16 in a row: memory that it needs may be the reason */
    expect(f, "add 1 to 0; end 1 for 0: kills workers");
    finish(f);
}

static void a_gpu_is_emptied_for_who_must_be_alone(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    dies(f, 0, 1); /* 1 is confined now */
    expect(f, "add 1 to 0; add 1 to 0");
    submit(f, 2);
    submit_long(f, 3, 200);
    expect(f, "");
    gpu_is_up(f, 1, 2, 100);
    expect(f, "add 1 to 1");
    gpu_is_up(f, 2, 3, 100);
    expect(f, "add 2 to 2; add 3 to 2");
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK); /* 1 needs another that is empty, and there is none */
    expect(f, "");
    submit(f, 4);
    expect(f, ""); /* the one GPU is reserved: nobody comes */
    gpu_is_up(f, 3, 2, 100);
    expect(f, "add 1 to 3; add 4 to 2"); /* and is not, once another is empty */
    finish(f);
}

static void a_reserved_gpu_is_large_enough_for_the_first(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 2, 4, 100);
    submit_long(f, 1, 100);
    dies(f, 2, 1);
    gpu_is_up(f, 2, 4, 100);
    dies(f, 2, 1);
    gpu_is_up(f, 2, 4, 100); /* 1 is confined, and alone there */
    gpu_is_up(f, 1, 4, 10);
    submit(f, 2);
    dies(f, 1, 1);
    gpu_is_up(f, 1, 4, 10);
    dies(f, 1, 1);
    gpu_is_up(f, 1, 4, 10); /* and so is 2, which is small */
    gpu_is_up(f, 0, 4, 10);
    submit(f, 3);
    gpu_is_up(f, 3, 2, 100);
    submit_long(f, 4, 100);
    submit_long(f, 5, 100);
    expect(f, "add 1 to 2; add 1 to 2; add 1 to 2; add 2 to 1; add 2 to 1; add 2 to 1; add 3 to 0; add 4 to 3; "
              "add 5 to 3");
    scheduler_gpu_gone(f->s, f->now, 1, LOSS_LINK); /* GPU 0, a small one, is reserved for 2 */
    scheduler_gpu_gone(f->s, f->now, 2, LOSS_LINK); /* 1 stands before 2 and needs a large one: GPU 3 is reserved */
    submit_long(f, 6, 100);
    expect(f, "");
    reports_end(f, 3, 2, 74, 4, 8, END_STOP);
    expect(f, "end 4 for 0: stop"); /* and nobody is given the place that falls free there */
    reports_end(f, 3, 2, 100, 5, 9, END_STOP);
    expect(f, "end 5 for 0: stop; add 1 to 3");
    finish(f);
}

static void who_has_shown_its_innocence_makes_place_for_the_next(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    gpu_is_up(f, 1, 4, 100);
    submit(f, 1);
    dies(f, 1, 1);
    dies(f, 0, 1); /* 1 is confined */
    expect(f, "add 1 to 1; add 1 to 0");
    gpu_is_up(f, 0, 4, 100);
    submit_long(f, 2, 4);
    expect(f, "add 1 to 0");
    reports_token(f, 0, 1, 98, 1, 3, 0, 5);
    expect(f, "tokens of 1 for 0 from 0: 5; add 2 to 0");
    dies(f, 0, 2);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0");
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0"); /* confined again; 2 a suspect that waits for it */
    reports_token(f, 0, 1, 98, 1, 6, 1, 5);
    expect(f, "tokens of 1 for 0 from 1: 5; add 2 to 0");
    dies(f, 0, 2); /* now 2 is confined and 1 a suspect */
    dies(f, 0, 0);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 2 to 0");
    finish(f);
}

static void who_had_not_been_taken_in_is_not_to_blame(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    submit(f, 2);
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0; add 2 to 0; add 1 to 0; add 2 to 0");
    dies(f, 0, 0); /* 1 is a suspect, but the worker did not know it yet */
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0; add 2 to 0");
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 1);
    finish(f);
}

static void a_lost_link_makes_no_suspects_of_those_taken_in_and_clears_none(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    reports(f, 0, 1, 99);
    scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK);
    gpu_is_up(f, 0, 4, 100);
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    reports(f, 0, 1, 99);
    scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0; add 1 to 0; add 1 to 0; add 1 to 0");
    dies(f, 0, 1);
    gpu_is_up(f, 0, 4, 100);
    dies(f, 0, 1);
    expect(f, "add 1 to 0; end 1 for 0: kills workers");
    finish(f);
}

static void who_was_on_its_way_when_links_were_lost_runs_apart_and_is_ended_at_last(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    gpu_is_up(f, 1, 4, 100);
    submit(f, 1);
    submit(f, 2);
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK); /* neither had been taken in */
    expect(f, "add 1 to 1; add 2 to 1; add 1 to 0");
    reports(f, 0, 1, 99);
    gpu_is_up(f, 1, 4, 100);
    expect(f, "add 2 to 1"); /* not beside another suspect */
    reports_token(f, 1, 1, 99, 2, 4, 0, 5);
    expect(f, "tokens of 2 for 0 from 0: 5");
    scheduler_cancel(f->s, 0, 0, 2);
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK);
    expect(f, "cancel 2 on 1");
    scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK); /* it had been taken in: its runner did not die of it */
    for (int i = 1; i < 16; i++) {
        gpu_is_up(f, 0, 4, 100);
        expect(f, "add 1 to 0");
        scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK);
    }
    expect(f, "end 1 for 0: kills workers");
    finish(f);
}

static void cancel_leaves_nothing_behind(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 1, 100);
    submit(f, 1);
    submit(f, 2);
    submit(f, 3);
    expect(f, "add 1 to 0");
    scheduler_cancel(f->s, 0, 1, 1); /* not the one who asked */
    scheduler_cancel(f->s, 0, 0, 77);
    expect(f, "");
    scheduler_cancel(f->s, 0, 0, 2); /* waits: nobody need be told */
    expect(f, "");
    scheduler_cancel(f->s, 0, 0, 1);
    expect(f, "cancel 1 on 0; add 3 to 0");
    reports_token(f, 0, 1, 99, 1, 1, 0, 5);
    scheduler_cancel(f->s, 0, 0, 3);
    expect(f, "cancel 3 on 0");
    scheduler_stats t = scheduler_get_stats(f->s);
    assert_int_equal(t.n_running + t.n_queued, 0);
    assert_int_equal(t.cancelled, 3);
    finish(f);
}

static void a_frontend_takes_its_requests_with_it(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    submit_tokens(f, 1, 1, 1, 3, 3, 10);
    submit_tokens(f, 0, 2, 2, 3, 3, 10);
    submit_tokens(f, 1, 3, 3, 3, 3, 10);
    submit_tokens(f, 0, 4, 4, 3, 3, 10);
    expect(f, "add 1 to 0; add 2 to 0");
    scheduler_frontend_gone(f->s, 0, 1);
    expect(f, "cancel 1 on 0; add 4 to 0");
    finish(f);
}

static void a_request_that_comes_again_goes_on_where_it_was(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    submit_tokens(f, 0, 1, 1, 5, 3, 3);
    assert_string_equal(f->said.data, "add 1 to 0 as #1, 3 of 3: 0 1 2 3 4\n");
    buf_clear(&f->said);
    reports_token(f, 0, 1, 99, 1, 1, 2, 9);
    expect(f, "tokens of 1 for 0 from 2: 9");
    scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK); /* before it said the end: the budget is spent all the same */
    expect(f, "end 1 for 0: length");
    submit_tokens(f, 0, 2, 2, 6, 3, 3);
    expect(f, "end 2 for 0: length");
    finish(f);
}

/* A report that cannot be costs its GPU, and no request: more tokens than were asked for, tokens after a gap, the same
 * again, commands that were never sent, fewer than before. */
static void a_report_that_cannot_be_costs_its_gpu(void **state)
{
    (void)state;
    int token[3] = {4, 5, 6};
    const report_tokens wrong[] = {
        {.index = 0, .n = 3}, {.index = 1, .n = 1}, {.index = 0, .n = 1}, {.index = 0, .n = 1}, {.index = 0, .n = 1}};
    const uint64_t n_seen[] = {2, 2, 2, 3, 1};
    for (int i = 0; i < 5; i++) {
        fixture *f = begin();
        gpu_is_up(f, 1, 2, 100);
        submit_tokens(f, 0, 1, 1, 3, 3, 2);
        submit_tokens(f, 0, 2, 2, 3, 3, 2);
        expect(f, "add 1 to 1; add 2 to 1");
        reports(f, 1, 2, 90);
        gpu_is_up(f, 0, 2, 100);
        report_tokens t[2] = {wrong[i], wrong[i]};
        for (int k = 0; k < 2; k++) {
            t[k].id = t[k].attempt = 1;
            t[k].token = token;
        }
        gpu_report r = {.n_seen = n_seen[i], .pages_free = 90, .n_tokens = i == 2 ? 2 : 1, .tokens = t};
        assert_false(scheduler_report(f->s, f->now, 1, &r));
        expect(f, i == 2 ? "tokens of 1 for 0 from 0: 4; add 1 to 0; add 2 to 0" : "add 1 to 0; add 2 to 0");
        assert_true(scheduler_report(f->s, f->now, 1, &r)); /* it is not there any more */
        expect(f, "");
        finish(f);
    }
}

static void an_id_twice_is_an_error(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    submit(f, 1);
    submit_tokens(f, 1, 1, 1, 3, 3, 5);
    expect(f, "add 1 to 0; end 1 for 1: failed"); /* another frontend's stays */
    submit(f, 1);
    expect(f, "end 1 for 0: failed; cancel 1 on 0"); /* its own is ended, as it has been told */
    submit_tokens(f, 0, 2, 1, 3, 0, 5);
    submit_tokens(f, 0, 2, 1, 2, 3, 5);
    submit_tokens(f, 0, 2, 1, 3, 3, 0);
    expect(f, "end 2 for 0: failed; end 2 for 0: failed; end 2 for 0: failed");
    finish(f);
}

static void what_no_gpu_can_hold_is_refused(void **state)
{
    (void)state;
    fixture *f = begin();
    submit_long(f, 1, 40);
    expect(f, "");          /* no GPU yet: who knows */
    gpu_is_up(f, 0, 2, 10); /* 40 tokens */
    expect(f, "end 1 for 0: too large");
    submit_long(f, 2, 39);
    expect(f, "add 2 to 0");
    submit_long(f, 3, 40);
    expect(f, "end 3 for 0: too large"); /* at once, not when its turn comes */
    scheduler_gpu_up(f->s, 0, 1, &(gpu_info){"long", 2, 1000, 4, 64});
    submit_long(f, 4, 64); /* pages enough, but the model allows 64 in all */
    expect(f, "end 4 for 0: too large");
    submit_long(f, 5, 63);
    expect(f, "add 5 to 1");
    finish(f);
}

/* GPU 0 holds 40 tokens, GPU 1 holds 80, and request 1, on GPU 1, has 60. */
static fixture *begin_with_large_request(void)
{
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 10);
    gpu_is_up(f, 1, 2, 20);
    submit_long(f, 1, 60);
    expect(f, "add 1 to 1");
    return f;
}

static void who_is_too_large_without_one_gpu_waits_for_it_and_stops_nobody(void **state)
{
    (void)state;
    fixture *f = begin_with_large_request();
    dies(f, 1, 1);
    expect(f, "");
    assert_int_equal(scheduler_get_stats(f->s).n_suspects, 1);
    submit(f, 2);
    expect(f, "add 2 to 0");
    submit_long(f, 3, 60); /* a new one waits as well: there was a GPU for it */
    submit_long(f, 4, 79);
    submit_long(f, 5, 80); /* there never was one for this */
    expect(f, "end 5 for 0: too large");
    assert_int_equal(scheduler_get_stats(f->s).n_queued, 3);
    gpu_is_up(f, 1, 2, 30);
    expect(f, "add 1 to 1"); /* in their order; 1 is a suspect */
    reports_end(f, 1, 1, 30, 1, 3, END_STOP);
    expect(f, "end 1 for 0: stop; add 3 to 1");
    scheduler_cancel(f->s, 0, 0, 4);
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK);
    scheduler_cancel(f->s, 0, 0, 3);
    assert_int_equal(scheduler_get_stats(f->s).n_queued, 0);
    finish(f);
}

static void who_is_too_large_for_too_long_is_told(void **state)
{
    (void)state;
    fixture *f = begin_with_large_request();
    f->now = 100;
    scheduler_gpu_gone(f->s, 100, 1, LOSS_LINK);
    assert_true(scheduler_tick(f->s, 110) == 50);
    f->now = 120;
    gpu_is_up(f, 1, 2, 20);
    expect(f, "add 1 to 1");
    scheduler_gpu_gone(f->s, 130, 1, LOSS_LINK); /* and again from the start */
    assert_true(scheduler_tick(f->s, 180) == 10);
    expect(f, "");
    scheduler_gpu_gone(f->s, 185, 0, LOSS_LINK); /* no GPU at all: nobody is too large */
    scheduler_tick(f->s, 250);
    expect(f, "");
    f->now = 260;
    gpu_is_up(f, 0, 2, 10);
    scheduler_tick(f->s, 319);
    expect(f, "");
    assert_true(scheduler_tick(f->s, 320) == 60);
    expect(f, "end 1 for 0: too large");
    finish(f);
}

/* A scheduler that has just started does not know which GPUs there are, but the frontend had been told that there is
 * one. */
static void who_comes_again_is_not_too_large_at_once(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 10);
    submit_again(f, 1, 60);
    submit_as(f, 0,
              (submission){.id = 2, .arrival = 2, .n_tokens = 63, .n_prompt = 60, .max_tokens = 3, .again = true});
    expect(f, "end 2 for 0: length"); /* has all it wanted */
    gpu_is_up(f, 1, 2, 20);
    expect(f, "add 1 to 1");
    reports_end(f, 1, 1, 20, 1, 1, END_STOP);
    expect(f, "end 1 for 0: stop");
    finish(f);
}

static void who_outgrows_the_gpus_seen_so_far_waits_for_a_larger_one(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 10);
    submit_long(f, 1, 39);
    reports_token(f, 0, 1, 0, 1, 1, 0, 5);
    reports_end(f, 0, 1, 10, 1, 1, END_EVICTED);
    expect(f, "add 1 to 0; tokens of 1 for 0 from 0: 5");
    gpu_is_up(f, 1, 2, 11);
    expect(f, "add 1 to 1");
    finish(f);
}

static void who_is_too_large_for_the_others_runs_on_while_its_gpu_drains(void **state)
{
    (void)state;
    fixture *f = begin_with_large_request();
    submit(f, 2);
    expect(f, "add 2 to 1");
    scheduler_gpus_drain(f->s, 0, (int[]){1}, 1);
    expect(f, "cancel 2 on 1; add 2 to 0"); /* not held up by 1 */
    scheduler_tick(f->s, 1000);
    reports_token(f, 1, 3, 5, 1, 1, 0, 5);
    expect(f, "tokens of 1 for 0 from 0: 5");
    f->now = 1000;
    scheduler_gpu_gone(f->s, 1000, 1, LOSS_LINK); /* it could not wait for the end */
    scheduler_tick(f->s, 1059);
    gpu_is_up(f, 2, 2, 20);
    expect(f, "add 1 to 2");
    finish(f);
}

static void a_full_queue_refuses_new_requests_only(void **state)
{
    (void)state;
    scheduler_options o = plain_options();
    o.max_queue = 1;
    fixture *f = begin_with(o);
    gpu_is_up(f, 0, 1, 100);
    for (uint64_t id = 1; id <= 3; id++)
        submit(f, id);
    expect(f, "add 1 to 0; end 3 for 0: queue full");
    submit_tokens(f, 0, 4, 4, 5, 3, 10); /* comes again with output */
    expect(f, "");
    reports_end(f, 0, 1, 100, 1, 1, END_EVICTED);
    expect(f, "add 1 to 0");
    scheduler_gpu_gone(f->s, 0, 0, LOSS_LINK);
    expect(f, "");
    submit_again(f, 5, 3);
    expect(f, "");
    assert_int_equal(scheduler_get_stats(f->s).n_queued, 4);
    assert_int_equal(scheduler_get_stats(f->s).refused, 1);
    finish(f);
}

static void nobody_waits_for_ever_where_there_is_no_gpu(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 1, 100);
    submit(f, 1);
    submit(f, 2);
    expect(f, "add 1 to 0");
    f->now = 100;
    scheduler_gpu_gone(f->s, f->now, 0, LOSS_LINK);
    f->now = 130;
    submit(f, 3);
    assert_true(scheduler_tick(f->s, 130) == 30);
    expect(f, "");
    scheduler_tick(f->s, 160);
    expect(f, "end 2 for 0: too late"); /* 1 has begun, and waits as long as it takes; 3 came later */
    scheduler_tick(f->s, 190);
    expect(f, "end 3 for 0: too late");
    gpu_is_up(f, 0, 1, 100);
    expect(f, "add 1 to 0");
    finish(f);
}

static void those_who_wait_too_long_for_a_first_gpu_are_told(void **state)
{
    (void)state;
    scheduler_options o = plain_options();
    o.max_wait = 10;
    fixture *f = begin_with(o);
    gpu_is_up(f, 0, 1, 100);
    f->now = 100;
    submit(f, 1);
    submit(f, 2);
    submit_tokens(f, 0, 3, 3, 5, 3, 10); /* has run */
    submit_again(f, 5, 3);
    f->now = 104;
    submit(f, 4);
    expect(f, "add 1 to 0");
    assert_true(scheduler_tick(f->s, 108) == 2);
    expect(f, "");
    assert_true(scheduler_tick(f->s, 110) == 4);
    expect(f, "end 2 for 0: too late");
    scheduler_gpu_gone(f->s, 110, 0, LOSS_LINK);
    scheduler_tick(f->s, 120);
    expect(f, "end 4 for 0: too late"); /* 1, 3 and 5 wait on */
    assert_int_equal(scheduler_get_stats(f->s).n_queued, 3);
    finish(f);
}

static void drained_requests_move_as_others_have_room_oldest_first(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 1, 4, 100);
    for (uint64_t id = 1; id <= 3; id++)
        submit(f, id);
    expect(f, "add 1 to 1; add 2 to 1; add 3 to 1");
    scheduler_gpus_drain(f->s, 0, (int[]){1}, 1);
    submit(f, 4);
    expect(f, ""); /* nowhere to go: they run on, and it takes no new ones */
    gpu_is_up(f, 0, 2, 100);
    expect(f, "cancel 1 on 1; add 1 to 0; cancel 2 on 1; add 2 to 0");
    reports_token(f, 1, 3, 98, 3, 3, 0, 5);
    expect(f, "tokens of 3 for 0 from 0: 5");
    reports_end(f, 0, 2, 100, 2, 5, END_STOP);
    expect(f, "end 2 for 0: stop; cancel 3 on 1; add 3 to 0");
    gpu_state g;
    assert_true(scheduler_get_gpu(f->s, 1, &g));
    assert_true(g.draining && g.n_running == 0);
    scheduler_gpu_gone(f->s, 0, 1, LOSS_LINK);
    assert_false(scheduler_get_gpu(f->s, 1, &g));
    finish(f);
}

static void of_gpus_that_drain_together_none_takes_from_another(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    gpu_is_up(f, 1, 4, 100);
    submit(f, 1);
    expect(f, "add 1 to 1");
    scheduler_gpus_drain(f->s, 0, (int[]){1, 0}, 2);
    expect(f, "");
    gpu_is_up(f, 2, 4, 100);
    expect(f, "cancel 1 on 1; add 1 to 2");
    finish(f);
}

static scheduler_options consolidating(void)
{
    scheduler_options o = scheduler_options_default();
    o.consolidate_every = 1;
    o.move_again_after = 10;
    o.light_share = 0.5;
    o.prefill_rate = 1000;
    o.step_time = 0.01;
    return o;
}

/* Two GPUs of four: 1 to 4 on gpu-1, 5 on gpu-0; then `ended` of the first four end. */
static fixture *begin_spread(int ended)
{
    fixture *f = begin_with(consolidating());
    gpu_is_up(f, 0, 4, 100);
    gpu_is_up(f, 1, 4, 100);
    for (uint64_t id = 1; id <= 5; id++)
        submit(f, id);
    expect(f, "add 1 to 1; add 2 to 1; add 3 to 1; add 4 to 1; add 5 to 0");
    for (int i = 1; i <= ended; i++)
        reports_end(f, 1, 4, 96, (uint64_t)i, (uint32_t)i, END_STOP);
    buf_clear(&f->said);
    return f;
}

static void a_light_gpu_is_emptied_into_a_busier_one(void **state)
{
    (void)state;
    fixture *f = begin_spread(1);
    scheduler_tick(f->s, 50);
    expect(f, "cancel 5 on 0; add 5 to 1");
    assert_int_equal(scheduler_get_stats(f->s).n_idle, 1);
    scheduler_tick(f->s, 51);
    expect(f, "");
    finish(f);
}

static void a_light_gpu_is_left_alone_when_not_all_fit(void **state)
{
    (void)state;
    fixture *f = begin_spread(0);
    scheduler_tick(f->s, 50);
    expect(f, "");
    finish(f);
}

static void of_two_alike_the_lower_uuid_is_emptied_and_nothing_comes_back(void **state)
{
    (void)state;
    fixture *f = begin_spread(3); /* 4 on gpu-1, 5 on gpu-0 */
    scheduler_tick(f->s, 50);
    expect(f, "cancel 5 on 0; add 5 to 1");
    for (int t = 51; t < 90; t++)
        scheduler_tick(f->s, t);
    expect(f, "");
    finish(f);
}

static void a_request_is_not_moved_again_soon(void **state)
{
    (void)state;
    fixture *f = begin_spread(2);
    scheduler_tick(f->s, 50);
    expect(f, "cancel 5 on 0; add 5 to 1");
    gpu_is_up(f, 2, 4, 100);
    for (uint64_t id = 6; id <= 10; id++)
        submit(f, id);
    expect(f, "add 6 to 1; add 7 to 2; add 8 to 2; add 9 to 2; add 10 to 2");
    reports_end(f, 1, 4, 90, 3, 3, END_STOP);
    reports_end(f, 1, 4, 90, 4, 4, END_STOP);
    reports_end(f, 1, 4, 90, 6, 7, END_STOP); /* leaves 5 alone on gpu-1 */
    reports_end(f, 2, 4, 90, 7, 8, END_STOP); /* room on gpu-2 */
    buf_clear(&f->said);
    scheduler_tick(f->s, 55);
    expect(f, "");
    scheduler_tick(f->s, 60);
    expect(f, "cancel 5 on 1; add 5 to 2");
    finish(f);
}

/* Request 5, alone on gpu-0, has 101 tokens: 101 ms to read again. Each step it has left is worth 10 ms. */
static fixture *begin_with_long_prompt(int max_tokens)
{
    fixture *f = begin_with(consolidating());
    gpu_is_up(f, 0, 4, 1000);
    gpu_is_up(f, 1, 4, 1000);
    for (uint64_t id = 1; id <= 4; id++)
        submit(f, id);
    submit_tokens(f, 0, 5, 5, 101, 101, max_tokens);
    reports_end(f, 1, 4, 900, 1, 1, END_STOP);
    buf_clear(&f->said);
    return f;
}

static void moving_must_not_cost_more_than_it_frees(void **state)
{
    (void)state;
    fixture *f = begin_with_long_prompt(10);
    scheduler_tick(f->s, 50);
    expect(f, "");
    finish(f);
    f = begin_with_long_prompt(11);
    scheduler_tick(f->s, 50);
    expect(f, "cancel 5 on 0; add 5 to 1");
    finish(f);
}

static void signals_say_when_more_gpus_are_needed(void **state)
{
    (void)state;
    fixture *f = begin_with(consolidating());
    assert_true(scheduler_get_stats(f->s).wants_more);
    gpu_is_up(f, 0, 4, 100);
    assert_false(scheduler_get_stats(f->s).wants_more); /* idle */
    submit(f, 1);
    scheduler_stats t = scheduler_get_stats(f->s);
    assert_true(t.n_light == 1 && t.n_idle == 0 && !t.wants_more);
    submit(f, 2);
    t = scheduler_get_stats(f->s);
    assert_true(t.n_light == 0 && t.wants_more && t.n_full == 0);
    submit(f, 3);
    submit(f, 4);
    submit(f, 5);
    t = scheduler_get_stats(f->s);
    assert_true(t.n_full == 1 && t.n_running == 4 && t.n_queued == 1 && t.n_gpus == 1);
    finish(f);
}

static void a_gpu_that_comes_up_again_has_lost_its_requests(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 4, 100);
    submit(f, 1);
    gpu_is_up(f, 0, 4, 100);
    expect(f, "add 1 to 0; add 1 to 0");
    finish(f);
}

static void nonsense_from_a_gpu_does_no_harm(void **state)
{
    (void)state;
    fixture *f = begin();
    scheduler_gpu_up(f->s, 0, 0, &(gpu_info){"a", 0, 0, 0, 0});
    scheduler_gpu_up(f->s, 0, 1, &(gpu_info){"b", -5, -1, -1, -1});
    gpu_is_up(f, 2, 2, 100);
    submit(f, 1);
    expect(f, "add 1 to 2");
    reports(f, 2, 1, 2000000000); /* pages it does not have */
    submit_long(f, 2, 396);
    expect(f, "");
    reports(f, 2, 1, -2000000000);
    expect(f, "cancel 1 on 2");
    finish(f);
}

static void a_slow_gpu_gets_nothing_new_while_another_is_open(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 2, 100);
    gpu_is_up(f, 1, 2, 100);
    submit(f, 1);
    expect(f, "add 1 to 1");
    scheduler_gpu_pace(f->s, 0, 1, true);
    expect(f, "cancel 1 on 1; add 1 to 0");
    submit(f, 2);
    submit(f, 3);
    expect(f, "add 2 to 0"); /* 3 waits for it, rather than be slow */
    assert_int_equal(scheduler_n_open(f->s), 1);
    assert_int_equal(scheduler_get_stats(f->s).n_slow, 1);
    assert_int_equal(scheduler_get_stats(f->s).n_idle, 0);
    scheduler_gpus_drain(f->s, 0, (int[]){0}, 1);
    expect(f, "cancel 1 on 0; add 1 to 1; cancel 2 on 0; add 2 to 1"); /* slow is better than not at all */
    gpu_is_up(f, 2, 2, 100);
    expect(f, "cancel 1 on 1; add 1 to 2; cancel 2 on 1; add 2 to 2");
    scheduler_gpu_pace(f->s, 0, 1, false);
    expect(f, "add 3 to 1");
    finish(f);
}

static void a_gpu_on_probation_gets_nothing_while_another_is_open(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 1, 100);
    submit(f, 1);
    submit(f, 2);
    expect(f, "add 1 to 0");
    scheduler_gpu_up(f->s, f->now, 1, &(gpu_info){"gpu-1", 2, 100, 4, 1000, .on_probation = true});
    expect(f, "");
    scheduler_gpu_pace(f->s, 0, 1, false);
    expect(f, "add 2 to 1");
    finish(f);
}

static void those_on_a_gpu_that_is_fast_again_stay(void **state)
{
    (void)state;
    fixture *f = begin();
    gpu_is_up(f, 0, 1, 100);
    gpu_is_up(f, 1, 2, 100);
    submit(f, 1);
    submit(f, 2);
    submit(f, 3);
    expect(f, "add 1 to 1; add 2 to 1; add 3 to 0");
    scheduler_gpu_pace(f->s, 0, 1, true);
    expect(f, ""); /* no room */
    scheduler_gpu_pace(f->s, 0, 1, false);
    scheduler_cancel(f->s, 0, 0, 3);
    expect(f, "cancel 3 on 0");
    scheduler_gpu_pace(f->s, 0, 1, true);
    expect(f, "cancel 1 on 1; add 1 to 0"); /* the oldest first */
    scheduler_gpu_pace(f->s, 0, 0, true);   /* now all are */
    submit(f, 4);
    expect(f, "add 4 to 1");
    finish(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_working_set_with_room_is_chosen),
        cmocka_unit_test(a_beginning_goes_where_it_was),
        cmocka_unit_test(a_beginning_decides_between_equals),
        cmocka_unit_test(highest_uuid_wins_not_highest_number),
        cmocka_unit_test(pages_for_the_prompt_and_one_for_each_that_runs),
        cmocka_unit_test(a_request_too_large_for_the_busiest_goes_to_another),
        cmocka_unit_test(pages_on_their_way_are_reckoned_off),
        cmocka_unit_test(the_first_in_the_queue_holds_up_those_behind),
        cmocka_unit_test(the_queue_is_by_first_arrival_then_id),
        cmocka_unit_test(an_evicted_request_comes_back_before_later_ones),
        cmocka_unit_test(the_newest_leave_a_gpu_that_is_short_of_pages),
        cmocka_unit_test(stale_reports_are_ignored),
        cmocka_unit_test(attempts_of_the_same_id_never_repeat),
        cmocka_unit_test(ends_reach_the_frontend_that_asked),
        cmocka_unit_test(requests_of_a_lost_gpu_go_to_others),
        cmocka_unit_test(gpus_of_one_lost_link_go_at_once),
        cmocka_unit_test(suspects_run_apart_until_they_make_a_token),
        cmocka_unit_test(a_suspect_whose_worker_dies_again_runs_alone),
        cmocka_unit_test(who_is_alone_when_three_workers_die_is_a_killer),
        cmocka_unit_test(a_token_or_company_takes_the_blame_away),
        cmocka_unit_test(who_goes_on_killing_is_confined_for_good),
        cmocka_unit_test(workers_killed_from_outside_are_no_evidence),
        cmocka_unit_test(a_gpu_is_emptied_for_who_must_be_alone),
        cmocka_unit_test(a_reserved_gpu_is_large_enough_for_the_first),
        cmocka_unit_test(who_has_shown_its_innocence_makes_place_for_the_next),
        cmocka_unit_test(who_had_not_been_taken_in_is_not_to_blame),
        cmocka_unit_test(a_lost_link_makes_no_suspects_of_those_taken_in_and_clears_none),
        cmocka_unit_test(who_was_on_its_way_when_links_were_lost_runs_apart_and_is_ended_at_last),
        cmocka_unit_test(cancel_leaves_nothing_behind),
        cmocka_unit_test(a_frontend_takes_its_requests_with_it),
        cmocka_unit_test(a_request_that_comes_again_goes_on_where_it_was),
        cmocka_unit_test(a_report_that_cannot_be_costs_its_gpu),
        cmocka_unit_test(an_id_twice_is_an_error),
        cmocka_unit_test(what_no_gpu_can_hold_is_refused),
        cmocka_unit_test(who_is_too_large_without_one_gpu_waits_for_it_and_stops_nobody),
        cmocka_unit_test(who_is_too_large_for_too_long_is_told),
        cmocka_unit_test(who_comes_again_is_not_too_large_at_once),
        cmocka_unit_test(who_outgrows_the_gpus_seen_so_far_waits_for_a_larger_one),
        cmocka_unit_test(who_is_too_large_for_the_others_runs_on_while_its_gpu_drains),
        cmocka_unit_test(a_full_queue_refuses_new_requests_only),
        cmocka_unit_test(those_who_wait_too_long_for_a_first_gpu_are_told),
        cmocka_unit_test(nobody_waits_for_ever_where_there_is_no_gpu),
        cmocka_unit_test(drained_requests_move_as_others_have_room_oldest_first),
        cmocka_unit_test(of_gpus_that_drain_together_none_takes_from_another),
        cmocka_unit_test(a_light_gpu_is_emptied_into_a_busier_one),
        cmocka_unit_test(a_light_gpu_is_left_alone_when_not_all_fit),
        cmocka_unit_test(of_two_alike_the_lower_uuid_is_emptied_and_nothing_comes_back),
        cmocka_unit_test(a_request_is_not_moved_again_soon),
        cmocka_unit_test(moving_must_not_cost_more_than_it_frees),
        cmocka_unit_test(signals_say_when_more_gpus_are_needed),
        cmocka_unit_test(a_slow_gpu_gets_nothing_new_while_another_is_open),
        cmocka_unit_test(a_gpu_on_probation_gets_nothing_while_another_is_open),
        cmocka_unit_test(those_on_a_gpu_that_is_fast_again_stay),
        cmocka_unit_test(a_gpu_that_comes_up_again_has_lost_its_requests),
        cmocka_unit_test(nonsense_from_a_gpu_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
