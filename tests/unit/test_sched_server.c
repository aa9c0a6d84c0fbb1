/* test_sched_server.c - what crosses the wire between a scheduler and its peers, each played by a plain link */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/sched_server.h"
#include "support/test.h"
#include "support/waiting.h"

enum { MAX_KEPT = 64 };

/* A peer, and the messages that have come to it. */
typedef struct {
    net_link *link;
    bool is_up;
    int n_up, n_down;
    int n_gpus; /* as it was told */
    char why[256];
    Message *got[MAX_KEPT];
    int n_got;
    int n_probes; /* that are none of these */
} peer;

typedef struct {
    event_loop *loop;
    sched_server *server;
    peer front, run;
} scene;

static void on_up(void *ctx, net_link *l, const Hello *h)
{
    peer *p = ctx;
    assert_int_equal(h->role, HELLO__ROLE__SCHEDULER);
    p->link = l;
    p->is_up = true;
    p->n_up++;
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)l;
    peer *p = ctx;
    if (m->what_case == MESSAGE__WHAT_CLUSTER) {
        p->n_gpus = (int)m->cluster->n_gpus;
        return;
    }
    if (m->what_case == MESSAGE__WHAT_COMMANDS && m->commands->probe) {
        assert_int_equal(m->commands->n_commands, 0);
        p->n_probes++;
        return;
    }
    assert_true(p->n_got < MAX_KEPT);
    size_t n = message__get_packed_size(m);
    uint8_t *copy = xmalloc(n);
    message__pack(m, copy);
    p->got[p->n_got++] = message__unpack(NULL, n, copy);
    free(copy);
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)l;
    peer *p = ctx;
    p->is_up = false;
    p->n_down++;
    snprintf(p->why, sizeof p->why, "%s", why);
}

static const credentials secret = {.secret = {"a secret"}};

static link_options options_of(Hello__Role role, uint64_t instance, const char *model)
{
    link_options o = link_options_default();
    o.own = &secret;
    o.role = role;
    o.name = "peer";
    o.instance = instance;
    o.model = model;
    return o;
}

static net_link *connect_as(scene *s, peer *p, const link_options *o)
{
    link_events events = {on_up, on_message, on_down, p};
    err e;
    net_link *l = link_connect(&s->loop->base, sched_server_address(s->server), o, &events, &e);
    assert_non_null(l);
    return l;
}

static sched_server *start_server(event_loop *loop)
{
    sched_server_options o = sched_server_options_default();
    o.listen = "127.0.0.1:0";
    o.link.own = &secret;
    err e;
    sched_server *v = sched_server_new(&loop->base, &o, &e);
    assert_non_null(v);
    return v;
}

static void connect_both(scene *s)
{
    link_options front = options_of(HELLO__ROLE__FRONTEND, 1, "m-1"), run = options_of(HELLO__ROLE__RUNNER, 2, "m-1");
    s->front.link = connect_as(s, &s->front, &front);
    s->run.link = connect_as(s, &s->run, &run);
    UNTIL(s->loop, s->front.is_up && s->run.is_up);
}

static int setup(void **state)
{
    log_set_level(LOG_ERROR);
    scene *s = XNEW(scene);
    s->loop = event_loop_new();
    s->server = start_server(s->loop);
    connect_both(s);
    *state = s;
    return 0;
}

static void forget(peer *p)
{
    for (int i = 0; i < p->n_got; i++)
        message__free_unpacked(p->got[i], NULL);
    p->n_got = 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    link_free(s->front.link);
    link_free(s->run.link);
    forget(&s->front);
    forget(&s->run);
    sched_server_free(s->server);
    event_loop_free(s->loop);
    free(s);
    return 0;
}

static void send_gpu(scene *s, uint32_t gpu, uint32_t start, uint32_t max_batch, uint32_t page_len)
{
    GpuUp up = GPU_UP__INIT;
    up.gpu = gpu;
    up.uuid = gpu ? "GPU-b" : "GPU-a";
    up.max_batch = max_batch;
    up.n_pages = 100;
    up.page_len = page_len;
    up.max_tokens = page_len > 16 ? 1 << 24 : 1000;
    up.device = "none";
    up.start = start;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_UP;
    m.gpu_up = &up;
    link_send(s->run.link, &m);
}

static void send_gpu_up(scene *s, uint32_t gpu, uint32_t start, uint32_t max_batch)
{
    send_gpu(s, gpu, start, max_batch, 16);
}

