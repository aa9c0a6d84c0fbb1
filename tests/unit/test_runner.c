/* test_runner.c - a runner between a scheduler, played by the test, and workers, which are this program again:
 * started as `worker` it behaves as --mode says */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/frames.h"
#include "net/pack.h"
#include "runner/runner.h"
#include "runner/subprocess.h"
#include "support/test.h"
#include "support/waiting.h"

static void write_message(const Message *m)
{
    buf packed = {0}, frame = {0};
    pack_message(&packed, m);
    frame_add(&frame, packed.data, packed.len);
    if (file_write_all(4, frame.data, frame.len))
        _exit(0);
    buf_free(&packed);
    buf_free(&frame);
}

static void write_up(const char *uuid)
{
    GpuUp up = GPU_UP__INIT;
    up.uuid = (char *)uuid;
    up.max_batch = 4;
    up.n_pages = 10;
    up.page_len = 16;
    up.max_tokens = 100;
    up.device = "a test";
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_UP;
    m.gpu_up = &up;
    write_message(&m);
}

/* Mode echo: a Step for every command, with a token whose value is the request's id. An id of 13 kills it, 14 makes it
 * hang, 15 makes it write a frame that is too large, 33 one that is no message, 31 makes it give notice first, 17 kills
 * it after a long line; of 21 and 23 it is killed and stopped as if by others. n_requests: those of even id stay for
 * ever. */
static void answer(const Message *m, uint64_t *n_seen, uint32_t *reset, uint32_t *n_requests)
{
    if (m->commands->reset) {
        *reset = m->commands->reset;
        *n_seen = *n_requests = 0;
    }
    for (size_t i = 0; i < m->commands->n_commands; i++) {
        const Command *c = m->commands->commands[i];
        uint64_t id = c->what_case == COMMAND__WHAT_ADD ? c->add->id : c->cancel->id;
        if (id == 13) {
            fprintf(stderr, "an unlucky number\n");
            _exit(3);
        }
        if (id == 17) {
            fprintf(stderr, "%01000dthe rest\n", 0);
            _exit(3);
        }
        if (id == 21 || id == 23)
            raise(id == 21 ? SIGKILL : SIGSTOP);
        while (id == 14)
            pause();
        if (id == 15 && write(4, "\xff\xff\xff\xff", 4) != 4)
            _exit(0);
        if (id == 33 && write(4, "\1\0\0\0\xff", 5) != 5)
            _exit(0);
        if (id == 31 && write(4, "\0\0\0\0", 4) != 4)
            _exit(0);
        *n_requests += id % 2 == 0 ? (c->what_case == COMMAND__WHAT_ADD ? 1 : -1u) : 0;
        Tokens t = TOKENS__INIT, *tokens[] = {&t};
        uint32_t token = (uint32_t)id;
        t.id = id;
        t.n_tokens = 1;
        t.tokens = &token;
        Step s = STEP__INIT;
        s.n_seen = ++*n_seen;
        s.reset = *reset;
        s.n_requests = *n_requests;
        s.n_tokens = 1;
        s.tokens = tokens;
        Message out = MESSAGE__INIT;
        out.what_case = MESSAGE__WHAT_STEP;
        out.step = &s;
        write_message(&out);
    }
}

static int be_worker(const char *mode)
{
    if (strcmp(mode, "fail") == 0) {
        fprintf(stderr, "first line\n%0400d: the model is not there\n", 0);
        return 2;
    }
    frame_reader in = {.fd = 3};
    unpacker *u = unpacker_new(FRAME_MAX);
    uint64_t n_seen = 0;
    uint32_t reset = 0, n_requests = 0;
    err e;
    write_up(strcmp(mode, "gpu") == 0 ? "GPU-1" : "");
    while (frame_reader_fill(&in, &e) >= 0) {
        size_t n;
        for (const void *bytes; (bytes = frame_reader_next(&in, &n));)
            answer(unpacker_read(u, bytes, n), &n_seen, &reset, &n_requests);
    }
    frame_reader_deinit(&in);
    unpacker_free(u);
    return 0;
}

enum { MAX_KEPT = 256 };

typedef struct {
    event_loop *loop;
    link_listener *listener;
    char address[128];
    runner *r;
    net_link *link; /* NULL: down */
    int n_links, n_drained, n_notices;
    Message *got[MAX_KEPT];
    int n_got;
} scene;

