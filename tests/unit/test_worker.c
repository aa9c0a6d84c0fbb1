/* test_worker.c - a worker on a thread, the test at the other ends of its pipes */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/devices.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "net/frames.h"
#include "net/pack.h"
#include "support/test.h"
#include "worker/worker.h"
#include "worker/worker_process.h"

typedef struct {
    worker_options opt;
    char *model_dir, *adapters_dir;
    int to, from; /* our ends */
    pthread_t thread;
    int status; /* of worker_run() */
    err e;
    frame_reader in;
    unpacker *messages;
    json_t *golden;
} scene;

static void *run(void *ctx)
{
    scene *s = ctx;
    s->status = worker_run(&s->opt, &s->e);
    close(s->opt.out);
    return NULL;
}

static const Message *receive(scene *s)
{
    size_t n;
    const void *bytes;
    err e;
    while (!(bytes = frame_reader_next(&s->in, &n)))
        if (!frame_reader_wait(&s->in, 30) || frame_reader_fill(&s->in, &e) < 0)
            fail_msg("the worker says nothing more");
    const Message *m = unpacker_read(s->messages, bytes, n);
    assert_non_null(m);
    return m;
}

static const Step *next_step(scene *s)
{
    const Message *m = receive(s);
    assert_int_equal(m->what_case, MESSAGE__WHAT_STEP);
    return m->step;
}

static void start(scene *s, int kv_pages)
{
    int down[2], up[2];
    assert_int_equal(pipe(down) + pipe(up), 0);
    assert_true(fcntl(up[1], F_SETPIPE_SZ, 4096) > 0); /* it cannot run far ahead of the test */
    s->opt.model_dir = s->model_dir;
    s->opt.adapters_dir = s->adapters_dir;
    s->opt.device = "cpu";
    s->opt.weights = "stored";
    s->opt.kv = "auto";
    s->opt.tp = 1;
    s->opt.max_batch = 4;
    s->opt.threads = 1;
    s->opt.kv_pages = kv_pages;
    s->opt.gpu = 5;
    s->opt.in = down[0];
    s->opt.out = up[1];
    s->to = down[1];
    s->from = s->in.fd = up[0];
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
    const Message *m = receive(s);
    assert_int_equal(m->what_case, MESSAGE__WHAT_GPU_UP);
    assert_int_equal(m->gpu_up->gpu, 5);
    assert_int_equal(m->gpu_up->max_batch, 4);
    assert_int_equal(m->gpu_up->page_len, 16);
    if (kv_pages)
        assert_int_equal(m->gpu_up->n_pages, kv_pages);
}

/* The pipe is closed: the worker ends well. */
static void stop(scene *s)
{
    close(s->to);
    pthread_join(s->thread, NULL);
    assert_int_equal(s->status, 0);
    close(s->opt.in);
    close(s->from);
    frame_reader_deinit(&s->in);
}

static int setup(void **state)
{
    scene *s = XNEW(scene);
    const char *data = getenv("PUNICA_TEST_DATA") ? getenv("PUNICA_TEST_DATA") : TEST_DATA;
    s->model_dir = xasprintf("%s/golden/models/llama2/model", data);
    s->adapters_dir = xasprintf("%s/golden/models/llama2/adapters", data);
    char *golden = xasprintf("%s/golden/models/llama2/golden.json", data);
    err e;
    s->golden = json_read_file(golden, 100 << 20, &e);
    assert_non_null(s->golden);
    free(golden);
    s->messages = unpacker_new(1 << 24);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    unpacker_free(s->messages);
    json_decref(s->golden);
    free(s->model_dir);
    free(s->adapters_dir);
    free(s);
    return 0;
}

static void send_message(scene *s, const Message *m)
{
    buf packed = {0}, frame = {0};
    pack_message(&packed, m);
    frame_add(&frame, packed.data, packed.len);
    assert_int_equal(file_write_all(s->to, frame.data, frame.len), 0);
    buf_free(&packed);
    buf_free(&frame);
}

static void send_commands(scene *s, Command **commands, size_t n, uint32_t reset)
{
    Commands all = COMMANDS__INIT;
    all.n_commands = n;
    all.commands = commands;
    all.reset = reset;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &all;
    send_message(s, &m);
}

