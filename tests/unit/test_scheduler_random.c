/* test_scheduler_random.c - thousands of random histories: the scheduler against the naive one, compared word for word,
 * with all invariants checked after every event */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim/command_words.h"
#include "sim/naive_scheduler.h"
#include "support/test.h"

enum { N_GPUS = 6 };

/* What the random history knows of one GPU's worker: commands on their way, and whom it runs. */
typedef struct {
    bool add;
    uint64_t id;
    uint32_t attempt;
    int n_output, max_tokens;
} on_its_way; /* with what is scored of the prompt */
typedef struct {
    bool up;
    on_its_way sent[NAIVE_SENT];
    int n_sent, n_seen;
    on_its_way runs[NAIVE_REQUESTS];
    int n_runs;
} worker;

typedef struct {
    scheduler *real;
    naive *model;
    buf said;
    worker worker[N_GPUS];
    bool frontend[NAIVE_FRONTENDS];
    uint64_t seed, drawn, last_id;
    int n_tenants;
    double now;
} history;

static int draw(history *h, int n)
{
    return (int)(rng_u64(h->seed, h->drawn++) % (uint64_t)n);
}

static void pass_on(void *ctx, const command *c)
{
    history *h = ctx;
    command_words_write(&h->said, c);
    if (c->kind != COMMAND_ADD && c->kind != COMMAND_CANCEL)
        return;
    worker *w = &h->worker[c->gpu];
    assert_true(w->up && w->n_sent < NAIVE_SENT);
    w->sent[w->n_sent++] = (on_its_way){c->kind == COMMAND_ADD, c->id, c->attempt,
                                        c->what ? c->what->n_scored + c->what->n_tokens - c->what->n_prompt : 0,
                                        c->what ? c->what->n_to_score + c->what->max_tokens : 0};
}

static void worker_take_in(worker *w)
{
    const on_its_way *c = &w->sent[w->n_seen++];
    if (c->add) {
        w->runs[w->n_runs++] = *c;
        return;
    }
    for (int i = 0; i < w->n_runs; i++)
        if (w->runs[i].id == c->id && w->runs[i].attempt == c->attempt) {
            w->runs[i] = w->runs[--w->n_runs];
            return;
        }
}

static void random_report(history *h, int gpu)
{
    worker *w = &h->worker[gpu];
    int token[NAIVE_REQUESTS][2];
    report_tokens tokens[NAIVE_REQUESTS];
    report_end ends[NAIVE_REQUESTS];
    gpu_report p = {.tokens = tokens, .ends = ends};
    while (w->n_seen < w->n_sent && draw(h, 3))
        worker_take_in(w);
    for (int i = 0; i < w->n_runs; i++) {
        on_its_way *r = &w->runs[i];
        int n = 1 + draw(h, 2);
        if (n > r->max_tokens - r->n_output)
            n = r->max_tokens - r->n_output;
        if (n < 1 || draw(h, 3) == 0)
            continue;
        for (int k = 0; k < n; k++)
            token[i][k] = draw(h, 100);
        bool wrong = draw(h, 100) == 0;
        tokens[p.n_tokens++] = (report_tokens){
            .id = r->id, .attempt = r->attempt, .index = r->n_output + wrong, .n = n, .token = token[i]};
        r->n_output += n;
    }
    for (int i = w->n_runs - 1; i >= 0; i--)
        if (w->runs[i].n_output == w->runs[i].max_tokens || draw(h, 8) == 0) {
            static const end_reason why[] = {END_STOP, END_LENGTH, END_EVICTED, END_EVICTED, END_FAILED};
            ends[p.n_ends++] = (report_end){.id = w->runs[i].id, .attempt = w->runs[i].attempt, .why = why[draw(h, 5)]};
            w->runs[i] = w->runs[--w->n_runs];
        }
    if (draw(h, 10) == 0) /* a voice from the past */
        tokens[p.n_tokens++] = (report_tokens){.id = 1 + (uint64_t)draw(h, (int)h->last_id + 1),
                                               .attempt = (uint32_t)draw(h, 5),
                                               .n = 1,
                                               .token = token[0],
                                               .index = 0};
    token[0][0] = p.n_tokens ? token[0][0] : 3;
    p.n_seen = (uint64_t)w->n_seen;
    int n_pages = h->model->gpu[gpu].info.n_pages;
    p.pages_free = draw(h, 6) == 0 ? draw(h, 7) - 6 : draw(h, n_pages + 1);
    w->up = scheduler_report(h->real, h->now, gpu, &p);
    naive_report(h->model, h->now, gpu, &p);
}

static void submit(history *h, int frontend, const submission *w)
{
    scheduler_submit(h->real, h->now, frontend, w);
    naive_submit(h->model, h->now, frontend, w);
}