static void on_up(void *ctx, net_link *l, const Hello *h)
{
    scene *s = ctx;
    assert_int_equal(h->role, HELLO__ROLE__RUNNER);
    s->link = l;
    s->n_links++;
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)l;
    scene *s = ctx;
    assert_true(s->n_got < MAX_KEPT);
    size_t n = message__get_packed_size(m);
    uint8_t *copy = xmalloc(n);
    message__pack(m, copy);
    s->got[s->n_got++] = message__unpack(NULL, n, copy);
    free(copy);
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)l;
    (void)why;
    ((scene *)ctx)->link = NULL;
}

/* Before the step is told. */
static void on_notice(void *ctx)
{
    scene *s = ctx;
    for (int i = 0; i < s->n_got; i++)
        assert_int_not_equal(s->got[i]->what_case, MESSAGE__WHAT_STEP);
    s->n_notices++;
}

static const credentials secret = {.secret = {"a secret"}};

static void start_listening(scene *s)
{
    link_options o = link_options_default();
    o.own = &secret;
    o.role = HELLO__ROLE__SCHEDULER;
    o.name = "test";
    link_events events = {on_up, on_message, on_down, s};
    err e;
    s->listener = link_listen(&s->loop->base, *s->address ? s->address : "127.0.0.1:0", &o, &events, &e);
    assert_non_null(s->listener);
    snprintf(s->address, sizeof s->address, "%s", link_listener_address(s->listener));
}

static void start_runner(scene *s, const char *mode, int n_workers, double hang_seconds)
{
    const char *args[] = {"--mode", mode}, *devices[] = {"cpu", "cpu"};
    runner_options o = runner_options_default();
    o.processes = subprocess_starter(s->loop->events);
    o.scheduler = s->address;
    o.link.own = &secret;
    o.device = devices;
    o.n_workers = n_workers;
    o.worker_args = args;
    o.n_worker_args = 2;
    o.hang_seconds = hang_seconds;
    o.drain_seconds = 5;
    o.on_notice = on_notice;
    o.notice_ctx = s;
    err e;
    s->r = runner_new(&s->loop->base, &o, &e);
    assert_non_null(s->r);
}

static int setup(void **state)
{
    log_set_level(LOG_ERROR);
    scene *s = XNEW(scene);
    s->loop = event_loop_new();
    start_listening(s);
    *state = s;
    return 0;
}

static void forget(scene *s)
{
    for (int i = 0; i < s->n_got; i++)
        message__free_unpacked(s->got[i], NULL);
    s->n_got = 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    runner_free(s->r);
    link_listener_free(s->listener);
    forget(s);
    event_loop_free(s->loop);
    free(s);
    return 0;
}

/* The last message of this kind, or NULL. */
static const Message *last(const scene *s, Message__WhatCase kind)
{
    for (int i = s->n_got - 1; i >= 0; i--)
        if (s->got[i]->what_case == kind)
            return s->got[i];
    return NULL;
}

static int count(const scene *s, Message__WhatCase kind)
{
    int n = 0;
    for (int i = 0; i < s->n_got; i++)
        n += s->got[i]->what_case == kind;
    return n;
}

static void send_command(scene *s, uint32_t gpu, uint32_t start, uint64_t id, bool cancel)
{
    uint32_t token[] = {1};
    Request add = REQUEST__INIT;
    add.id = id;
    add.n_tokens = add.n_prompt = 1;
    add.tokens = token;
    Cancel drop = CANCEL__INIT;
    drop.id = id;
    Command c = COMMAND__INIT, *commands[] = {&c};
    c.what_case = cancel ? COMMAND__WHAT_CANCEL : COMMAND__WHAT_ADD;
    if (cancel)
        c.cancel = &drop;
    else
        c.add = &add;
    Commands all = COMMANDS__INIT;
    all.gpu = gpu;
    all.start = start;
    all.n_commands = 1;
    all.commands = commands;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &all;
    link_send(s->link, &m);
}

static uint32_t last_start(const scene *s)
{
    return last(s, MESSAGE__WHAT_GPU_UP)->gpu_up->start;
}

