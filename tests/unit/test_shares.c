/* test_shares.c - tenants share GPUs by weight: the counters, and the scheduler with them in virtual time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "scheduler/scheduler.h"
#include "scheduler/shares.h"
#include "test.h"

static void one_tenant_is_a_plain_queue(void **state)
{
    (void)state;
    shares s = {0};
    wait_item a = {3, 1, 0, 0}, b = {2, 2, 0, 0}, c = {9, 3, 0, -1};
    tenant *t = shares_find(&s, NULL, 0);
    assert_ptr_equal(shares_find(&s, "", 1), t);
    assert_null(shares_first(&s));
    shares_put(&s, t, &a);
    shares_put(&s, t, &b);
    assert_ptr_equal(shares_first(&s), &b);
    shares_put(&s, t, &c);
    assert_ptr_equal(shares_first(&s), &c);             /* its priority is lower, which is earlier */
    shares_remove(&s, t, &c);
    shares_remove(&s, t, &b);
    assert_ptr_equal(shares_first(&s), &a);
    shares_check(&s);
    shares_deinit(&s);
}

static void whoever_had_least_for_its_weight_is_next(void **state)
{
    (void)state;
    shares s = {0};
    wait_item a = {1, 1, 0, 0}, b = {2, 2, 0, 0};
    tenant *x = shares_find(&s, "x", 1), *y = shares_find(&s, "y", 3);
    shares_put(&s, x, &a);
    shares_put(&s, y, &b);
    assert_ptr_equal(shares_first(&s), &a);             /* neither had anything: who came first */
    shares_charge(&s, x, 10);
    assert_ptr_equal(shares_first(&s), &b);
    shares_charge(&s, y, 29);
    assert_ptr_equal(shares_first(&s), &b);             /* 29 of weight 3 are less than 10 of weight 1 */
    shares_charge(&s, y, 2);
    assert_ptr_equal(shares_first(&s), &a);
    shares_check(&s);
    shares_deinit(&s);
}

static void nobody_hoards_credit(void **state)
{
    (void)state;
    shares s = {0};
    wait_item a = {1, 1, 0, 0}, b = {2, 2, 0, 0}, c = {3, 3, 0, 0};
    tenant *x = shares_find(&s, "x", 1), *y = shares_find(&s, "y", 1), *z = shares_find(&s, "z", 1);
    shares_put(&s, x, &a);
    shares_charge(&s, x, 1000);
    shares_put(&s, y, &b);                              /* has been away: no better than x */
    assert_int_equal(y->counter, x->counter);
    shares_remove(&s, y, &b);
    shares_remove(&s, x, &a);
    shares_charge(&s, x, 5);
    shares_put(&s, z, &c);                              /* nobody waits: as x, who left last, has now */
    assert_int_equal(z->counter, x->counter);
    shares_check(&s);
    shares_deinit(&s);
}

/* GPUs in virtual time: each step every request makes one token. */

enum { BATCH = 8, N_GPUS = 4, MOST_PROMPT = 60, MOST_OUTPUT = 40, PAGE = 16, MOST_TENANTS = 1000 };

typedef struct { uint64_t id; uint32_t attempt; int n_output, n_total; } run;
typedef struct { run run[BATCH]; int n; uint64_t n_seen; } device;
typedef struct { char name[20]; uint32_t weight; int greed; int n_waiting; uint64_t served, first_id; double started; } client;

typedef struct {
    scheduler *s;
    device gpu[N_GPUS];
    client client[MOST_TENANTS];
    int n_clients;
    int *owner;                 /* [last_id + 1] which client a request is of */
    size_t owner_cap;
    uint64_t last_id, drawn, seed;
    double now;
    int evict_every;            /* a GPU says so often that it had to put its newest back; 0: never */
} hall;

static int draw(hall *h, int n)
{
    return (int)(rng_u64(h->seed, h->drawn++) % (uint64_t)n);
}

