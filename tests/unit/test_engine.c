/* test_engine.c - continuous batching: a request's tokens do not depend on its company, and nothing
 * is lost when pages, slots or adapters run short. On a tiny model with random weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/adapter.h"
#include "support/test.h"
#include "support/told_loaders.h"

enum { N_ADAPTERS = 5, N_REQUESTS = 24, MAX_LEN = 160, VOCAB = 96 };

typedef struct {
    int token[MAX_LEN], n_tokens, n_prompt, evictions, n_scored;
    sample_result score[MAX_LEN]; /* [n_scored] of the prompt's tokens behind the first */
    bool finished, failed;
    finish_reason why;
} track;

static backend *be;
static model *m;
static int loads[N_ADAPTERS];
static size_t image_bytes = 1 << 20;
static bool penalties = true; /* whether some requests have them */

static model_config tiny_config(void)
{
    model_config c = {.n_layers = 2,
                      .hidden = 40,
                      .n_heads = 4,
                      .n_kv_heads = 2,
                      .head_dim = 10,
                      .ffn = 56,
                      .vocab = VOCAB,
                      .max_positions = 150,
                      .rms_eps = 1e-5f,
                      .rope_theta = 10000,
                      .type = DTYPE_F16,
                      .bos = -1};
    c.layer_slides = XNEW_ARRAY(bool, 2);
    snprintf(c.family, sizeof c.family, "llama");
    return c;
}

static lora *load(void *ctx, const char *name, err *e)
{
    (void)ctx;
    int i = atoi(name);
    if (i >= N_ADAPTERS) {
        err_set(e, "adapter %s is broken", name);
        return NULL;
    }
    __atomic_add_fetch(&loads[i], 1, __ATOMIC_RELAXED);
    return lora_random(&m->config, 1, 1 + 5 * i, i % 2 ? DTYPE_F32 : DTYPE_BF16, (unsigned long)i);
}

static void use_backend(int n_threads)
{
    err e;
    be = backend_cpu_new(n_threads);
    model_config c = tiny_config();
    m = model_random(be, &c, WEIGHTS_STORED, 7, &e);
    assert_non_null(m);
}

static void drop_backend(void)
{
    model_free(m);
    be->ops->free(be);
}

static engine *start(int max_batch, int prefill_rows, int n_pages, int n_slots)
{
    err e;
    engine_options o = engine_options_default();
    o.max_batch = max_batch;
    o.prefill_rows = prefill_rows;
    o.n_pages = n_pages;
    o.n_adapter_slots = n_slots;
    o.image_bytes = image_bytes;
    o.adapters = (adapter_source){.load = load};
    engine *g = engine_new(m, &o, &e);
    assert_non_null(g);
    return g;
}

/* With all adapters in memory, what a step does depends on the requests alone. */
static void preload_all(engine *g)
{
    err e;
    for (int i = 0; i < N_ADAPTERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(engine_preload(g, name, &e), 0);
    }
}

/* Request i: its own prompt, length, adapter (every sixth the base) and way of sampling. */
static track first_track(int i)
{
    track t = {.n_prompt = 1 + (int)(rng_u64(11, (uint64_t)i) % 60)};
    for (int k = 0; k < t.n_prompt; k++)
        t.token[t.n_tokens++] = (int)(rng_u64(12 + (uint64_t)i, (uint64_t)k) % VOCAB);
    return t;
}

static sampling_params sampling_of(int i)
{
    sampling_params s = sampling_default();
    s.max_tokens = 5 + (int)(rng_u64(13, (uint64_t)i) % 40);
    s.temperature = i % 2 ? 0.9f : 0;
    s.top_k = i % 4 == 1 ? 20 : 0;
    s.top_p = i % 8 == 3 ? 0.8f : 1;
    s.repetition_penalty = penalties && i % 5 == 2 ? 1.3f : 1;
    s.frequency_penalty = penalties && i % 7 == 3 ? 0.5f : 0;
    s.seed = (uint64_t)i;
    s.n_prompt_logprobs = i % 5 == 1 ? 3 : -1;
    s.max_tokens = i % 10 == 1 ? 0 : s.max_tokens; /* nothing but scores */
    return s;
}