static bool has_step_of(const scene *s, uint64_t id)
{
    const Message *m = last(s, MESSAGE__WHAT_STEP);
    return m && m->step->n_tokens == 1 && m->step->tokens[0]->id == id;
}

static void commands_go_down_and_steps_come_up(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    const GpuUp *up = last(s, MESSAGE__WHAT_GPU_UP)->gpu_up;
    assert_int_equal(up->max_batch, 4);
    assert_non_null(strstr(up->uuid, "-cpu-0-"));
    assert_int_equal(runner_n_ready(s->r), 1);
    for (uint64_t id = 1; id <= 5; id++)
        send_command(s, 0, up->start, id, false);
    UNTIL(s->loop, has_step_of(s, 5));
    assert_int_equal(count(s, MESSAGE__WHAT_STEP), 5);
    assert_int_equal(last(s, MESSAGE__WHAT_STEP)->step->n_seen, 5);
}

static void whoever_waits_for_tokens_hears_of_a_notice(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 31, false);
    UNTIL(s->loop, has_step_of(s, 31));
    assert_int_equal(s->n_notices, 1);
    assert_int_equal(count(s, MESSAGE__WHAT_STEP), 1);
}

static void every_worker_is_spoken_to_by_its_number(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 2, 10);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    assert_string_not_equal(s->got[0]->gpu_up->uuid, s->got[1]->gpu_up->uuid);
    send_command(s, 1, last_start(s), 3, false);
    send_command(s, 1, last_start(s), 5, false);
    send_command(s, 0, last_start(s), 7, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_STEP) == 3);
    uint64_t sum = 0;
    for (int i = 0; i < s->n_got; i++)
        if (s->got[i]->what_case == MESSAGE__WHAT_STEP)
            sum += s->got[i]->step->n_seen;
    assert_int_equal(sum, 1 + 2 + 1);
}

static void workers_that_share_a_device_have_names_of_their_own(void **state)
{
    scene *s = *state;
    start_runner(s, "gpu", 2, 10);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    for (int i = 0; i < 2; i++)
        assert_string_equal(s->got[i]->gpu_up->uuid, s->got[i]->gpu_up->gpu == 0 ? "GPU-1-0" : "GPU-1-1");
}

static void a_worker_alone_on_its_device_has_the_name_of_that(void **state)
{
    scene *s = *state;
    start_runner(s, "gpu", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_UP)->gpu_up->uuid, "GPU-1");
}

static void a_long_line_loses_no_character(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 17, false);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_GONE));
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->message, "exit code 3: the rest");
}

static void a_worker_that_dies_is_started_again(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    char uuid[128];
    snprintf(uuid, sizeof uuid, "%s", last(s, MESSAGE__WHAT_GPU_UP)->gpu_up->uuid);
    uint32_t start = last_start(s);
    send_command(s, 0, start, 1, false);
    send_command(s, 0, start, 13, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    const Message *gone = last(s, MESSAGE__WHAT_GPU_GONE);
    assert_true(gone->gpu_gone->died && !gone->gpu_gone->from_outside);
    assert_string_equal(gone->gpu_gone->message, "exit code 3: an unlucky number");
    assert_int_equal(s->got[1]->what_case, MESSAGE__WHAT_STEP); /* what it said before came before */
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_UP)->gpu_up->uuid, uuid);
    assert_true(last_start(s) > start);
}

/* They were on their way when it died. */
static void commands_for_the_worker_before_are_dropped(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    uint32_t start = last_start(s);
    send_command(s, 0, start, 13, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    send_command(s, 0, start, 3, false);
    send_command(s, 0, last_start(s), 5, false);
    UNTIL(s->loop, has_step_of(s, 5));
    assert_int_equal(last(s, MESSAGE__WHAT_STEP)->step->n_seen, 1);
}

static void a_worker_that_hangs_is_killed(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 0.6);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 14, false);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_GONE));
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->message, "hung; killed by signal 9");
    assert_false(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->from_outside);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
}

/* Killed, or stopped and then taken to hang: neither is the doing of a request. */
static void deaths_from_outside_are_told_apart(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 0.6);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 21, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->message, "killed by signal 9");
    assert_true(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->from_outside);
    send_command(s, 0, last_start(s), 23, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_GONE) == 2);
    assert_string_equal(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->message, "hung; killed by signal 9");
    assert_true(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->from_outside);
}