static void obey(void *ctx, const command *c)
{
    hall *h = ctx;
    if (c->kind == COMMAND_ADD) {
        device *g = &h->gpu[c->gpu];
        client *k = &h->client[h->owner[c->id]];
        g->n_seen++;
        g->run[g->n++] = (run){c->id, c->attempt, c->what->n_tokens - c->what->n_prompt, c->what->max_tokens};
        if (c->what->n_tokens > c->what->n_prompt || k->n_waiting == 0)
            return;             /* put back and on again */
        k->n_waiting--;
        k->served += SHARES_PROMPT * (uint64_t)c->what->n_prompt;
        if (c->id == k->first_id)
            k->started = h->now;
    } else if (c->kind == COMMAND_TOKENS) {
        h->client[h->owner[c->id]].served += SHARES_OUTPUT * (uint64_t)c->tokens->n;
    }
}

static void submit(hall *h, int client_number)
{
    static const int prompt[MOST_PROMPT];
    client *k = &h->client[client_number];
    uint64_t id = ++h->last_id;
    h->owner = xgrow(h->owner, &h->owner_cap, id + 1, sizeof *h->owner);
    h->owner[id] = client_number;
    k->n_waiting++;
    k->first_id = k->first_id ? k->first_id : id;
    int n = 1 + draw(h, MOST_PROMPT);
    scheduler_submit(h->s, h->now, 0, &(submission){.id = id, .arrival = h->now, .token = prompt, .n_tokens = n, .n_prompt = n,
                                                    .max_tokens = 1 + draw(h, MOST_OUTPUT), .tenant = k->name, .weight = k->weight});
}

static void step(hall *h, int number)
{
    static const int token = 7;
    device *g = &h->gpu[number];
    report_tokens tokens[BATCH];
    report_end ends[BATCH];
    gpu_report p = {.n_seen = g->n_seen, .pages_free = 1000, .tokens = tokens, .ends = ends};
    bool evicts = h->evict_every && g->n && draw(h, h->evict_every) == 0;
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        run *r = &g->run[i];
        tokens[p.n_tokens++] = (report_tokens){.id = r->id, .attempt = r->attempt, .index = r->n_output++, .n = 1, .token = &token};
        if (r->n_output == r->n_total)
            ends[p.n_ends++] = (report_end){.id = r->id, .attempt = r->attempt, .why = OUTCOME_LENGTH};
        else if (evicts && i == g->n - 1)
            ends[p.n_ends++] = (report_end){.id = r->id, .attempt = r->attempt, .why = OUTCOME_EVICTED};
        else
            g->run[n++] = *r;
    }
    g->n = n;
    scheduler_report(h->s, h->now, number, &p);
}

static void begin_with_gpus(hall *h, uint64_t seed, int n_clients, int n_gpus)
{
    scheduler_options o = scheduler_options_default();
    o.consolidate_every = 0;
    o.max_queue = 100000;
    *h = (hall){.seed = seed, .n_clients = n_clients, .now = 1};
    h->s = scheduler_new(&o, obey, h);
    scheduler_frontend_up(h->s, 0);
    for (int i = 0; i < n_clients; i++) {
        h->client[i] = (client){.weight = 1, .started = -1};
        snprintf(h->client[i].name, sizeof h->client[i].name, "tenant-%d", i);
    }
    for (int g = 0; g < n_gpus; g++)
        scheduler_gpu_up(h->s, h->now, g, &(gpu_info){(const char *[]){"a", "b", "c", "d"}[g], BATCH, 1000, PAGE, 1000});
}

static void end(hall *h)
{
    scheduler_check(h->s);
    scheduler_free(h->s);
    free(h->owner);
}

static void fill_up(hall *h)
{
    for (int c = 0; c < h->n_clients; c++)
        while (h->client[c].n_waiting < h->client[c].greed)
            submit(h, c);
}

/* So many steps of all GPUs. Before each everybody has as many waiting as its greed says; with BATCH, some wait all the time. */
static void run_steps(hall *h, int n_steps)
{
    for (int i = 0; i < n_steps; i++) {
        h->now += 0.01;
        for (int g = 0; g < N_GPUS; g++) {
            fill_up(h);
            if (h->gpu[g].n)
                step(h, g);
        }
    }
}

/* The paper's bound: of two tenants with something waiting all the time, neither gets more than 2 U before the other, U being
 * what one prompt or all that can run at once may cost, whichever is more; here by weight. */