static int add(engine *g, int i, const track *t, err *e)
{
    char name[16];
    snprintf(name, sizeof name, "%d", i % 6);
    engine_request r = {.id = (uint64_t)i,
                        .arrival = (uint64_t)i,
                        .adapter = i % 6 == 5 ? NULL : name,
                        .token = t->token,
                        .n_tokens = t->n_tokens,
                        .n_prompt = t->n_prompt,
                        .n_scored = t->n_scored,
                        .sampling = sampling_of(i)};
    return engine_add(g, &r, e);
}

static void take(engine *g, track *all, const event *ev)
{
    err e;
    track *t = &all[ev->id];
    assert_false(t->finished || t->failed);
    switch (ev->kind) {
    case EVENT_SCORE:
        assert_int_equal(ev->drawn.token, t->token[t->n_scored + 1]);
        assert_int_equal(t->n_tokens, t->n_prompt);
        t->score[t->n_scored++] = ev->drawn;
        break;
    case EVENT_TOKEN: t->token[t->n_tokens++] = ev->drawn.token; break;
    case EVENT_FINISHED:
        t->finished = true;
        t->why = ev->why;
        break;
    case EVENT_FAILED: t->failed = true; break;
    case EVENT_EVICTED:
        t->evictions++;
        assert_int_equal(add(g, (int)ev->id, t, &e), 0);
        break;
    }
}

static void step(engine *g, track *all)
{
    err e;
    const event *events;
    int n;
    assert_int_equal(engine_step(g, &events, &n, &e), 0);
    for (int i = 0; i < n; i++)
        take(g, all, &events[i]);
}

static void run_all(engine *g, track *all)
{
    while (!engine_is_idle(g))
        step(g, all);
    engine_stats s = engine_get_stats(g);
    assert_int_equal(s.pages_free, s.pages_total);
}

/* Each request by itself in an engine of its own. */
static void run_each_alone(track *all)
{
    err e;
    for (int i = 0; i < N_REQUESTS; i++) {
        all[i] = first_track(i);
        engine *g = start(1, 512, 64, 1);
        assert_int_equal(add(g, i, &all[i], &e), 0);
        run_all(g, all);
        assert_true(all[i].finished);
        assert_int_equal(all[i].n_scored, sampling_of(i).n_prompt_logprobs < 0 ? 0 : all[i].n_prompt - 1);
        engine_free(g);
    }
}

/* The first chunk of a long prompt draws nothing: that must not be taken for a failure, on a fresh device either. */
static void a_device_may_begin_with_a_chunk(void **state)
{
    (void)state;
    err e;
    track all[1] = {{.n_prompt = 50, .n_tokens = 50}};
    use_backend(1);
    engine *g = start(1, 16, 64, 1);
    assert_int_equal(add(g, 0, &all[0], &e), 0);
    run_all(g, all);
    assert_true(all[0].finished);
    engine_free(g);
    drop_backend();
}

/* All requests in one engine, a new one every other step, and the same tokens as alone. */
static int run_staggered(const track *expect, int max_batch, int prefill_rows, int n_pages, int n_slots)
{
    static track all[N_REQUESTS];
    err e;
    int evictions = 0;
    engine *g = start(max_batch, prefill_rows, n_pages, n_slots);
    if (n_slots > N_ADAPTERS)
        preload_all(g);
    for (int i = 0; i < N_REQUESTS; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
        if (i % 2)
            step(g, all);
    }
    run_all(g, all);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_true(all[i].finished);
        assert_int_equal(all[i].n_tokens, expect[i].n_tokens);
        assert_memory_equal(all[i].token, expect[i].token, (size_t)expect[i].n_tokens * sizeof(int));
        assert_int_equal(all[i].n_scored, expect[i].n_scored);
        assert_memory_equal(all[i].score, expect[i].score, (size_t)expect[i].n_scored * sizeof *expect[i].score);
        evictions += all[i].evictions;
    }
    engine_free(g);
    return evictions;
}