static void submit(scene *s, uint64_t id)
{
    uint32_t token[] = {1, 2, 3};
    Request r = REQUEST__INIT;
    r.id = id;
    r.arrival = 1e9; /* which nobody believes */
    r.age = 60;
    r.adapter = "sql";
    r.n_tokens = r.n_prompt = 3;
    r.tokens = token;
    r.max_tokens = 10;
    r.sampling = (ProtobufCBinaryData){6, (uint8_t *)"packed"};
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_SUBMIT;
    m.submit = &r;
    link_send(s->front.link, &m);
}

/* One token for each of these requests, from 100 on; the last also ends. */
static void send_step(scene *s, uint64_t n_seen, const Request *const *of, int n)
{
    Tokens t[8], *tokens[8];
    uint32_t token[8];
    for (int i = 0; i < n; i++) {
        token[i] = 100 + (uint32_t)i;
        t[i] = (Tokens)TOKENS__INIT;
        t[i].id = of[i]->id;
        t[i].attempt = of[i]->attempt;
        t[i].n_tokens = 1;
        t[i].tokens = &token[i];
        t[i].logprobs = (ProtobufCBinaryData){3, (uint8_t *)"log"};
        tokens[i] = &t[i];
    }
    End end = END__INIT, *ends[] = {&end};
    end.id = of[n - 1]->id;
    end.attempt = of[n - 1]->attempt;
    end.why = END_REASON__LENGTH;
    Step step = STEP__INIT;
    step.n_seen = n_seen;
    step.pages_free = 90;
    step.n_tokens = (size_t)n;
    step.tokens = tokens;
    step.n_ends = 1;
    step.ends = ends;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_STEP;
    m.step = &step;
    link_send(s->run.link, &m);
}

static const Request *added(const scene *s, int i)
{
    const Message *m = s->run.got[i];
    assert_int_equal(m->what_case, MESSAGE__WHAT_COMMANDS);
    assert_int_equal(m->commands->commands[0]->what_case, COMMAND__WHAT_ADD);
    return m->commands->commands[0]->add;
}

static void a_request_reaches_the_gpu_as_it_was_submitted(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 7, 4);
    submit(s, 11);
    UNTIL(s->loop, s->run.n_got == 1);
    const Request *r = added(s, 0);
    assert_int_equal(r->id, 11);
    assert_string_equal(r->adapter, "sql");
    assert_int_equal(r->n_tokens, 3);
    assert_int_equal(r->tokens[2], 3);
    assert_int_equal(r->n_prompt, 3);
    assert_int_equal(r->max_tokens, 10);
    assert_int_equal(r->sampling.len, 6);
    assert_memory_equal(r->sampling.data, "packed", 6);
    assert_true(fabs(r->arrival - (double)time(NULL)) < 5); /* its turn: now */
    assert_int_equal(s->run.got[0]->commands->gpu, 0);
    assert_int_equal(s->run.got[0]->commands->start, 7);
}

static void submit_tokens(scene *s, uint64_t id, size_t n)
{
    uint32_t *token = XNEW_ARRAY(uint32_t, n);
    for (size_t i = 0; i < n; i++)
        token[i] = UINT32_MAX / 2; /* five bytes each */
    Request r = REQUEST__INIT;
    r.id = id;
    r.n_tokens = n;
    r.n_prompt = (uint32_t)n;
    r.tokens = token;
    r.max_tokens = 10;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_SUBMIT;
    m.submit = &r;
    link_send(s->front.link, &m);
    free(token);
}

/* The largest that is taken in hurts nobody: a runner takes four times as much. */
static void a_request_that_is_too_large_for_a_message_hurts_its_frontend_only(void **state)
{
    scene *s = *state;
    send_gpu(s, 0, 7, 4, 65536);
    submit_tokens(s, 11, (15 << 20) / 5);
    UNTIL(s->loop, s->run.n_got == 1);
    assert_int_equal(added(s, 0)->n_tokens, (15 << 20) / 5);
    submit_tokens(s, 12, (17 << 20) / 5);
    UNTIL(s->loop, s->front.n_down == 1 && s->front.is_up);
    assert_true(s->run.is_up && s->run.n_down == 0);
}