static void a_worker_that_talks_nonsense_is_replaced(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 60);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 15, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 2);
    assert_false(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->from_outside);
    send_command(s, 0, last_start(s), 33, false);
    UNTIL(s->loop, count(s, MESSAGE__WHAT_GPU_UP) == 3);
    assert_false(last(s, MESSAGE__WHAT_GPU_GONE)->gpu_gone->from_outside);
}

/* It waits longer each time: at once, then 0.1, 0.2, 0.4 s. */
static void a_worker_that_cannot_start_is_tried_again_and_never_announced(void **state)
{
    scene *s = *state;
    start_runner(s, "fail", 1, 10);
    UNTIL(s->loop, s->link && runner_failure(s->r));
    PASS(s->loop, 0.5);
    assert_int_equal(s->n_got, 0);
    assert_int_equal(runner_n_ready(s->r), 0);
    assert_non_null(strstr(runner_failure(s->r), ": the model is not there"));
}

static void a_lost_link_makes_workers_forget(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    uint32_t start = last_start(s);
    for (uint64_t id = 2; id <= 20; id += 2)
        if (id != 14)
            send_command(s, 0, start, id, false);
    UNTIL(s->loop, has_step_of(s, 20));
    link_listener_free(s->listener);
    s->link = NULL;
    forget(s);
    start_listening(s);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    assert_true(last_start(s) > start);
    send_command(s, 0, last_start(s), 1, false);
    UNTIL(s->loop, has_step_of(s, 1));
    assert_int_equal(count(s, MESSAGE__WHAT_STEP), 1); /* nothing of before */
    assert_int_equal(last(s, MESSAGE__WHAT_STEP)->step->n_seen, 1);
    assert_int_equal(last(s, MESSAGE__WHAT_STEP)->step->n_requests, 0);
}

static void a_scheduler_that_talks_nonsense_is_left(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 9, 1, 1, false);
    UNTIL(s->loop, s->n_links == 2 && s->link);
}

static void drained(void *ctx)
{
    ((scene *)ctx)->n_drained++;
}

static void draining_ends_when_nothing_is_left(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 2, false);
    UNTIL(s->loop, has_step_of(s, 2));
    double start = clock_now();
    runner_drain(s->r, drained, s);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_DRAIN));
    assert_int_equal(s->n_drained, 0);
    send_command(s, 0, last_start(s), 2, true);
    UNTIL(s->loop, s->n_drained == 1);
    assert_true(clock_now() - start < 4);
}

static void draining_does_not_wait_for_ever(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    send_command(s, 0, last_start(s), 2, false);
    UNTIL(s->loop, has_step_of(s, 2));
    runner_drain(s->r, drained, s);
    UNTIL(s->loop, s->n_drained == 1);
}

static void draining_without_requests_is_done_at_once(void **state)
{
    scene *s = *state;
    start_runner(s, "echo", 1, 10);
    UNTIL(s->loop, last(s, MESSAGE__WHAT_GPU_UP));
    double start = clock_now();
    runner_drain(s->r, drained, s);
    assert_int_equal(s->n_drained, 0);
    UNTIL(s->loop, s->n_drained == 1);
    assert_true(clock_now() - start < 4);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return be_worker(argv[argc - 1]);
    const struct CMUnitTest tests[] = {
        TEST(commands_go_down_and_steps_come_up),
        TEST(whoever_waits_for_tokens_hears_of_a_notice),
        TEST(every_worker_is_spoken_to_by_its_number),
        TEST(workers_that_share_a_device_have_names_of_their_own),
        TEST(a_worker_alone_on_its_device_has_the_name_of_that),
        TEST(a_long_line_loses_no_character),
        TEST(a_worker_that_dies_is_started_again),
        TEST(commands_for_the_worker_before_are_dropped),
        TEST(a_worker_that_hangs_is_killed),
        TEST(deaths_from_outside_are_told_apart),
        TEST(a_worker_that_talks_nonsense_is_replaced),
        TEST(a_worker_that_cannot_start_is_tried_again_and_never_announced),
        TEST(a_lost_link_makes_workers_forget),
        TEST(a_scheduler_that_talks_nonsense_is_left),
        TEST(draining_ends_when_nothing_is_left),
        TEST(draining_does_not_wait_for_ever),
        TEST(draining_without_requests_is_done_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