static void company_does_not_matter(void **state)
{
    (void)state;
    static track alone[N_REQUESTS];
    use_backend(1);
    run_each_alone(alone);
    drop_backend();
    for (int threads = 1; threads <= 3; threads++) {
        use_backend(threads);
        assert_int_equal(run_staggered(alone, 8, 256, 100, 8), 0);
        run_staggered(alone, 24, 16, 200, 5);                 /* chunked prompts, several a step */
        run_staggered(alone, 6, 7, 100, 2);                   /* fewer slots than adapters */
        assert_true(run_staggered(alone, 16, 64, 10, 8) > 0); /* pages run out */
        drop_backend();
    }
}

/* A device with memory of its own: adapters go through images in host memory, of which not all fit. */
static void adapters_come_from_images(void **state)
{
    (void)state;
    static track alone[N_REQUESTS];
    use_backend(2);
    run_each_alone(alone);
    be->owns_host_memory = false;
    for (int i = 0; i < 3; i++) {
        image_bytes = i == 0 ? 0 : i == 1 ? 40000 : 1 << 20;
        run_staggered(alone, 6, 7, 100, 2);
    }
    drop_backend();
    image_bytes = 1 << 20;
}

/* Returns only once a second load has begun, or after 10 s. */
static lora *load_in_pairs(void *ctx, const char *name, err *e)
{
    int *begun = ctx;
    __atomic_add_fetch(begun, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 10000 && __atomic_load_n(begun, __ATOMIC_RELAXED) < 2; i++)
        usleep(1000);
    if (__atomic_load_n(begun, __ATOMIC_RELAXED) >= 2)
        return load(NULL, name, e);
    err_set(e, "the other load did not begin");
    return NULL;
}