static void frontends_are_told_how_many_gpus_there_are(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    send_gpu_up(s, 1, 1, 4);
    UNTIL(s->loop, s->front.n_gpus == 2);
    Drain drain = DRAIN__INIT;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_DRAIN;
    m.drain = &drain;
    link_send(s->run.link, &m);
    UNTIL(s->loop, s->front.n_gpus == 0);
}

static void a_step_becomes_one_message(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    for (uint64_t id = 1; id <= 3; id++)
        submit(s, id);
    UNTIL(s->loop, s->run.n_got == 3);
    const Request *all[] = {added(s, 0), added(s, 1), added(s, 2)};
    send_step(s, 3, all, 3);
    UNTIL(s->loop, s->front.n_got == 1);
    const Results *r = s->front.got[0]->results;
    assert_int_equal(r->n_tokens, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->tokens[i]->id, i + 1);
        assert_int_equal(r->tokens[i]->index, 0);
        assert_int_equal(r->tokens[i]->tokens[0], 100 + i);
        assert_memory_equal(r->tokens[i]->logprobs.data, "log", 3);
    }
    assert_int_equal(r->n_ends, 1);
    assert_int_equal(r->ends[0]->id, 3);
    assert_int_equal(r->ends[0]->why, END_REASON__LENGTH);
}

/* Tokens that are not the next ones end no request: the link is given up, and who was there goes on when it is back. */
static void what_cannot_be_costs_the_link(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    submit(s, 1);
    submit(s, 2);
    UNTIL(s->loop, s->run.n_got == 2);
    const Request *all[] = {added(s, 0), added(s, 1)};
    send_step(s, 2, all, 2);
    UNTIL(s->loop, s->front.n_got == 1);
    send_step(s, 2, all, 1); /* the first token of 1 once more */
    UNTIL(s->loop, s->run.n_down == 1 && s->run.is_up);
    send_gpu_up(s, 0, 2, 4);
    UNTIL(s->loop, s->run.n_got == 3);
    assert_int_equal(added(s, 2)->id, 1);
    assert_int_equal(added(s, 2)->n_tokens, 4); /* with the token that it has */
    assert_int_equal(s->front.n_got, 1);        /* which nobody has been told of twice */
}

/* Everything that a lost GPU had goes to the other in one message. */
static void what_one_event_causes_is_one_message_per_gpu(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    for (uint64_t id = 1; id <= 3; id++)
        submit(s, id);
    UNTIL(s->loop, s->run.n_got == 3);
    send_gpu_up(s, 1, 2, 4);
    GpuGone gone = GPU_GONE__INIT;
    gone.died = true; /* of none of these: it had not taken them in */
    gone.message = "gone";
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_GONE;
    m.gpu_gone = &gone;
    link_send(s->run.link, &m);
    UNTIL(s->loop, s->run.n_got == 4);
    const Commands *c = s->run.got[3]->commands;
    assert_int_equal(c->gpu, 1);
    assert_int_equal(c->start, 2);
    assert_int_equal(c->n_commands, 3);
}

static void a_cancel_reaches_the_gpu(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    Cancel c = CANCEL__INIT;
    c.id = 1;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_CANCEL;
    m.cancel = &c;
    link_send(s->front.link, &m);
    UNTIL(s->loop, s->run.n_got == 2);
    const Command *got = s->run.got[1]->commands->commands[0];
    assert_int_equal(got->what_case, COMMAND__WHAT_CANCEL);
    assert_int_equal(got->cancel->attempt, added(s, 0)->attempt);
}

static void a_frontend_that_goes_takes_its_requests_along(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    link_free(s->front.link);
    s->front.link = NULL;
    UNTIL(s->loop, s->run.n_got == 2);
    assert_int_equal(s->run.got[1]->commands->commands[0]->what_case, COMMAND__WHAT_CANCEL);
}

/* As after a network that swallowed the end of the first one. */
static void a_new_link_of_the_same_process_replaces_the_old(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    peer again = {0};
    link_options o = options_of(HELLO__ROLE__FRONTEND, 1, "m-1");
    net_link *l = connect_as(s, &again, &o);
    UNTIL(s->loop, again.is_up && s->front.n_down == 1);
    assert_non_null(strstr(s->front.why, "replaced"));
    link_free(s->front.link); /* it would come back and replace the other */
    s->front.link = NULL;
    UNTIL(s->loop, s->run.n_got == 2);
    assert_int_equal(s->run.got[1]->commands->commands[0]->what_case, COMMAND__WHAT_CANCEL);
    link_free(l);
    forget(&again);
}