static void random_submit(history *h, int frontend)
{
    static const char *const tenant[] = {NULL, "a", "b", "c"}, *const adapter[] = {NULL, "sql", "go"};
    int token[NAIVE_TOKENS];
    bool known_id = draw(h, 30) == 0, begins_alike = draw(h, 2) == 0;
    int n_prompt = draw(h, 40) ? 1 + draw(h, draw(h, 2) ? 16 : 36) : draw(h, 2) * 40,
        n_output = draw(h, 4) ? 0 : draw(h, 6);
    submission w = {.id = known_id && h->last_id ? 1 + (uint64_t)draw(h, (int)h->last_id) : ++h->last_id,
                    .arrival = h->now - draw(h, 4),
                    .token = token,
                    .n_tokens = n_prompt + n_output,
                    .n_prompt = n_prompt,
                    .max_tokens = draw(h, 50) ? 1 + draw(h, 20) : 0,
                    .adapter = adapter[draw(h, 3)],
                    .again = draw(h, 4) == 0,
                    .tenant = tenant[draw(h, h->n_tenants)],
                    .weight = 1 + (uint32_t)draw(h, 3),
                    .priority = draw(h, 8) ? 0 : draw(h, 3) - 1};
    for (int i = 0; i < w.n_tokens; i++)
        token[i] = begins_alike && i < 32 ? 0 : draw(h, 100);
    if (w.n_tokens - w.n_prompt > w.max_tokens)
        w.n_tokens = w.n_prompt + w.max_tokens;
    if (w.adapter) { /* in one of two versions */
        w.digest = draw(h, 2) ? "1" : "2";
        w.digest_bytes = 1;
    }
    if (w.n_prompt > 1 && draw(h, 3) == 0) {
        w.n_to_score = w.n_prompt - (draw(h, 30) ? 1 : 0);
        w.n_scored = w.n_tokens > w.n_prompt ? w.n_to_score - (draw(h, 30) == 0) : draw(h, w.n_to_score + 1);
    }
    submit(h, frontend, &w);
}

static void gpu_up(history *h, int gpu, const gpu_info *info)
{
    h->worker[gpu] = (worker){.up = true};
    scheduler_gpu_up(h->real, h->now, gpu, info);
    naive_gpu_up(h->model, h->now, gpu, info);
}

static void random_gpu_up(history *h, int gpu)
{
    static const char *const uuid[N_GPUS] = {"c", "a", "f", "b", "d", "e"};
    gpu_info info = {uuid[gpu],      1 + draw(h, 5),   3 + draw(h, 12),
                     1 + draw(h, 4), 20 + draw(h, 30), .on_probation = draw(h, 6) == 0};
    gpu_up(h, gpu, &info);
}

static void lose_gpu(history *h, int gpu, gpu_loss how)
{
    h->worker[gpu].up = false;
    scheduler_gpu_gone(h->real, h->now, gpu, how);
    naive_gpus_gone(h->model, h->now, &gpu, 1, how);
}

static void random_gpu_event(history *h, int gpu)
{
    if (!h->worker[gpu].up) {
        random_gpu_up(h, gpu);
    } else if (draw(h, 6) == 0) {
        bool slow = draw(h, 2);
        scheduler_gpu_pace(h->real, h->now, gpu, slow);
        naive_gpu_pace(h->model, h->now, gpu, slow);
    } else if (draw(h, 3) == 0) {
        int drained[2] = {gpu, (gpu + 1) % N_GPUS}, n = h->worker[drained[1]].up ? 2 : 1;
        scheduler_gpus_drain(h->real, h->now, drained, n);
        naive_gpus_drain(h->model, h->now, drained, n);
    } else if (draw(h, 3) == 0) {
        int lost[2] = {gpu, (gpu + 1) % N_GPUS}; /* whether the other is up or not */
        h->worker[lost[0]].up = h->worker[lost[1]].up = false;
        scheduler_gpus_gone(h->real, h->now, lost, 2);
        naive_gpus_gone(h->model, h->now, lost, 2, LOSS_LINK);
    } else {
        lose_gpu(h, gpu, (gpu_loss)draw(h, LOSS_LINK + 1));
    }
}

static void random_frontend_event(history *h, int frontend)
{
    if (h->frontend[frontend]) {
        scheduler_frontend_gone(h->real, h->now, frontend);
        naive_frontend_gone(h->model, h->now, frontend);
    } else {
        scheduler_frontend_up(h->real, frontend);
    }
    h->frontend[frontend] ^= true;
}

static void random_event(history *h)
{
    int what = draw(h, 100), gpu = draw(h, N_GPUS), frontend = draw(h, NAIVE_FRONTENDS);
    h->now += draw(h, 3) * 0.25;
    if (what < 4) {
        random_gpu_event(h, gpu);
    } else if (what < 6) {
        random_frontend_event(h, frontend);
    } else if (what < 12) {
        double wait = scheduler_tick(h->real, h->now);
        assert_true(wait >= 0);
        naive_tick(h->model, h->now);
    } else if (what < 42) {
        if (h->frontend[frontend] && naive_running(h->model, -1) < 60)
            random_submit(h, frontend);
    } else if (what < 47) {
        uint64_t id = 1 + (uint64_t)draw(h, (int)h->last_id + 1);
        if (h->frontend[frontend]) {
            scheduler_cancel(h->real, h->now, frontend, id);
            naive_cancel(h->model, h->now, frontend, id);
        }
    } else if (h->worker[gpu].up) {
        random_report(h, gpu);
    }
}