typedef struct {
    uint64_t id;
    uint32_t attempt;
    const char *adapter;
    int n_tokens, n_prompt, max_tokens;
    const uint32_t *token;
} ask;

static Request request_of(const ask *a, uint8_t sampling[64])
{
    Sampling drawn = SAMPLING__INIT;
    drawn.top_p = 1;
    drawn.repetition_penalty = 1;
    drawn.ignore_eos = 1;
    Request r = REQUEST__INIT;
    r.id = a->id;
    r.attempt = a->attempt;
    r.adapter = (char *)(a->adapter ? a->adapter : "");
    r.n_tokens = (size_t)a->n_tokens;
    r.tokens = (uint32_t *)a->token;
    r.n_prompt = (uint32_t)a->n_prompt;
    r.max_tokens = (uint32_t)a->max_tokens;
    r.sampling = (ProtobufCBinaryData){sampling__pack(&drawn, sampling), sampling};
    return r;
}

/* All in one message. */
static void send_adds(scene *s, const ask *a, size_t n)
{
    Request r[8];
    Command c[8], *commands[8];
    uint8_t sampling[8][64];
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        r[i] = request_of(&a[i], sampling[i]);
        c[i] = (Command)COMMAND__INIT;
        c[i].what_case = COMMAND__WHAT_ADD;
        c[i].add = &r[i];
        commands[i] = &c[i];
    }
    send_commands(s, commands, n, 0);
}

static void send_add(scene *s, const ask *a)
{
    send_adds(s, a, 1);
}

static void send_cancel(scene *s, uint64_t id, uint32_t attempt)
{
    Cancel cancel = CANCEL__INIT;
    cancel.id = id;
    cancel.attempt = attempt;
    Command c = COMMAND__INIT, *commands[] = {&c};
    c.what_case = COMMAND__WHAT_CANCEL;
    c.cancel = &cancel;
    send_commands(s, commands, 1, 0);
}

static int ids_of(const json_t *array, uint32_t *out)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    return (int)json_array_size(array);
}

/* All cases of the goldens at once, each of them begun in the middle, as after a move: tokens and indices go on where
 * they were. */
static void tokens_are_the_reference_s_and_counted_from_the_output(void **state)
{
    scene *s = *state;
    start(s, 0);
    const json_t *cases = json_object_get(s->golden, "cases");
    size_t n = json_array_size(cases), n_ended = 0;
    assert_true(n >= 2 && n < 100);
    uint32_t expected[100][1024];
    int n_expected[100], next[100];
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(cases, i);
        uint32_t token[2048];
        int n_prompt = ids_of(json_object_get(c, "prompt"), token), had = (int)i % 3;
        n_expected[i] = ids_of(json_object_get(c, "tokens"), expected[i]);
        memcpy(token + n_prompt, expected[i], (size_t)had * sizeof *token);
        next[i] = had;
        send_add(s, &(ask){.id = i,
                           .attempt = 7,
                           .adapter = json_string_value(json_object_get(c, "adapter")),
                           .token = token,
                           .n_tokens = n_prompt + had,
                           .n_prompt = n_prompt,
                           .max_tokens = n_expected[i]});
    }
    while (n_ended < n) {
        const Step *step = next_step(s);
        for (size_t k = 0; k < step->n_tokens; k++) {
            const Tokens *t = step->tokens[k];
            assert_int_equal(t->attempt, 7);
            assert_int_equal(t->index, next[t->id]);
            assert_int_equal(t->tokens[0], expected[t->id][next[t->id]++]);
        }
        for (size_t k = 0; k < step->n_ends; k++, n_ended++)
            assert_int_equal(step->ends[k]->why, END_REASON__LENGTH);
    }
    stop(s);
}

static const uint32_t some_tokens[] = {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61, 65, 69, 73, 77};

static void a_request_is_reported_as_taken_in_before_its_first_token(void **state)
{
    scene *s = *state;
    start(s, 0);
    send_add(s, &(ask){.id = 1, .attempt = 1, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 2});
    const Step *step = next_step(s);
    assert_int_equal(step->n_seen, 1);
    assert_int_equal(step->n_requests, 1);
    assert_int_equal(step->n_tokens, 0);
    stop(s);
}

