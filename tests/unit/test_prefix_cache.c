/* test_prefix_cache.c - requests that begin alike share pages, and get the very tokens and logprobs that they get
 * without
 *
 * Conversations on a tiny model with random weights: they begin with one of a few texts, go on with what was answered,
 * have adapters and salts of their own, and more of them run than the KvCache holds. Pages that it has no room for go
 * to the host and come back, at once or when it pleases the copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/adapter.h"
#include "support/test.h"

enum { VOCAB = 96, POSITIONS = 200, N_TALKS = 12, N_TURNS = 4, N_ADAPTERS = 3, PAGE_LEN = 4 };

/* A conversation: what has been said, and what the model gave for it. */
typedef struct {
    int token[POSITIONS], n_tokens, n_prompt;
    float logprob[POSITIONS]; /* of each token of output, at its place */
    int n_turns, n_cached;
    int at; /* which of the engines it is on */
    bool running;
} talk;

static backend *be;
static model *m;

/* Copies that are done when they end, which is when chance has it: what happened to their pages meanwhile shows. */
enum { MAX_COPIES = 4096 };
typedef struct {
    copy_piece piece[MAX_COPIES];
    int n_left, n;
} slow_batch; /* n_left: not copied yet */
typedef struct {
    slow_batch *batch[64];
    int n;
} slow_lane;
static slow_lane slow[N_COPY_LANES];
static uint64_t n_asked;
static int stalls; /* not 0: what goes out does so at once, what comes in does when it was asked for so often */

static void slow_begin(backend *b, copy_lane lane, const copy_piece *piece, int n, bool behind_ops)
{
    (void)b, (void)behind_ops;
    slow_lane *l = &slow[lane];
    assert_true(n <= MAX_COPIES && l->n < 64);
    slow_batch *t = l->batch[l->n++] = xmalloc(sizeof *t);
    t->n = t->n_left = n;
    memcpy(t->piece, piece, (size_t)n * sizeof *piece);
}

static void copy_all(slow_batch *t)
{
    for (; t->n_left > 0; t->n_left--) {
        const copy_piece *p = &t->piece[t->n - t->n_left];
        memcpy(p->dst, p->src, p->bytes);
    }
}

static bool slow_ended(backend *b, copy_lane lane, bool wait, double *seconds)
{
    (void)b;
    slow_lane *l = &slow[lane];
    if (l->n == 0 || (!wait && (stalls ? lane == COPY_IN && --stalls > 0 : rng_u64(3, n_asked++) % 4 > 0)))
        return false;
    slow_batch *t = l->batch[0];
    copy_all(t);
    *seconds = 1e-3 * t->n;
    free(t);
    memmove(l->batch, l->batch + 1, (size_t)--l->n * sizeof t);
    return true;
}

static void slow_order(backend *b)
{
    (void)b;
    for (int lane = 0; lane < N_COPY_LANES; lane++)
        for (int i = 0; i < slow[lane].n; i++)
            copy_all(slow[lane].batch[i]);
}

/* A clock that goes on as it is looked at, so that copies are now faster than computing and now slower. */
static double restless(void *ctx)
{
    uint64_t *n = ctx;
    (*n)++;
    return (double)*n * 1e-3 + (double)(rng_u64(17, *n) % 1000) * 1e-6;
}

static lora *load(void *ctx, const char *name, err *e)
{
    (void)ctx, (void)e;
    int i = atoi(name);
    return lora_random(&m->config, 1, 3 + 5 * i, DTYPE_F32, (unsigned long)i);
}

static int set_up(void **state)
{
    (void)state;
    err e;
    model_config c = {.n_layers = 2,
                      .hidden = 40,
                      .n_heads = 4,
                      .n_kv_heads = 2,
                      .head_dim = 10,
                      .ffn = 56,
                      .vocab = VOCAB,
                      .max_positions = POSITIONS,
                      .rms_eps = 1e-5f,
                      .rope_theta = 10000,
                      .type = DTYPE_F16,
                      .bos = -1};
    c.layer_slides = XNEW_ARRAY(bool, 2);
    snprintf(c.family, sizeof c.family, "llama");
    be = backend_cpu_new(1);
    m = model_random(be, &c, WEIGHTS_STORED, 7, &e);
    return m ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_free(m);
    be->ops->free(be);
    return 0;
}