static void compare(history *h, int event)
{
    buf *real = &h->said, *model = &h->model->said;
    if (real->len != model->len || (real->len && memcmp(real->data, model->data, real->len) != 0))
        fail_msg("seed %d, event %d: the scheduler said\n%sand the naive one\n%s", (int)h->seed, event,
                 real->len ? real->data : "nothing\n", model->len ? model->data : "nothing\n");
    buf_clear(real);
    buf_clear(model);
    scheduler_check(h->real);
    scheduler_stats t = scheduler_get_stats(h->real);
    int n_running = 0;
    for (int g = 0; g < N_GPUS; g++)
        n_running += naive_running(h->model, g);
    assert_int_equal(t.n_queued, naive_waiting(h->model));
    assert_int_equal(t.n_running, n_running);
}

static history *history_new(uint64_t seed)
{
    history *h = XNEW(history);
    h->seed = seed;
    h->now = 1000;
    h->model = XNEW(naive);
    h->model->none_since = -1;
    return h;
}

static void begin(history *h, const scheduler_options *o)
{
    h->model->opt = *o;
    h->real = scheduler_new(o, pass_on, h);
}

static scheduler_stats end(history *h)
{
    scheduler_stats t = scheduler_get_stats(h->real);
    scheduler_free(h->real);
    buf_free(&h->said);
    buf_free(&h->model->said);
    free(h->model);
    free(h);
    return t;
}

static scheduler_stats run_history(uint64_t seed, int n_events)
{
    history *h = history_new(seed);
    h->n_tenants = 1 + draw(h, 4);
    scheduler_options o = {.max_queue = 3 + draw(h, 30),
                           .max_wait = draw(h, 2) * 6,
                           .max_no_gpu = draw(h, 3),
                           .max_aside = draw(h, 4) * 2,
                           .consolidate_every = draw(h, 4) ? 0.5 : 0,
                           .move_again_after = draw(h, 3) * 2,
                           .light_share = 0.25 * (1 + draw(h, 4)),
                           .prefill_rate = 100,
                           .step_time = draw(h, 3) ? 0.1 : 0.01,
                           .max_prefixes = draw(h, 8) ? NAIVE_PREFIXES : 0};
    begin(h, &o);
    for (int f = 0; f < NAIVE_FRONTENDS; f++)
        random_frontend_event(h, f);
    for (int g = 0; g < N_GPUS - 2; g++)
        random_gpu_up(h, g);
    for (int i = 0; i < n_events; i++) {
        random_event(h);
        compare(h, i);
    }
    return end(h);
}

/* Brings a GPU up, has its worker read what it is sent, and crash. */
static void crash(history *h, int gpu, const gpu_info *info)
{
    gpu_up(h, gpu, info);
    gpu_report p = {.n_seen = (uint64_t)h->worker[gpu].n_sent, .pages_free = info->n_pages};
    scheduler_report(h->real, h->now, gpu, &p);
    naive_report(h->model, h->now, gpu, &p);
    lose_gpu(h, gpu, LOSS_CRASH);
}

/* The second request is like the first, which killed three workers; of the third, the adapter has been replaced. */
static void an_adapter_that_was_replaced_is_given_another_try(void **state)
{
    (void)state;
    static const char *const version[] = {"1", "1", "2"};
    history *h = history_new(1);
    begin(h, &(scheduler_options){.max_queue = 4});
    random_frontend_event(h, 0);
    int token[] = {7, 8};
    for (int i = 0; i < 3; i++) {
        submission w = {.id = (uint64_t)i + 1,
                        .arrival = h->now,
                        .token = token,
                        .n_tokens = 2,
                        .n_prompt = 2,
                        .max_tokens = 4,
                        .adapter = "sql",
                        .digest = version[i],
                        .digest_bytes = 1};
        submit(h, 0, &w);
        assert_int_equal(scheduler_get_stats(h->real).n_queued, i == 1 ? 0 : 1);
        for (int k = 0; k < 3; k++)
            crash(h, 0, &(gpu_info){"a", 1, 10, 4, 40});
        compare(h, i);
    }
    end(h);
}

static void random_histories_agree_with_the_naive_scheduler(void **state)
{
    (void)state;
    scheduler_stats all = {0};
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        scheduler_stats t = run_history(seed, 150);
        all.finished += t.finished;
        all.failed += t.failed;
        all.refused += t.refused;
        all.moved += t.moved;
        all.evicted += t.evicted;
        all.recovered += t.recovered;
        all.stale += t.stale;
        all.cancelled += t.cancelled;
    }
    /* every kind of thing did happen, and often */
    assert_true(all.finished > 3000 && all.failed > 3000 && all.refused > 1000 && all.moved > 1000);
    assert_true(all.evicted > 3000 && all.recovered > 3000 && all.stale > 1000 && all.cancelled > 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_adapter_that_was_replaced_is_given_another_try),
                                       cmocka_unit_test(random_histories_agree_with_the_naive_scheduler)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