static void a_cancel_frees_its_pages_in_the_next_step(void **state)
{
    scene *s = *state;
    start(s, 40);
    send_add(s, &(ask){.id = 1, .attempt = 3, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 400});
    int n_tokens = 0;
    while (n_tokens < 3)
        n_tokens += (int)next_step(s)->n_tokens;
    send_cancel(s, 1, 2); /* an attempt of before: not this one */
    const Step *step;
    while ((step = next_step(s))->n_seen < 2)
        continue;
    assert_int_equal(step->n_requests, 1);
    assert_true(step->pages_free <= 38);
    send_cancel(s, 1, 3);
    while ((step = next_step(s))->n_seen < 3)
        continue;
    assert_int_equal(step->n_tokens, 0);
    assert_int_equal(step->n_requests, 0);
    assert_int_equal(step->pages_free, 40);
    stop(s);
}

/* The second waits for pages; what it will take is off already. */
static void pages_of_those_waiting_are_reckoned_off(void **state)
{
    scene *s = *state;
    start(s, 4);
    send_adds(s,
              (ask[]){{.id = 1, .attempt = 1, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 10},
                      {.id = 2, .attempt = 1, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 1},
                      {.id = 3, .attempt = 1, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 1}},
              3);
    int lowest = 4, n_ended = 0;
    while (n_ended < 3) {
        const Step *step = next_step(s);
        lowest = step->pages_free < lowest ? step->pages_free : lowest;
        for (size_t i = 0; i < step->n_ends; i++, n_ended++)
            assert_int_equal(step->ends[i]->why, END_REASON__LENGTH);
    }
    assert_int_equal(lowest, -2);
    stop(s);
}

static void a_reset_forgets_everything(void **state)
{
    scene *s = *state;
    start(s, 40);
    for (uint64_t id = 1; id <= 6; id++)
        send_add(s,
                 &(ask){.id = id, .attempt = 1, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 400});
    while (next_step(s)->n_tokens == 0)
        continue;
    send_commands(s, NULL, 0, 9);
    const Step *step;
    while ((step = next_step(s))->reset != 9)
        continue;
    assert_int_equal(step->n_seen, 0);
    assert_int_equal(step->n_requests, 0);
    assert_int_equal(step->n_tokens, 0);
    assert_int_equal(step->pages_free, 40);
    send_add(s, &(ask){.id = 1, .attempt = 2, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 1});
    while ((step = next_step(s))->n_ends == 0)
        continue;
    assert_int_equal(step->n_seen, 1);
    assert_int_equal(step->ends[0]->attempt, 2);
    stop(s);
}

/* The end of the attempt before may have crossed the new one on the way. */
static void a_new_attempt_replaces_the_old(void **state)
{
    scene *s = *state;
    start(s, 0);
    send_add(s, &(ask){.id = 1, .attempt = 1, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 400});
    while (next_step(s)->n_tokens == 0)
        continue;
    send_add(s, &(ask){.id = 1, .attempt = 2, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 3});
    const Step *step;
    while ((step = next_step(s))->n_seen < 2)
        continue;
    for (; step->n_ends == 0; step = next_step(s))
        for (size_t i = 0; i < step->n_tokens; i++)
            assert_int_equal(step->tokens[i]->attempt, 2);
    assert_int_equal(step->ends[0]->attempt, 2);
    assert_int_equal(step->n_requests, 0);
    stop(s);
}

static void what_cannot_be_served_fails_alone(void **state)
{
    scene *s = *state;
    start(s, 0);
    uint32_t outside[] = {1u << 31};
    const ask bad[] = {
        {.id = 1, .token = some_tokens, .n_tokens = 3, .n_prompt = 4, .max_tokens = 4},
        {.id = 2, .token = some_tokens, .n_tokens = 3, .n_prompt = 3, .max_tokens = 0},
        {.id = 3, .token = outside, .n_tokens = 1, .n_prompt = 1, .max_tokens = 4},
        {.id = 4, .token = some_tokens, .n_tokens = 3, .n_prompt = 3, .max_tokens = 4, .adapter = "none"},
        {.id = 5, .token = some_tokens, .n_tokens = 0, .n_prompt = 0, .max_tokens = 4}};
    enum { N_BAD = sizeof bad / sizeof *bad };
    for (int i = 0; i < N_BAD; i++)
        send_add(s, &bad[i]);
    send_add(s, &(ask){.id = 99, .attempt = 1, .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 3});
    for (int n_ended = 0; n_ended < N_BAD + 1;) {
        const Step *step = next_step(s);
        for (size_t i = 0; i < step->n_ends; i++, n_ended++) {
            const End *e = step->ends[i];
            assert_int_equal(e->why, e->id == 99 ? END_REASON__LENGTH : END_REASON__FAILED);
            assert_true(e->id == 99 || *e->message);
        }
    }
    stop(s);
}