/* Where pages go, and how. */
typedef struct {
    bool no_prefix_cache;
    int host_pages;
    bool timed, never_waits;
} cache_way;
static uint64_t reading;

static engine *start_so(int max_batch, int n_pages, cache_way way)
{
    err e;
    engine_options o = engine_options_default();
    o.max_batch = max_batch;
    o.prefill_rows = 23;
    o.n_pages = n_pages;
    o.page_len = PAGE_LEN;
    o.no_prefix_cache = way.no_prefix_cache;
    o.host_bytes = (size_t)way.host_pages * PAGE_LEN * 2 * 2 * 2 * 10 *
                   sizeof(float); /* layers, keys and values, heads of 10 numbers */
    o.now = way.timed ? restless : NULL;
    o.now_ctx = &reading;
    o.never_waits = way.never_waits;
    o.adapters = (adapter_source){.load = load};
    engine *g = engine_new(m, &o, &e);
    assert_non_null(g);
    assert_int_equal(engine_get_stats(g).host_pages, way.host_pages);
    return g;
}

static engine *start(int max_batch, int n_pages, bool no_prefix_cache)
{
    return start_so(max_batch, n_pages, (cache_way){.no_prefix_cache = no_prefix_cache});
}

static void say(talk *t, uint64_t seed, int n)
{
    for (int i = 0; i < n; i++)
        t->token[t->n_tokens++] = (int)(rng_u64(seed, (uint64_t)i) % VOCAB);
    t->n_prompt = t->n_tokens;
}

static void ask(engine *const g[2], int i, talk *t)
{
    err e;
    char name[16];
    sampling_params sampling = sampling_default();
    sampling.max_tokens = 4 + i % 9;
    sampling.temperature = i % 2 ? 0.9f : 0;
    sampling.seed = (uint64_t)i;
    sampling.n_logprobs = 0;
    bool is_new = i % 4 == 1 && t->n_turns > 2; /* a new version comes meanwhile */
    snprintf(name, sizeof name, "%d", is_new ? 1 + N_ADAPTERS : i % 4);
    engine_request r = {.id = (uint64_t)i,
                        .arrival = (uint64_t)(i + N_TALKS * t->n_turns),
                        .adapter = i % 4 < N_ADAPTERS ? name : NULL,
                        .cache_salt = i % 5 == 4 ? "apart" : NULL,
                        .token = t->token,
                        .n_tokens = t->n_tokens,
                        .n_prompt = t->n_prompt,
                        .sampling = sampling};
    assert_int_equal(engine_add(g[t->at], &r, &e), 0);
    t->running = true;
}

static void next_turn(engine *const g[2], int i, talk *t)
{
    if (t->n_turns == N_TURNS)
        return;
    say(t, (uint64_t)(100 + i * N_TURNS + t->n_turns), 1 + (i + t->n_turns) % 7);
    t->n_turns++;
    ask(g, i, t);
}

static void take(engine *const g[2], talk *all, const event *ev)
{
    talk *t = &all[ev->id];
    switch (ev->kind) {
    case EVENT_TOKEN:
        if (t->n_tokens == t->n_prompt)
            t->n_cached += ev->n_cached;
        t->logprob[t->n_tokens] = ev->drawn.logprob;
        t->token[t->n_tokens++] = ev->drawn.token;
        break;
    case EVENT_FINISHED:
        t->running = false;
        next_turn(g, (int)ev->id, t);
        break;
    case EVENT_EVICTED: ask(g, (int)ev->id, t); break;
    case EVENT_SCORE:
    case EVENT_FAILED: fail_msg("request %d failed: %s", (int)ev->id, ev->error.msg);
    }
}

/* All conversations at once, each begun with one of three texts, on two engines or twice the same; now and then one is
 * moved to the other engine. */