static void check_bound(const hall *h, const uint64_t *before)
{
    double prompt = SHARES_PROMPT * MOST_PROMPT, all = SHARES_OUTPUT * N_GPUS * BATCH * MOST_OUTPUT, u = prompt > all ? prompt : all;
    for (int a = 0; a < h->n_clients; a++)
        for (int b = 0; b < a; b++) {
            double x = (double)(h->client[a].served - before[a]) / h->client[a].weight;
            double y = (double)(h->client[b].served - before[b]) / h->client[b].weight;
            uint32_t least = h->client[a].weight < h->client[b].weight ? h->client[a].weight : h->client[b].weight;
            assert_true(x - y <= 2 * u / least && y - x <= 2 * u / least);
        }
}

static void service_stays_within_the_papers_bound(void **state)
{
    (void)state;
    static hall h;
    static uint64_t before[MOST_TENANTS];
    static const int n_clients[] = {2, 3, 17, 100, 1000};
    for (int i = 0; i < 5; i++) {
        begin_with_gpus(&h, (uint64_t)i + 1, n_clients[i], N_GPUS);
        h.evict_every = i % 2 ? 5 : 0;
        for (int c = 0; c < h.n_clients; c++) {
            h.client[c].weight = 1 + (uint32_t)draw(&h, 9);
            h.client[c].greed = BATCH + 1 + draw(&h, c % 7 == 0 ? 100 : 3);
        }
        run_steps(&h, 300);
        for (int c = 0; c < h.n_clients; c++)
            before[c] = h.client[c].served;
        run_steps(&h, 3000);
        check_bound(&h, before);
        end(&h);
    }
}

static void tokens_are_shared_by_weight(void **state)
{
    (void)state;
    static hall h;
    begin_with_gpus(&h, 7, 2, N_GPUS);
    h.client[0].weight = 3;
    h.client[0].greed = BATCH + 1;
    h.client[1].greed = 500;
    run_steps(&h, 10000);
    double ratio = (double)h.client[0].served / (double)h.client[1].served;
    assert_true(ratio > 3 * 0.98 && ratio < 3 * 1.02);
    end(&h);
}

static void one_request_passes_ten_thousand_of_another(void **state)
{
    (void)state;
    static hall h;
    begin_with_gpus(&h, 8, 2, 1);
    for (int i = 0; i < 10000; i++)
        submit(&h, 0);
    run_steps(&h, 50);
    submit(&h, 1);
    int waiting = h.client[0].n_waiting;
    for (int i = 0; i < MOST_OUTPUT && h.client[1].started < 0; i++)
        run_steps(&h, 1);
    assert_true(h.client[1].started >= 0);
    assert_true(waiting - h.client[0].n_waiting < BATCH);        /* within the step in which the first place fell free */
    end(&h);
}

/* A tenant's newcomers may fill the queue; others get in all the same, up to an equal part of it. */
static void a_full_queue_shuts_nobody_out(void **state)
{
    (void)state;
    static hall h;
    scheduler_options o = scheduler_options_default();
    o.max_queue = 10;
    begin_with_gpus(&h, 9, 2, 0);
    scheduler_free(h.s);
    h.s = scheduler_new(&o, obey, &h);
    scheduler_frontend_up(h.s, 0);
    for (int i = 0; i < 15; i++)
        submit(&h, 0);
    assert_int_equal(scheduler_get_stats(h.s).n_queued, 10);
    for (int i = 0; i < 15; i++)
        submit(&h, 1);
    assert_int_equal(scheduler_get_stats(h.s).n_queued, 15);
    assert_int_equal(scheduler_get_stats(h.s).refused, 15);
    end(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tenant_is_a_plain_queue),
        cmocka_unit_test(whoever_had_least_for_its_weight_is_next),
        cmocka_unit_test(nobody_hoards_credit),
        cmocka_unit_test(service_stays_within_the_papers_bound),
        cmocka_unit_test(tokens_are_shared_by_weight),
        cmocka_unit_test(one_request_passes_ten_thousand_of_another),
        cmocka_unit_test(a_full_queue_shuts_nobody_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