/* It keeps trying, in vain. */
static void expect_refusal(scene *s, Hello__Role role, const char *model)
{
    peer other = {0};
    link_options o = options_of(role, 3, model);
    net_link *l = connect_as(s, &other, &o);
    PASS(s->loop, 0.3);
    assert_int_equal(other.n_up, 0);
    link_free(l);
}

static void another_model_is_refused(void **state)
{
    scene *s = *state;
    expect_refusal(s, HELLO__ROLE__RUNNER, "m-2");
    expect_refusal(s, HELLO__ROLE__FRONTEND, "m-2");
    assert_int_equal(s->front.n_down + s->run.n_down, 0);
}

/* A runner of another model that was there first does not keep the others out, and goes when it is known to be wrong.
 */
static void the_frontends_decide_the_model(void **state)
{
    scene *s = *state;
    link_free(s->front.link);
    link_free(s->run.link);
    s->front = s->run = (peer){0};
    sched_server_free(s->server);
    s->server = start_server(s->loop);
    peer wrong = {0};
    link_options o = options_of(HELLO__ROLE__RUNNER, 3, "m-2");
    net_link *l = connect_as(s, &wrong, &o);
    UNTIL(s->loop, wrong.is_up);
    connect_both(s);
    UNTIL(s->loop, wrong.n_down == 1);
    assert_string_equal(wrong.why, "its model is m-2, but this cluster serves m-1");
    PASS(s->loop, 0.3);
    assert_int_equal(wrong.n_up, 1);
    assert_true(s->front.is_up && s->run.is_up);
    link_free(l);
}

/* Both GPUs go with their link, and requests of the first are not sent to the second on the way. */
static void a_lost_runner_is_lost_as_a_whole(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    send_gpu_up(s, 1, 1, 4);
    peer again = {0};
    link_options o = options_of(HELLO__ROLE__RUNNER, 2, "m-1");
    uint32_t attempt = added(s, 0)->attempt;
    net_link *old = s->run.link;
    forget(&s->run);
    s->run = (peer){.link = connect_as(s, &again, &o)};
    UNTIL(s->loop, again.is_up);
    link_free(old); /* it would come back and replace the other */
    send_gpu_up(s, 0, 1, 4);
    UNTIL(s->loop, again.n_got == 1);
    assert_int_equal(again.got[0]->commands->commands[0]->add->attempt, attempt + 1);
    forget(&again);
    link_free(s->run.link);
    s->run.link = NULL;
}

static void peers_that_send_what_they_should_not_are_dropped(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 0); /* a batch of none */
    UNTIL(s->loop, s->run.n_down == 1);
    UNTIL(s->loop, s->run.n_up == 2);
    send_gpu(s, 0, 1, 4, INT_MAX);
    UNTIL(s->loop, s->run.n_down == 2);
    Drain drain = DRAIN__INIT;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_DRAIN;
    m.drain = &drain;
    link_send(s->front.link, &m);
    UNTIL(s->loop, s->front.n_down == 1);
    assert_string_equal(s->front.why, "a frontend does not send this");
    UNTIL(s->loop, s->front.n_up == 2 && s->run.n_up == 3);
    submit(s, 5);
    send_gpu_up(s, 3, 1, 1);
    UNTIL(s->loop, s->run.n_got == 1);
}

static void steps_of_gpus_that_are_not_there_are_ignored(void **state)
{
    scene *s = *state;
    const Request r = {.id = 1, .attempt = 1}, *of[] = {&r};
    send_step(s, 1, of, 1);
    send_gpu_up(s, 0, 1, 4);
    send_step(s, 0, of, 1);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    assert_int_equal(s->front.n_got, 0);
}

static void the_signals_tell_how_it_stands(void **state)
{
    scene *s = *state;
    buf text = {0};
    sched_server_write_signals(s->server, &text);
    assert_non_null(strstr(text.data, "\"scale_up\": true"));
    send_gpu_up(s, 0, 1, 4);
    send_gpu_up(s, 1, 1, 4);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    buf_clear(&text);
    sched_server_write_signals(s->server, &text);
    assert_non_null(strstr(text.data, "\"scale_up\": false"));
    assert_non_null(strstr(text.data, "\"running\": 1"));
    assert_non_null(strstr(text.data, "GPU-b"));
    buf_clear(&text);
    sched_server_write_metrics(s->server, &text);
    assert_non_null(strstr(text.data, "\npunica_gpus 2\n"));
    assert_non_null(strstr(text.data, "\npunica_requests_submitted_total 1\n"));
    assert_non_null(strstr(text.data, "punica_gpu_requests_running{uuid=\"GPU-b\"} 1"));
    buf_free(&text);
}