static void run_talks_on(engine *const g[2], talk *all)
{
    memset(all, 0, N_TALKS * sizeof *all);
    for (int i = 0; i < N_TALKS; i++) {
        all[i].at = i % 2;
        say(&all[i], (uint64_t)(i % 3), 17 + i % 3 * 8);
        next_turn(g, i, &all[i]);
    }
    for (int n_steps = 0; !engine_is_idle(g[0]) || !engine_is_idle(g[1]); n_steps++) {
        const event *events;
        int n;
        err e;
        assert_int_equal(engine_step(g[n_steps % 2], &events, &n, &e), 0);
        for (int i = 0; i < n; i++)
            take(g, all, &events[i]);
        int who = (int)(rng_u64(5, (uint64_t)n_steps) % (5 * N_TALKS));
        if (who < N_TALKS && all[who].running) {
            engine_cancel(g[all[who].at], (uint64_t)who);
            all[who].at = !all[who].at;
            ask(g, who, &all[who]);
        }
    }
}

static void run_talks(engine *g, talk *all)
{
    run_talks_on((engine *const[2]){g, g}, all);
}

static int sum_cached(const talk *all)
{
    int n = 0;
    for (int i = 0; i < N_TALKS; i++)
        n += all[i].n_cached;
    return n;
}

static void answers_are_the_same_bit_for_bit(void **state)
{
    (void)state;
    static talk without[N_TALKS], with[N_TALKS];
    static const struct { int max_batch, n_pages; } at[] = {{12, 1000}, {12, 150}, {4, 110}, {1, 40}, {7, 33}};
    for (int i = 0; i < 5; i++) {
        engine *plain = start(at[i].max_batch, at[i].n_pages, true), *g = start(at[i].max_batch, at[i].n_pages, false);
        run_talks(plain, without);
        assert_int_equal(sum_cached(without), 0);
        assert_int_equal(engine_get_stats(plain).pages_cached, 0);
        for (int round = 0; round < 2; round++) {
            run_talks(g, with);
            for (int k = 0; k < N_TALKS; k++) {
                assert_int_equal(with[k].n_tokens, without[k].n_tokens);
                assert_memory_equal(with[k].token, without[k].token, sizeof with[k].token);
                assert_memory_equal(with[k].logprob, without[k].logprob, sizeof with[k].logprob);
            }
            assert_true(at[i].n_pages < 100 ||
                        sum_cached(with) > 200); /* below, all that could be shared is gone before it is */
        }
        assert_true(engine_get_stats(g).rows < 2 * engine_get_stats(plain).rows);
        assert_int_equal(engine_get_stats(g).pages_free, at[i].n_pages);
        engine_free(plain);
        engine_free(g);
    }
}

/* The same with pages that go to the host and come back; requests are evicted, moved, and get new versions of an
 * adapter meanwhile. */
static void host_pages_hold_the_same_bit_for_bit(void **state)
{
    (void)state;
    static talk without[N_TALKS], with[N_TALKS];
    static const struct {
        int max_batch, n_pages, host_pages;
        bool is_slow, timed;
    } at[] = {{4, 60, 400, false, false}, {4, 60, 400, true, false}, {7, 45, 20, true, false},
              {1, 40, 300, true, false},  {12, 60, 100, true, true}, {4, 60, 400, false, true},
              {3, 44, 3, true, false},    {12, 44, 600, true, false}};
    backend_ops slow_ops = *be->ops;
    const backend_ops *usual = be->ops;
    slow_ops.copy_begin = slow_begin;
    slow_ops.copy_ended = slow_ended;
    slow_ops.copy_order = slow_order;
    uint64_t n_saved = 0, n_fetched = 0;
    /* With the host, and without; which of the threads loads an adapter first changes them a little. */
    int n_cached = 0, n_near = 0;
    engine *plain = start(12, 1000, true);
    run_talks(plain, without);
    engine_free(plain);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        be->ops = at[i].is_slow ? &slow_ops : usual;
        engine *near = start(at[i].max_batch, at[i].n_pages, false);
        engine *other = start(at[i].max_batch, at[i].n_pages, false);
        engine *g =
            start_so(at[i].max_batch, at[i].n_pages, (cache_way){.host_pages = at[i].host_pages, .timed = at[i].timed});
        for (int round = 0; round < 3; round++) {
            static talk device_only[N_TALKS];
            run_talks(near, device_only);
            run_talks_on((engine *const[2]){g, round == 2 ? other : g}, with);
            for (int k = 0; k < N_TALKS; k++) {
                assert_int_equal(with[k].n_tokens, without[k].n_tokens);
                assert_memory_equal(with[k].token, without[k].token, sizeof with[k].token);
                assert_memory_equal(with[k].logprob, without[k].logprob, sizeof with[k].logprob);
            }
            n_cached += sum_cached(with);
            n_near += sum_cached(device_only);
        }
        engine_stats s = engine_get_stats(g);
        assert_int_equal(s.pages_free, at[i].n_pages);
        assert_in_range(s.host_pages_used, 0, at[i].host_pages);
        n_saved += s.pages_saved;
        n_fetched += s.pages_fetched;
        engine_free(near);
        engine_free(g);
        engine_free(other);
        be->ops = usual;
    }
    print_message("%d pages saved, %d fetched; %d tokens cached, %d without\n", (int)n_saved, (int)n_fetched, n_cached,
                  n_near);
    assert_true(n_saved > 1000 && n_fetched > 1000 && n_cached > 2 * n_near);
}