/* Beside a device adapters are made side by side: a slow one does not keep the others waiting. */
static void adapters_load_side_by_side(void **state)
{
    (void)state;
    static track all[2];
    int begun = 0;
    err e;
    use_backend(1);
    be->owns_host_memory = false;
    engine_options o = engine_options_default();
    o.n_pages = 100;
    o.adapters = (adapter_source){.load = load_in_pairs, .ctx = &begun};
    engine *g = engine_new(m, &o, &e);
    assert_non_null(g);
    for (int i = 0; i < 2; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    run_all(g, all);
    assert_true(all[0].finished && all[1].finished);
    engine_free(g);
    drop_backend();
}

/* Whoever loads decides when an adapter is there; what is under way when the engine ends is given back. */
static void the_caller_may_bring_loaders(void **state)
{
    (void)state;
    static track all[4];
    told_loaders loaders = {.base.ops = &told_loaders_ops};
    err e;
    use_backend(1);
    engine_options o = engine_options_default();
    o.n_pages = 100;
    o.adapters = (adapter_source){.load = load};
    o.loaders = &loaders.base;
    o.never_waits = true;
    engine *g = engine_new(m, &o, &e);
    assert_non_null(g);
    for (int i = 0; i < 4; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    for (int i = 0; i < 3; i++)
        step(g, all);
    assert_int_equal(engine_get_stats(g).steps, 0);
    assert_int_equal(loaders.n_todo, 4);
    told_loaders_run(&loaders, 1);
    while (!all[0].finished)
        step(g, all);
    assert_int_equal(engine_get_stats(g).n_waiting, 3);
    told_loaders_run(&loaders, 1);
    engine_free(g); /* with one load finished and two not begun */
    assert_int_equal(loaders.n_todo + loaders.n_done, 0);
    drop_backend();
}

/* The CPU as a device whose memory holds so many blocks. */
static backend_ops small_ops;
static int n_blocks, max_blocks;

static void *small_alloc(backend *b, size_t bytes, err *e)
{
    if (__atomic_load_n(&n_blocks, __ATOMIC_RELAXED) >= max_blocks) {
        err_set(e, "not enough memory");
        return NULL;
    }
    __atomic_add_fetch(&n_blocks, 1, __ATOMIC_RELAXED);
    (void)b;
    return mem_alloc_block(bytes);
}

static void small_release(backend *b, void *p)
{
    (void)b;
    __atomic_sub_fetch(&n_blocks, 1, __ATOMIC_RELAXED);
    free(p);
}

/* More slots than memory: adapters nobody uses make room, and a load waits for those in use. */
static void memory_limits_adapters_too(void **state)
{
    (void)state;
    static track alone[N_REQUESTS], all[N_REQUESTS];
    err e;
    use_backend(2);
    run_each_alone(alone);
    small_ops = *be->ops;
    small_ops.alloc = small_alloc;
    small_ops.release = small_release;
    be->ops = &small_ops;
    be->owns_host_memory = false;
    max_blocks = 1000;
    n_blocks = 1; /* the model's frequencies, from before */
    engine *g = start(4, 64, 100, 5);
    max_blocks = n_blocks + 2; /* room for two of the five adapters */
    for (int i = 0; i < N_REQUESTS; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    run_all(g, all);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_true(all[i].finished);
        assert_memory_equal(all[i].token, alone[i].token, (size_t)alone[i].n_tokens * sizeof(int));
    }
    assert_int_not_equal(engine_preload(g, "7", &e), 0); /* broken: fails whatever the memory */
    max_blocks = 0;
    assert_int_not_equal(engine_preload(g, "1", &e) + engine_preload(g, "2", &e) + engine_preload(g, "3", &e), 0);
    engine_free(g);
    drop_backend();
}

/* The next step queued before the last one's tokens are known, with requests that end at an end
 * token, are evicted, and have penalties (which make the engine wait). */
static void running_ahead_does_not_matter(void **state)
{
    (void)state;
    static track alone[N_REQUESTS];
    for (int round = 0; round < 2; round++) {
        penalties = round == 0;
        use_backend(2);
        m->config.n_eos = 4;
        for (int i = 0; i < 4; i++)
            m->config.eos[i] = 5 + 20 * i;
        run_each_alone(alone);
        int stopped = 0;
        for (int i = 0; i < N_REQUESTS; i++)
            stopped += alone[i].why == FINISH_STOP;
        assert_true(stopped > 2 && stopped < N_REQUESTS);
        be->runs_ahead = true;
        assert_int_equal(run_staggered(alone, 8, 256, 100, 8), 0);
        run_staggered(alone, 24, 16, 200, 5);
        run_staggered(alone, 6, 7, 100, 2);
        assert_true(run_staggered(alone, 16, 64, 7, 8) > 0);
        drop_backend();
    }
    penalties = true;
}

/* The last token is not computed with: no page is wanted for it, in flight or not. */
static void the_last_token_needs_no_page(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        static track all[2];
        err e;
        use_backend(1);
        be->runs_ahead = ahead;
        engine *g = start(2, 256, 2, 1);
        all[1] = (track){.n_prompt = 16, .n_tokens = 16};
        engine_request r = {
            .id = 1, .token = all[1].token, .n_tokens = 16, .n_prompt = 16, .sampling = sampling_default()};
        r.sampling.max_tokens = 17; /* 33 tokens, of which 32 fill the two pages */
        assert_int_equal(engine_add(g, &r, &e), 0);
        run_all(g, all);
        assert_true(all[1].finished && all[1].evictions == 0 && all[1].n_tokens == 33);
        engine_free(g);
        drop_backend();
    }
}

static void a_cancel_with_steps_in_flight(void **state)
{
    (void)state;
    static track alone[N_REQUESTS], all[N_REQUESTS];
    err e;
    penalties = false;
    use_backend(2);
    run_each_alone(alone);
    be->runs_ahead = true;
    engine *g = start(8, 64, 100, 3);
    for (int i = 0; i < N_REQUESTS; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    for (int i = 0; i < N_REQUESTS; i += 3) {
        step(g, all);
        engine_cancel(g, (uint64_t)i);
    }
    run_all(g, all);
    for (int i = 0; i < N_REQUESTS; i++)
        if (i % 3) {
            assert_true(all[i].finished && all[i].n_tokens == alone[i].n_tokens);
            assert_memory_equal(all[i].token, alone[i].token, (size_t)alone[i].n_tokens * sizeof(int));
        }
    engine_free(g);
    drop_backend();
    penalties = true;
}

static void the_newest_is_evicted(void **state)
{
    (void)state;
    static track all[N_REQUESTS];
    err e;
    use_backend(2);
    engine *g = start(8, 256, 10, 8);
    preload_all(g);
    for (int i = 0; i < 12; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    run_all(g, all);
    assert_int_equal(all[0].evictions, 0);
    assert_true(engine_get_stats(g).evictions > 0);
    engine_free(g);
    drop_backend();
}

static void cancel_frees_pages_at_once(void **state)
{
    (void)state;
    static track all[N_REQUESTS];
    err e;
    use_backend(2);
    engine *g = start(4, 256, 64, 8);
    for (int i = 0; i < 6; i++) {
        all[i] = first_track(i);
        assert_int_equal(add(g, i, &all[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        step(g, all);
    for (uint64_t i = 0; i < 6; i++)
        engine_cancel(g, i);
    engine_cancel(g, 99);
    assert_true(engine_is_idle(g));
    engine_stats s = engine_get_stats(g);
    assert_int_equal(s.pages_free, s.pages_total);
    engine_free(g);
    drop_backend();
}

static void a_bad_adapter_fails_its_own_requests_only(void **state)
{
    (void)state;
    static track all[N_REQUESTS];
    err e;
    use_backend(1);
    engine *g = start(4, 256, 64, 8);
    all[0] = first_track(0);
    all[1] = first_track(1);
    assert_int_equal(add(g, 0, &all[0], &e), 0);
    engine_request bad = {.id = 1,
                          .arrival = 1,
                          .adapter = "77",
                          .token = all[1].token,
                          .n_tokens = all[1].n_tokens,
                          .n_prompt = all[1].n_prompt,
                          .sampling = sampling_of(1)};
    assert_int_equal(engine_add(g, &bad, &e), 0);
    run_all(g, all);
    assert_true(all[0].finished);
    assert_true(all[1].failed);
    assert_int_equal(all[1].n_tokens, all[1].n_prompt);
    assert_int_equal(engine_preload(g, "77", &e), -1);
    assert_non_null(strstr(e.msg, "77 is broken"));
    engine_free(g);
    drop_backend();
}

/* Two slots, both claimed ahead by waiting requests; then an older one comes that needs a third. */
static void claims_made_ahead_give_way_to_older_requests(void **state)
{
    (void)state;
    static track all[N_REQUESTS];
    err e;
    use_backend(1);
    engine *g = start(2, 256, 64, 2);
    const int order[] = {5, 11, 12, 13, 2}; /* two of the base, then adapters 0 and 1, then 2 */
    for (int i = 0; i < 5; i++) {
        all[order[i]] = first_track(order[i]);
        assert_int_equal(add(g, order[i], &all[order[i]], &e), 0);
        for (int k = 0; i == 3 && k < 3; k++)
            step(g, all);
    }
    for (int i = 0; i < 2000 && !engine_is_idle(g); i++)
        step(g, all);
    assert_true(engine_is_idle(g));
    for (int i = 0; i < 5; i++)
        assert_true(all[order[i]].finished);
    engine_free(g);
    drop_backend();
}

static void slots_keep_the_recently_used(void **state)
{
    (void)state;
    err e;
    use_backend(1);
    engine *g = start(4, 256, 64, 2);
    memset(loads, 0, sizeof loads);
    const char *order[] = {"0", "1", "0", "2", "0", "1"}; /* 2 displaces 1, then 1 displaces 2 */
    for (int i = 0; i < 6; i++)
        assert_int_equal(engine_preload(g, order[i], &e), 0);
    assert_int_equal(loads[0], 1);
    assert_int_equal(loads[1], 2);
    assert_int_equal(loads[2], 1);
    engine_free(g);
    drop_backend();
}

static engine_request plain_request(const int *token, int n)
{
    engine_request r = {.id = 1, .token = token, .n_tokens = n, .n_prompt = n, .sampling = sampling_default()};
    return r;
}

static void hopeless_requests_are_refused(void **state)
{
    (void)state;
    err e;
    int token[200] = {0};
    use_backend(1);
    engine *g = start(4, 256, 4, 2);
    engine_request r = plain_request(token, 0);
    assert_int_equal(engine_add(g, &r, &e), -1);
    r = plain_request(token, 64); /* 65 tokens need five pages of four */
    assert_int_equal(engine_add(g, &r, &e), -1);
    assert_non_null(strstr(e.msg, "pages"));
    r = plain_request(token, 200);
    assert_int_equal(engine_add(g, &r, &e), -1);
    assert_non_null(strstr(e.msg, "limit"));
    token[3] = VOCAB;
    r = plain_request(token, 8);
    assert_int_equal(engine_add(g, &r, &e), -1);
    token[3] = 0;
    r.sampling.n_stop = MAX_STOP_IDS + 1;
    assert_int_equal(engine_add(g, &r, &e), -1);
    r.sampling.n_stop = 0;
    r.sampling.top_p = 0;
    assert_int_equal(engine_add(g, &r, &e), -1);
    assert_true(engine_is_idle(g));
    engine_free(g);
    drop_backend();
}

/* The output of one greedy request with the given limits. */
static track run_one(engine *g, sampling_params sampling)
{
    err e;
    static track all[2];
    all[1] = first_track(1);
    engine_request r = plain_request(all[1].token, all[1].n_tokens);
    r.sampling = sampling;
    assert_int_equal(engine_add(g, &r, &e), 0);
    run_all(g, all);
    return all[1];
}

static void outputs_end_where_they_should(void **state)
{
    (void)state;
    use_backend(1);
    engine *g = start(4, 256, 64, 2);
    sampling_params sampling = sampling_default();
    sampling.max_tokens = 20;
    track plain = run_one(g, sampling);
    assert_int_equal(plain.n_tokens - plain.n_prompt, 20);
    assert_int_equal(plain.why, FINISH_LENGTH);

    int stop = plain.token[plain.n_prompt + 6], first = plain.n_prompt;
    while (plain.token[first] != stop)
        first++;
    sampling.n_stop = 1;
    sampling.stop[0] = stop;
    track stopped = run_one(g, sampling);
    assert_int_equal(stopped.n_tokens, first + 1);
    assert_int_equal(stopped.why, FINISH_STOP);

    sampling.min_tokens = 15;
    track longer = run_one(g, sampling);
    assert_true(longer.n_tokens - longer.n_prompt >= 15);
    for (int i = longer.n_prompt; i < longer.n_prompt + 14; i++)
        assert_int_not_equal(longer.token[i], stop);

    m->config.n_eos = 1;
    m->config.eos[0] = stop;
    sampling = sampling_default();
    sampling.max_tokens = 20;
    assert_int_equal(run_one(g, sampling).n_tokens, first + 1);
    sampling.ignore_eos = true;
    assert_int_equal(run_one(g, sampling).n_tokens - plain.n_prompt, 20);
    sampling.max_tokens = 1000;
    track limit = run_one(g, sampling);
    assert_int_equal(limit.n_tokens, m->config.max_positions);
    assert_int_equal(limit.why, FINISH_LENGTH);
    engine_free(g);
    drop_backend();
}

/* A letter, or sixteen of it. */
static const char *letters(void *ctx, int id, size_t *n)
{
    static char text[16];
    (void)ctx;
    memset(text, ' ' + id % 64, sizeof text);
    *n = id < 64 ? 1 : sizeof text;
    return text;
}

static guide *guide_of(const token_trie *t, grammar_kind kind, const char *text)
{
    err e;
    grammar *made = grammar_compile(kind, text, strlen(text), NULL, &e);
    assert_non_null(made);
    return guide_new(made, t, NULL);
}

/* The output of a greedy request that follows a grammar. */
static track run_guided(engine *g, sampling_params sampling, guide *of)
{
    err e;
    static track all[2];
    all[1] = first_track(1);
    engine_request r = plain_request(all[1].token, all[1].n_tokens);
    r.sampling = sampling;
    r.rules.grammar = of;
    assert_int_equal(engine_add(g, &r, &e), 0);
    run_all(g, all);
    return all[1];
}

/* No mask has bits for ids that no token has. */
static void stop_ids_outside_the_vocabulary_are_never_drawn(void **state)
{
    (void)state;
    use_backend(1);
    engine *g = start(4, 256, 64, 2);
    token_trie *t = token_trie_new(VOCAB, letters, NULL);
    guide *of = guide_of(t, GRAMMAR_REGEX, "(A|B)*");
    sampling_params sampling = sampling_default();
    sampling.max_tokens = 20;
    sampling.n_stop = 3;
    sampling.stop[0] = 2000000000;
    sampling.stop[1] = -2000000000;
    sampling.stop[2] = VOCAB;
    track x = run_guided(g, sampling, of);
    assert_int_equal(x.n_tokens - x.n_prompt, 20);
    assert_int_equal(x.why, FINISH_LENGTH);
    guide_drop(of);
    engine_free(g);
    token_trie_free(t);
    drop_backend();
}

/* A grammar that cannot be followed within bounds fails its own request, and says why. */
static void an_ambiguous_grammar_fails_its_request(void **state)
{
    (void)state;
    use_backend(1);
    engine *g = start(4, 256, 64, 2);
    token_trie *t = token_trie_new(VOCAB, letters, NULL);
    guide *of = guide_of(t, GRAMMAR_GBNF, "root ::= s s s s\ns ::= [ -z] | [ -z] s s s [ -z] | [ -z] s s s s");
    sampling_params sampling = sampling_default();
    sampling.max_tokens = 120;
    err e;
    const event *events;
    track x = first_track(1), y = first_track(2);
    engine_request r = plain_request(x.token, x.n_tokens), other = plain_request(y.token, y.n_tokens);
    r.sampling = other.sampling = sampling;
    r.rules.grammar = of;
    other.id = 2;
    assert_int_equal(engine_add(g, &r, &e), 0);
    assert_int_equal(engine_add(g, &other, &e), 0);
    bool failed = false, finished = false;
    while (!engine_is_idle(g)) {
        int n;
        assert_int_equal(engine_step(g, &events, &n, &e), 0);
        for (int i = 0; i < n; i++) {
            if (events[i].kind == EVENT_FAILED) {
                assert_int_equal(events[i].id, r.id);
                assert_non_null(strstr(events[i].error.msg, "too ambiguous"));
                failed = true;
            }
            finished = finished || (events[i].kind == EVENT_FINISHED && events[i].id == 2);
        }
    }
    assert_true(failed && finished);
    guide_drop(of);
    engine_free(g);
    token_trie_free(t);
    drop_backend();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_may_begin_with_a_chunk),
        cmocka_unit_test(company_does_not_matter),
        cmocka_unit_test(the_newest_is_evicted),
        cmocka_unit_test(cancel_frees_pages_at_once),
        cmocka_unit_test(a_bad_adapter_fails_its_own_requests_only),
        cmocka_unit_test(slots_keep_the_recently_used),
        cmocka_unit_test(hopeless_requests_are_refused),
        cmocka_unit_test(the_last_token_needs_no_page),
        cmocka_unit_test(a_cancel_with_steps_in_flight),
        cmocka_unit_test(memory_limits_adapters_too),
        cmocka_unit_test(adapters_load_side_by_side),
        cmocka_unit_test(adapters_come_from_images),
        cmocka_unit_test(running_ahead_does_not_matter),
        cmocka_unit_test(the_caller_may_bring_loaders),
        cmocka_unit_test(stop_ids_outside_the_vocabulary_are_never_drawn),
        cmocka_unit_test(an_ambiguous_grammar_fails_its_request),
        cmocka_unit_test(outputs_end_where_they_should),
        cmocka_unit_test(claims_made_ahead_give_way_to_older_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