static void send_probe(scene *s)
{
    Commands all = COMMANDS__INIT;
    all.probe = true;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &all;
    send_message(s, &m);
}

static void a_probe_shows_how_fast_it_is_and_is_nobody_s(void **state)
{
    scene *s = *state;
    start(s, 40);
    send_probe(s);
    int n_steps = 0;
    for (const Step *step = NULL; n_steps < 16; n_steps += step->rows) {
        step = next_step(s);
        assert_true(step->rows <= 1 && (step->rows == 0 || (step->context > 0 && step->micros > 0)));
        assert_int_equal(step->n_tokens + step->n_ends + step->n_requests + step->n_seen, 0);
        assert_int_equal(step->pages_free, 40);
    }
    stop(s);
}

/* A worker whose requests were all cancelled has nothing to do, and the time until it has is nobody's step. */
static void a_step_begins_when_there_is_something_to_do(void **state)
{
    scene *s = *state;
    start(s, 40);
    send_add(s, &(ask){.id = 1, .attempt = 1, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 500});
    while (next_step(s)->n_tokens == 0)
        continue;
    send_cancel(s, 1, 1);
    const Step *step = next_step(s);
    while (step->n_requests > 0)
        step = next_step(s);
    usleep(700000);
    send_add(s, &(ask){.id = 2, .attempt = 2, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 5});
    while (step->n_tokens == 0)
        step = next_step(s);
    assert_true(step->rows > 0 && step->micros < 500000);
    stop(s);
}

static void a_probe_gives_way_to_a_request(void **state)
{
    scene *s = *state;
    start(s, 40);
    for (int i = 0; i < 3; i++)
        send_probe(s);
    send_add(
        s,
        &(ask){
            .id = UINT64_MAX - 1, .attempt = 1, .token = some_tokens, .n_tokens = 20, .n_prompt = 20, .max_tokens = 5});
    bool ended = false;
    int n_tokens = 0;
    while (!ended) {
        const Step *step = next_step(s);
        assert_true(step->n_seen == 0 || step->rows == 0 || step->rows == 20 || step->rows == 1);
        n_tokens += (int)step->n_tokens;
        ended = step->n_ends > 0;
        if (step->n_seen && !ended)
            assert_int_equal(step->pages_free, 38);
    }
    assert_int_equal(n_tokens, 5);
    stop(s);
}

static void an_idle_worker_says_that_it_lives(void **state)
{
    scene *s = *state;
    start(s, 0);
    double begin = clock_now();
    next_step(s);
    next_step(s);
    assert_true(clock_now() - begin > 0.9 && clock_now() - begin < 10);
    stop(s);
}

static void nonsense_on_the_pipe_ends_it(void **state)
{
    scene *s = *state;
    start(s, 0);
    assert_int_equal(file_write_all(s->to, "\2\0\0\0\xff\xff", 6), 0);
    pthread_join(s->thread, NULL);
    assert_int_equal(s->status, 0);
    close(s->to);
    close(s->from);
    close(s->opt.in);
    frame_reader_deinit(&s->in);
}

static void a_model_that_is_not_there_is_an_error(void **state)
{
    scene *s = *state;
    err e;
    worker_options o = {
        .model_dir = "/nowhere", .device = "cpu", .weights = "stored", .kv = "auto", .tp = 1, .max_batch = 1};
    assert_int_equal(worker_run(&o, &e), -1);
    assert_non_null(strstr(e.msg, "/nowhere"));
    o.model_dir = s->model_dir;
    o.device = "abacus";
    assert_int_equal(worker_run(&o, &e), -1);
    assert_non_null(strstr(e.msg, "abacus"));
}

/* An adapter that is there when it is looked for, n_looks times, and cannot be read. */
typedef struct {
    int n_looks;
    bool ended;
    EndReason why;
    unpacker *messages;
} vanishing;

static bool is_still_there(void *ctx, const char *id)
{
    vanishing *v = ctx;
    assert_string_equal(id, "an id");
    return v->n_looks-- > 0;
}