/* Tokens of a prompt that are found when it is asked for the second time. */
static int cached_of(engine *g, const char *name, const char *salt, int n_prompt)
{
    int prompt[POSITIONS], cached = -1;
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = i % VOCAB;
    sampling_params sampling = sampling_default();
    sampling.max_tokens = 1;
    err e;
    engine_request r = {.id = 1,
                        .adapter = name,
                        .cache_salt = salt,
                        .token = prompt,
                        .n_tokens = n_prompt,
                        .n_prompt = n_prompt,
                        .sampling = sampling};
    assert_int_equal(engine_add(g, &r, &e), 0);
    while (!engine_is_idle(g)) {
        const event *events;
        int n;
        assert_int_equal(engine_step(g, &events, &n, &e), 0);
        for (int i = 0; i < n; i++)
            cached = events[i].kind == EVENT_TOKEN ? events[i].n_cached : cached;
    }
    return cached;
}

/* The base model's first token behind n tokens of a text, its logprob, and where it comes from. */
static event first_of(engine *g, uint64_t text, int n)
{
    talk t = {0};
    event first = {.id = 0};
    err e;
    say(&t, text, n);
    engine_request r = {.id = 1, .token = t.token, .n_tokens = n, .n_prompt = n, .sampling = sampling_default()};
    r.sampling.max_tokens = 1;
    r.sampling.n_logprobs = 0;
    assert_int_equal(engine_add(g, &r, &e), 0);
    while (!engine_is_idle(g)) {
        const event *events;
        int n_events;
        assert_int_equal(engine_step(g, &events, &n_events, &e), 0);
        for (int i = 0; i < n_events; i++)
            first = events[i].kind == EVENT_TOKEN ? events[i] : first;
    }
    return first;
}