/* Steps of one row that take so long, of a GPU that has nothing else to do. */
static void send_pace(scene *s, uint32_t gpu, int n, uint64_t micros)
{
    Step step = STEP__INIT;
    step.gpu = gpu;
    step.pages_free = 100;
    step.rows = step.context = 1;
    step.micros = micros;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_STEP;
    m.step = &step;
    for (int i = 0; i < n; i++)
        link_send(s->run.link, &m);
}

static void a_slow_gpu_is_left_and_probed_until_it_is_well(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    send_gpu_up(s, 1, 2, 4);
    UNTIL(s->loop, s->run.n_probes == 2); /* each when it comes */
    send_pace(s, 0, 16, 5000);
    send_pace(s, 1, 16, 5000);
    send_pace(s, 1, 4, 600000);
    UNTIL(s->loop, sched_server_stats(s->server).n_slow == 1);
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    assert_int_equal(s->run.got[0]->commands->gpu, 0); /* though GPU-b is preferred */
    UNTIL(s->loop, s->run.n_probes == 4);
    send_pace(s, 1, 64, 5000);
    UNTIL(s->loop, sched_server_stats(s->server).n_slow == 0);
}

static void send_gpu_gone(scene *s, uint32_t gpu, bool from_outside)
{
    GpuGone gone = GPU_GONE__INIT;
    gone.gpu = gpu;
    gone.died = true;
    gone.from_outside = from_outside;
    gone.message = "it is gone";
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_GONE;
    m.gpu_gone = &gone;
    link_send(s->run.link, &m);
}

/* Whoever crashed is tried out before it is given a request; whoever was killed by others need not be. */
static void a_gpu_that_crashed_is_on_probation(void **state)
{
    scene *s = *state;
    send_gpu_up(s, 0, 1, 4);
    send_gpu_up(s, 1, 2, 4);
    send_gpu_gone(s, 1, true);
    send_gpu_up(s, 1, 2, 4);
    UNTIL(s->loop, s->run.n_probes == 3);
    assert_int_equal(sched_server_stats(s->server).n_slow, 0);
    for (int i = 0; i < 2; i++) { /* the second time before it has shown anything */
        send_gpu_gone(s, 1, i > 0);
        send_gpu_up(s, 1, 2, 4);
        UNTIL(s->loop, s->run.n_probes >= 4 + i && sched_server_stats(s->server).n_gpus == 2);
        assert_int_equal(sched_server_stats(s->server).n_slow, 1);
    }
    submit(s, 1);
    UNTIL(s->loop, s->run.n_got == 1);
    assert_int_equal(s->run.got[0]->commands->gpu, 0); /* though GPU-b is preferred */
    send_pace(s, 1, 16, 5000);
    UNTIL(s->loop, sched_server_stats(s->server).n_slow == 0);
    send_gpu_gone(s, 1, true);
    send_gpu_up(s, 1, 2, 4);
    UNTIL(s->loop, sched_server_stats(s->server).n_gpus == 2);
    assert_int_equal(sched_server_stats(s->server).n_slow, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_reaches_the_gpu_as_it_was_submitted),
        TEST(a_request_that_is_too_large_for_a_message_hurts_its_frontend_only),
        TEST(frontends_are_told_how_many_gpus_there_are),
        TEST(a_step_becomes_one_message),
        TEST(what_cannot_be_costs_the_link),
        TEST(what_one_event_causes_is_one_message_per_gpu),
        TEST(a_cancel_reaches_the_gpu),
        TEST(a_frontend_that_goes_takes_its_requests_along),
        TEST(a_new_link_of_the_same_process_replaces_the_old),
        TEST(another_model_is_refused),
        TEST(the_frontends_decide_the_model),
        TEST(a_lost_runner_is_lost_as_a_whole),
        TEST(peers_that_send_what_they_should_not_are_dropped),
        TEST(steps_of_gpus_that_are_not_there_are_ignored),
        TEST(the_signals_tell_how_it_stands),
        TEST(a_slow_gpu_is_left_and_probed_until_it_is_well),
        TEST(a_gpu_that_crashed_is_on_probation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