static int note_end(void *ctx, const void *message, size_t n)
{
    vanishing *v = ctx;
    const Message *m = unpacker_read(v->messages, message, n);
    assert_int_equal(m->what_case, MESSAGE__WHAT_STEP);
    if (m->step->n_ends) {
        v->ended = true;
        v->why = m->step->ends[0]->why;
    }
    return 0;
}

static double no_time(void *ctx)
{
    (void)ctx;
    return 1;
}

static lora *read_nothing(void *ctx, const char *name, err *e)
{
    (void)ctx;
    err_set(e, "there is no adapter %s", name);
    return NULL;
}

/* How a request ends whose adapter has a source, and whose files are gone after so many looks. */
static EndReason end_of_unreadable(const scene *s, int n_looks)
{
    err e;
    backend *be = backend_open("cpu", 1, DTYPE_F16, 1, &e);
    model *m = model_load(be, s->model_dir, WEIGHTS_STORED, &e);
    assert_non_null(m);
    engine_options o = engine_options_default();
    o.max_batch = 4;
    o.never_waits = true;
    o.adapters = (adapter_source){read_nothing, NULL};
    engine *g = engine_new(m, &o, &e);
    vanishing v = {.n_looks = n_looks, .messages = s->messages};
    grammars *none = grammars_new((vocabulary_source){0}, jobs_threads_new(1));
    worker *w = worker_new(g, &(worker_setup){.uuid = "u",
                                              .device = "d",
                                              .max_batch = 4,
                                              .max_tokens = 100,
                                              .grammars = none,
                                              .has_adapter = is_still_there,
                                              .send = note_end,
                                              .now = no_time,
                                              .ctx = &v});
    Sampling sampling = SAMPLING__INIT;
    sampling.top_p = sampling.repetition_penalty = 1;
    sampling.adapter_id = (char *)"an id";
    sampling.adapter_source = (char *)"https://somewhere/adapter";
    uint8_t packed_sampling[128], unused[64];
    Request r = request_of(
        &(ask){
            .id = 1, .attempt = 1, .adapter = "a", .token = some_tokens, .n_tokens = 5, .n_prompt = 5, .max_tokens = 2},
        unused);
    r.sampling = (ProtobufCBinaryData){sampling__pack(&sampling, packed_sampling), packed_sampling};
    Command add = COMMAND__INIT, *commands[] = {&add};
    add.what_case = COMMAND__WHAT_ADD;
    add.add = &r;
    Commands all = COMMANDS__INIT;
    all.n_commands = 1;
    all.commands = commands;
    Message message = MESSAGE__INIT;
    message.what_case = MESSAGE__WHAT_COMMANDS;
    message.commands = &all;
    buf packed = {0};
    pack_message(&packed, &message);
    assert_int_equal(worker_receive(w, packed.data, packed.len, &e), 0);
    buf_free(&packed);
    while (!v.ended)
        assert_int_equal(worker_step(w, &e), WORKER_GOES_ON);
    worker_free(w);
    grammars_free(none);
    engine_free(g);
    model_free(m);
    backend_close(be);
    return v.why;
}

static void a_request_whose_adapter_vanished_from_the_disk_is_to_be_placed_again(void **state)
{
    assert_int_equal(end_of_unreadable(*state, 1), END_REASON__EVICTED);
    assert_int_equal(end_of_unreadable(*state, 2), END_REASON__FAILED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tokens_are_the_reference_s_and_counted_from_the_output),
        TEST(a_request_is_reported_as_taken_in_before_its_first_token),
        TEST(a_cancel_frees_its_pages_in_the_next_step),
        TEST(pages_of_those_waiting_are_reckoned_off),
        TEST(a_reset_forgets_everything),
        TEST(a_new_attempt_replaces_the_old),
        TEST(what_cannot_be_served_fails_alone),
        TEST(a_probe_shows_how_fast_it_is_and_is_nobody_s),
        TEST(a_step_begins_when_there_is_something_to_do),
        TEST(a_probe_gives_way_to_a_request),
        TEST(an_idle_worker_says_that_it_lives),
        TEST(a_request_whose_adapter_vanished_from_the_disk_is_to_be_placed_again),
        TEST(nonsense_on_the_pipe_ends_it),
        TEST(a_model_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