/* A request leaves while its prefix is on its way, and the next needs the very pages that are being written. */
static void what_comes_back_for_nobody_does_no_harm(void **state)
{
    (void)state;
    enum { LONG = 35 * PAGE_LEN + 1, LONG_TEXT = 1000, NEXT_TEXT = 1001 };
    backend_ops slow_ops = *be->ops;
    const backend_ops *usual = be->ops;
    talk t = {0};
    err e;
    engine *plain = start(1, 40, true);
    event want = first_of(plain, NEXT_TEXT, LONG);
    engine_free(plain);
    slow_ops.copy_begin = slow_begin;
    slow_ops.copy_ended = slow_ended;
    slow_ops.copy_order = slow_order;
    be->ops = &slow_ops;
    stalls = 1000000;
    engine *g = start_so(1, 40, (cache_way){.host_pages = 200, .never_waits = true});
    first_of(g, LONG_TEXT, LONG);
    for (uint64_t i = 0; i < 40; i++) /* its pages are saved, and taken by others, a few at a time */
        first_of(g, i, 2 * PAGE_LEN + 1);
    say(&t, LONG_TEXT, LONG);
    engine_request r = {.id = 2, .token = t.token, .n_tokens = LONG, .n_prompt = LONG, .sampling = sampling_default()};
    const event *events;
    int n;
    assert_int_equal(engine_add(g, &r, &e), 0);
    assert_int_equal(engine_step(g, &events, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_true(slow[COPY_IN].n == 1 && slow[COPY_IN].batch[0]->n > 30);
    engine_cancel(g, 2);
    stalls = 2; /* when the first chunk of the next is computed */
    event got = first_of(g, NEXT_TEXT, LONG);
    assert_int_equal(stalls, 0);
    assert_int_equal(got.drawn.token, want.drawn.token);
    assert_memory_equal(&got.drawn.logprob, &want.drawn.logprob, sizeof got.drawn.logprob);
    engine_free(g);
    be->ops = usual;
}

static void only_the_same_is_shared(void **state)
{
    (void)state;
    engine *g = start(4, 100, false);
    assert_int_equal(cached_of(g, NULL, NULL, 41), 0);
    assert_int_equal(cached_of(g, NULL, NULL, 41), 40); /* all whole pages */
    assert_int_equal(cached_of(g, NULL, NULL, 40), 36); /* the last token is computed in any case */
    assert_int_equal(cached_of(g, NULL, "", 30), 28);
    assert_int_equal(cached_of(g, NULL, "mine", 41), 0); /* another salt */
    assert_int_equal(cached_of(g, "1", NULL, 41), 0);    /* an adapter */
    assert_int_equal(cached_of(g, "2", NULL, 41), 0);    /* another one */
    assert_int_equal(cached_of(g, "1", NULL, 60), 40);
    assert_int_equal(cached_of(g, "1", "2", 41), 0);
    assert_int_equal(cached_of(g, "12", NULL, 41), 0); /* name and salt do not run together */
    engine_free(g);
}

/* Those of the least recent use go first, the end of a text before its beginning. */
static void the_least_recently_used_go_first(void **state)
{
    (void)state;
    engine *g = start(1, 24, false);
    assert_int_equal(cached_of(g, "1", NULL, 41), 0); /* 10 whole pages of each */
    assert_int_equal(cached_of(g, "2", NULL, 41), 0);
    assert_int_equal(cached_of(g, "1", NULL, 41), 40);
    assert_int_equal(cached_of(g, NULL, NULL, 29), 0); /* takes the four pages that are left, and four of 2's */
    assert_int_equal(cached_of(g, "1", NULL, 41), 40);
    int left = cached_of(g, "2", NULL, 41);
    assert_true(left > 0 && left < 40);
    engine_free(g);
}

static int steps_until_idle(engine *g)
{
    int n_finished = 0;
    while (!engine_is_idle(g)) {
        const event *events;
        int n;
        err e;
        assert_int_equal(engine_step(g, &events, &n, &e), 0);
        for (int i = 0; i < n; i++)
            n_finished += events[i].kind == EVENT_FINISHED;
    }
    return n_finished;
}

/* Requests that share pages have more of them, each counted by itself, than there are: a step has room for that. */
static void a_long_prefix_is_shared_by_many(void **state)
{
    (void)state;
    talk t = {0};
    err e;
    engine *g = start(8, 40, false);
    say(&t, 9, 60);
    engine_request r = {.token = t.token, .n_tokens = 60, .n_prompt = 60, .sampling = sampling_default()};
    r.sampling.max_tokens = 3;
    assert_int_equal(engine_add(g, &r, &e), 0);
    assert_int_equal(steps_until_idle(g), 1);
    for (uint64_t i = 1; i <= 8; i++) {
        r.id = r.arrival = i;
        assert_int_equal(engine_add(g, &r, &e), 0);
    }
    assert_int_equal(steps_until_idle(g), 8);
    assert_int_equal(engine_get_stats(g).evictions, 0);
    engine_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same_bit_for_bit),
        cmocka_unit_test(host_pages_hold_the_same_bit_for_bit),
        cmocka_unit_test(what_comes_back_for_nobody_does_no_harm),
        cmocka_unit_test(only_the_same_is_shared),
        cmocka_unit_test(the_least_recently_used_go_first),
        cmocka_unit_test(a_long_prefix_is_shared_by_many),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
