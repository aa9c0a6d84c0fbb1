/* test_dispatch.c - requests at a scheduler that loses links, repeats itself and leaves things out
 *
 * The scheduler is played by a listening link on the same event loop, which keeps what it is sent and says what a test
 * wants said. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "frontend/dispatch.h"
#include "support/test.h"
#include "support/waiting.h"

enum { MAX_KEPT = 64, MAX_TOKENS = 64, MANY = 40, MODEL_CONTEXT = 1000 };

typedef struct owner owner;

typedef struct {
    event_loop *loop;
    link_listener *listener;
    net_link *link; /* to the frontend; NULL: it is down */
    char address[64];
    dispatch *d;
    atomic_int context;
    Request *submits[MAX_KEPT];
    uint64_t cancels[MAX_KEPT];
    int n_submits, n_cancels, n_residents;
    pthread_t thread; /* of the loop */
} scene;

/* Who has submitted a request. */
struct owner {
    scene *s;
    uint64_t id, cancels; /* cancels: this one after its tokens; 0: none */
    int token[MAX_TOKENS], n_tokens, n_told, n_after;
    int n_logprobs; /* tokens that came with one */
    uint32_t cached;
    bool cached_in_time, ended;
    EndReason why;
    char message[64];
    double retry_after;
};

static void on_tokens(void *ctx, const int *token, int n, Logprobs *const *p)
{
    owner *o = ctx;
    assert_true(n > 0 && o->n_tokens + n <= MAX_TOKENS);
    memcpy(o->token + o->n_tokens, token, (size_t)n * sizeof *token);
    for (int i = 0; i < n && p; i++)
        o->n_logprobs += (int)p[i]->logprob == -token[i];
    o->n_tokens += n;
    o->n_told++;
}

static void after_tokens(void *ctx)
{
    owner *o = ctx;
    assert_true(pthread_equal(pthread_self(), o->s->thread));
    o->n_after++;
    assert_int_equal(o->n_after, o->n_told);
    dispatch_cancel(o->s->d, o->cancels);
}

static void on_cached(void *ctx, uint32_t n)
{
    owner *o = ctx;
    o->cached += n;
    o->cached_in_time = o->n_tokens == 0;
}

static void on_end(void *ctx, EndReason why, const char *message, double retry_after)
{
    owner *o = ctx;
    assert_false(o->ended);
    o->ended = true;
    o->why = why;
    o->retry_after = retry_after;
    snprintf(o->message, sizeof o->message, "%s", message);
}

static const dispatch_events events = {on_tokens, after_tokens, on_cached, on_end};

/* The scheduler's side. */

static void link_is_up(void *ctx, net_link *l, const Hello *hello)
{
    scene *s = ctx;
    assert_int_equal(hello->role, HELLO__ROLE__FRONTEND);
    s->link = l;
}

static void link_is_down(void *ctx, net_link *l, const char *why)
{
    (void)l;
    (void)why;
    ((scene *)ctx)->link = NULL;
}

static void link_message(void *ctx, net_link *l, const Message *m)
{
    scene *s = ctx;
    (void)l;
    if (m->what_case == MESSAGE__WHAT_CANCEL) {
        assert_true(s->n_cancels < MAX_KEPT);
        s->cancels[s->n_cancels++] = m->cancel->id;
        return;
    }
    assert_int_equal(m->what_case, MESSAGE__WHAT_SUBMIT);
    assert_true(s->n_submits < MAX_KEPT);
    size_t n = request__get_packed_size(m->submit);
    uint8_t *copy = xmalloc(n + 1);
    request__pack(m->submit, copy);
    s->submits[s->n_submits++] = request__unpack(NULL, n, copy);
    free(copy);
}

static const credentials secret = {.secret = {"a secret"}};

static void listen_at(scene *s, const char *address)
{
    link_options o = link_options_default();
    o.own = &secret;
    o.role = HELLO__ROLE__SCHEDULER;
    o.name = "scheduler";
    link_events e = {link_is_up, link_message, link_is_down, s};
    err why;
    s->listener = link_listen(&s->loop->base, address, &o, &e, &why);
    if (!s->listener)
        fail_msg("%s", why.msg);
    snprintf(s->address, sizeof s->address, "%s", link_listener_address(s->listener));
}

static void forget_submits(scene *s)
{
    while (s->n_submits)
        request__free_unpacked(s->submits[--s->n_submits], NULL);
}

static void send_to_frontend(scene *s, Message__WhatCase what, void *part)
{
    Message m = MESSAGE__INIT;
    m.what_case = what;
    m.results = part;
    link_send(s->link, &m);
}

static Tokens tokens_of(uint64_t id, uint32_t index, const int *token, size_t n)
{
    Tokens t = TOKENS__INIT;
    t.id = id;
    t.index = index;
    t.tokens = (uint32_t *)token;
    t.n_tokens = n;
    return t;
}

static void send_results(scene *s, Tokens **t, size_t n, End *end)
{
    Results r = RESULTS__INIT;
    r.tokens = t;
    r.n_tokens = n;
    r.ends = &end;
    r.n_ends = end != NULL;
    send_to_frontend(s, MESSAGE__WHAT_RESULTS, &r);
}

static void send_tokens(scene *s, uint64_t id, uint32_t index, const int *token, size_t n)
{
    Tokens t = tokens_of(id, index, token, n), *list = &t;
    send_results(s, &list, 1, NULL);
}

static End end_of(uint64_t id, EndReason why)
{
    End e = END__INIT;
    e.id = id;
    e.why = why;
    e.message = "";
    return e;
}

/* The frontend's side. */

static void on_residents(void *ctx, const Residents *r)
{
    ((scene *)ctx)->n_residents += (int)r->n_adapters;
}

static dispatch *new_dispatch(scene *s, double patience)
{
    err e;
    dispatch_options o = {.scheduler = s->address,
                          .link = link_options_default(),
                          .max_live = MANY,
                          .threads = 3,
                          .patience = patience,
                          .context = &s->context,
                          .residents = on_residents,
                          .residents_ctx = s};
    o.link.own = &secret;
    o.link.name = "frontend";
    o.link.model = "m";
    dispatch *d = dispatch_new(&s->loop->base, &o, &e);
    if (!d)
        fail_msg("%s", e.msg);
    return d;
}

static int setup(void **state)
{
    log_set_level(LOG_ERROR);
    scene *s = XNEW(scene);
    s->loop = event_loop_new();
    s->thread = pthread_self();
    atomic_init(&s->context, MODEL_CONTEXT);
    listen_at(s, "127.0.0.1:0");
    s->d = new_dispatch(s, 60);
    UNTIL(s->loop, s->link && dispatch_is_up(s->d));
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    dispatch_free(s->d);
    link_listener_free(s->listener);
    forget_submits(s);
    event_loop_free(s->loop);
    free(s);
    return 0;
}

static uint64_t submit_more(scene *s, owner *o, dispatch_request r)
{
    static const int prompt[] = {5, 6, 7};
    Sampling sampling = SAMPLING__INIT;
    sampling.seed = 42;
    r.token = prompt;
    r.n_tokens = 3;
    r.max_tokens = r.max_tokens ? r.max_tokens : 20;
    r.sampling = &sampling;
    *o = (owner){.s = s};
    o->id = dispatch_submit(s->d, &r, &events, o);
    return o->id;
}

static uint64_t submit(scene *s, owner *o)
{
    return submit_more(s, o, (dispatch_request){0});
}

/* Submits, and waits until the scheduler has it. */
static void submit_and_wait(scene *s, owner *o)
{
    int n = s->n_submits + 1;
    assert_true(submit(s, o));
    UNTIL(s->loop, s->n_submits == n);
}

static void lose_link(scene *s)
{
    link_drop(s->link, "the test wants it");
    UNTIL(s->loop, !dispatch_is_up(s->d));
}

static void come_back(scene *s)
{
    UNTIL(s->loop, s->link && dispatch_is_up(s->d));
}

static void assert_tokens(const owner *o, const int *token, int n)
{
    assert_int_equal(o->n_tokens, n);
    assert_memory_equal(o->token, token, (size_t)n * sizeof *token);
}

static void a_request_travels_whole(void **state)
{
    scene *s = *state;
    owner o;
    digest version = {.byte = {1, 2, 3}};
    submit_more(s, &o,
                (dispatch_request){.tenant = "acme",
                                   .weight = 3,
                                   .priority = -2,
                                   .adapter = "sql",
                                   .version = &version,
                                   .max_tokens = 9,
                                   .n_to_score = 2});
    UNTIL(s->loop, s->n_submits == 1);
    const Request *r = s->submits[0];
    assert_int_equal(r->id, o.id);
    assert_string_equal(r->tenant, "acme");
    assert_int_equal(r->weight, 3);
    assert_int_equal(r->priority, -2);
    assert_string_equal(r->adapter, "sql");
    assert_int_equal(r->digest.len, DIGEST_BYTES);
    assert_memory_equal(r->digest.data, version.byte, DIGEST_BYTES);
    assert_int_equal(r->n_tokens, 3);
    assert_int_equal(r->tokens[2], 7);
    assert_int_equal(r->n_prompt, 3);
    assert_int_equal(r->max_tokens, 9);
    assert_int_equal(r->n_to_score, 2);
    assert_int_equal(r->n_scored, 0);
    assert_false(r->again);
    assert_true(r->age >= 0 && r->age < 5);
    Sampling *sampling = sampling__unpack(NULL, r->sampling.len, r->sampling.data);
    assert_int_equal(sampling->seed, 42);
    sampling__free_unpacked(sampling, NULL);
}

static void tokens_come_once_and_in_order(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11, 12, 13, 14};
    owner o;
    submit_and_wait(s, &o);
    send_tokens(s, o.id, 0, out, 2);
    send_tokens(s, o.id, 0, out, 2);     /* all of it again */
    send_tokens(s, o.id, 1, out + 1, 3); /* one of it again */
    send_tokens(s, o.id + 1000, 0, out, 1);
    UNTIL(s->loop, o.n_tokens >= 4);
    send_tokens(s, o.id, 4, out + 4, 1);
    UNTIL(s->loop, o.n_tokens >= 5);
    assert_tokens(&o, out, 5);
    assert_int_equal(o.n_told, 3);
    assert_int_equal(o.n_after, 3);
}

static void tokens_twice_in_a_message_are_told_twice(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11, 12};
    owner o;
    submit_and_wait(s, &o);
    Tokens first = tokens_of(o.id, 0, out, 1), second = tokens_of(o.id, 1, out + 1, 2), *both[] = {&first, &second};
    send_results(s, both, 2, NULL);
    UNTIL(s->loop, o.n_tokens == 3);
    assert_tokens(&o, out, 3);
    assert_int_equal(o.n_after, 2); /* after_tokens() has seen that each stood behind its tokens */
}

static void a_gap_loses_the_link_and_not_the_request(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11, 12, 13};
    owner o;
    submit_and_wait(s, &o);
    send_tokens(s, o.id, 0, out, 1);
    UNTIL(s->loop, o.n_tokens == 1);
    forget_submits(s);
    Tokens late = tokens_of(o.id, 2, out + 2, 1), *list = &late;
    End end = end_of(o.id, END_REASON__STOP);
    send_results(s, &list, 1, &end);
    UNTIL(s->loop, dispatch_n_reconnections(s->d) == 1 && s->n_submits == 1);
    assert_false(o.ended); /* the end was of tokens that never came */
    assert_int_equal(o.n_tokens, 1);
    assert_int_equal(s->submits[0]->n_tokens, 4);
    send_tokens(s, o.id, 1, out + 1, 3);
    UNTIL(s->loop, o.n_tokens == 4);
    assert_tokens(&o, out, 4);
}

static void after_a_lost_link_all_are_submitted_again(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11, 12};
    owner o[3];
    for (int i = 0; i < 3; i++)
        submit_and_wait(s, &o[i]);
    send_tokens(s, o[1].id, 0, out, 2);
    UNTIL(s->loop, o[1].n_tokens == 2);
    forget_submits(s);
    lose_link(s);
    owner new_one;
    submit(s, &new_one);
    come_back(s);
    UNTIL(s->loop, s->n_submits == 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s->submits[i]->id, o[i].id); /* by arrival */
        assert_true(s->submits[i]->again);
        assert_int_equal(s->submits[i]->n_prompt, 3);
        assert_int_equal(s->submits[i]->n_tokens, i == 1 ? 5 : 3);
    }
    assert_int_equal(s->submits[1]->tokens[4], 11);
    assert_int_equal(s->submits[3]->id, new_one.id);
    assert_false(s->submits[3]->again);
    send_tokens(s, o[1].id, 2, out + 2, 1);
    UNTIL(s->loop, o[1].n_tokens == 3);
    assert_tokens(&o[1], out, 3);
}

static void scored_tokens_of_the_prompt_are_no_output(void **state)
{
    scene *s = *state;
    static const int scored[] = {6, 7}, out[] = {10};
    owner o;
    submit_more(s, &o, (dispatch_request){.n_to_score = 2});
    UNTIL(s->loop, s->n_submits == 1);
    send_tokens(s, o.id, 0, scored, 1);
    UNTIL(s->loop, o.n_tokens == 1);
    forget_submits(s);
    lose_link(s);
    come_back(s);
    UNTIL(s->loop, s->n_submits == 1);
    assert_int_equal(s->submits[0]->n_scored, 1);
    assert_int_equal(s->submits[0]->n_tokens, 3);
    send_tokens(s, o.id, 1, scored + 1, 1);
    send_tokens(s, o.id, 2, out, 1);
    UNTIL(s->loop, o.n_tokens == 3);
    forget_submits(s);
    lose_link(s);
    come_back(s);
    UNTIL(s->loop, s->n_submits == 1);
    assert_int_equal(s->submits[0]->n_scored, 2);
    assert_int_equal(s->submits[0]->n_tokens, 4);
    assert_int_equal(s->submits[0]->tokens[3], 10);
}

static void many_at_once_are_told_each_its_own(void **state)
{
    scene *s = *state;
    owner o[MANY];
    int out[MANY];
    Tokens t[MANY], *list[MANY];
    for (int i = 0; i < MANY; i++)
        submit(s, &o[i]);
    UNTIL(s->loop, s->n_submits == MANY);
    for (int i = 0; i < MANY; i++) {
        out[i] = 100 + i;
        t[i] = tokens_of(o[i].id, 0, &out[i], 1);
        list[i] = &t[i];
    }
    dispatch_wake(s->d);
    send_results(s, list, MANY, NULL);
    UNTIL(s->loop, o[MANY - 1].n_after == 1);
    for (int i = 0; i < MANY; i++) {
        assert_tokens(&o[i], &out[i], 1);
        assert_int_equal(o[i].n_after, 1);
    }
}

static void after_tokens_another_may_be_cancelled(void **state)
{
    scene *s = *state;
    static const int out[] = {10};
    owner a, b;
    submit_and_wait(s, &a);
    submit_and_wait(s, &b);
    a.cancels = b.id;
    Tokens of_a = tokens_of(a.id, 0, out, 1), of_b = tokens_of(b.id, 0, out, 1), *both[] = {&of_a, &of_b};
    End end = end_of(b.id, END_REASON__LENGTH);
    send_results(s, both, 2, &end);
    UNTIL(s->loop, s->n_cancels == 1);
    assert_int_equal(s->cancels[0], b.id);
    assert_int_equal(a.n_after, 1);
    assert_int_equal(b.n_after, 0);
    assert_false(b.ended);
    assert_int_equal(dispatch_n_live(s->d), 1);
}

static void what_is_cancelled_is_heard_of_no_more(void **state)
{
    scene *s = *state;
    static const int out[] = {10};
    owner o, other;
    submit_and_wait(s, &o);
    submit_and_wait(s, &other);
    dispatch_cancel(s->d, o.id);
    dispatch_cancel(s->d, o.id);
    send_tokens(s, o.id, 0, out, 1);
    send_tokens(s, other.id, 0, out, 1);
    UNTIL(s->loop, s->n_cancels == 1 && other.n_tokens == 1);
    assert_int_equal(s->cancels[0], o.id);
    assert_int_equal(o.n_tokens, 0);
    forget_submits(s);
    lose_link(s);
    dispatch_cancel(s->d, other.id); /* nobody to tell; it is not submitted again */
    owner last;
    submit(s, &last);
    come_back(s);
    UNTIL(s->loop, s->n_submits == 1);
    assert_int_equal(s->submits[0]->id, last.id);
    assert_int_equal(s->n_cancels, 1);
}

static void an_end_is_told_once(void **state)
{
    scene *s = *state;
    owner o;
    submit_and_wait(s, &o);
    End end = end_of(o.id, END_REASON__QUEUE_FULL);
    end.message = "come later";
    end.retry_after = 2.5;
    send_results(s, NULL, 0, &end);
    send_results(s, NULL, 0, &end);
    owner after;
    submit_and_wait(s, &after);
    UNTIL(s->loop, o.ended);
    assert_int_equal(o.why, END_REASON__QUEUE_FULL);
    assert_string_equal(o.message, "come later");
    assert_true(o.retry_after == 2.5);
    assert_int_equal(dispatch_n_live(s->d), 1);
}

static void only_so_many_are_live(void **state)
{
    scene *s = *state;
    owner o[MANY], more;
    for (int i = 0; i < MANY; i++)
        assert_true(submit(s, &o[i]));
    assert_int_equal(submit(s, &more), 0);
    dispatch_cancel(s->d, o[7].id);
    assert_true(submit(s, &more));
    assert_int_equal(dispatch_n_live(s->d), MANY);
}

static void logprobs_are_those_of_the_new_tokens(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11, 12};
    owner o;
    submit_and_wait(s, &o);
    send_tokens(s, o.id, 0, out, 1);
    Logprobs p[3], *each[3];
    LogprobList all = LOGPROB_LIST__INIT;
    for (int i = 0; i < 3; i++) {
        logprobs__init(&p[i]);
        p[i].logprob = (float)-out[i];
        each[i] = &p[i];
    }
    all.tokens = each;
    uint8_t packed[256];
    Tokens t = tokens_of(o.id, 0, out, 3), *list = &t;
    all.n_tokens = 3;
    t.logprobs = (ProtobufCBinaryData){logprob_list__pack(&all, packed), packed};
    send_results(s, &list, 1, NULL);
    UNTIL(s->loop, o.n_tokens == 3);
    assert_int_equal(o.n_logprobs, 2); /* of 11 and 12 */
    all.n_tokens = 1;                  /* fewer than tokens: of which is not known */
    t = tokens_of(o.id, 3, out, 2);
    t.logprobs = (ProtobufCBinaryData){logprob_list__pack(&all, packed), packed};
    send_results(s, &list, 1, NULL);
    UNTIL(s->loop, o.n_tokens == 5);
    assert_int_equal(o.n_logprobs, 2);
}

static void what_was_cached_is_told_before_the_first_token(void **state)
{
    scene *s = *state;
    static const int out[] = {10, 11};
    owner o;
    submit_and_wait(s, &o);
    for (uint32_t i = 0; i < 2; i++) {
        Tokens t = tokens_of(o.id, i, out + i, 1), *list = &t;
        t.cached = 2;
        send_results(s, &list, 1, NULL);
    }
    UNTIL(s->loop, o.n_tokens == 2);
    assert_int_equal(o.cached, 2);
    assert_true(o.cached_in_time);
}

static void the_cluster_says_what_it_can_hold(void **state)
{
    scene *s = *state;
    Cluster c = CLUSTER__INIT;
    c.n_gpus = 2;
    c.max_tokens = 300;
    send_to_frontend(s, MESSAGE__WHAT_CLUSTER, &c);
    UNTIL(s->loop, dispatch_n_gpus(s->d) == 2);
    assert_int_equal(atomic_load(&s->context), 300);
    c.n_gpus = 3;
    c.max_tokens = 5000; /* more than the model */
    send_to_frontend(s, MESSAGE__WHAT_CLUSTER, &c);
    UNTIL(s->loop, dispatch_n_gpus(s->d) == 3);
    assert_int_equal(atomic_load(&s->context), MODEL_CONTEXT);
    lose_link(s);
    assert_int_equal(dispatch_n_gpus(s->d), 0);
}

static void residents_are_handed_on(void **state)
{
    scene *s = *state;
    Residents r = RESIDENTS__INIT;
    Resident one = RESIDENT__INIT, *list[] = {&one, &one};
    r.adapters = list;
    r.n_adapters = 2;
    send_to_frontend(s, MESSAGE__WHAT_RESIDENTS, &r);
    UNTIL(s->loop, s->n_residents == 2);
}

static void what_no_scheduler_sends_loses_the_link(void **state)
{
    scene *s = *state;
    Drain drain = DRAIN__INIT;
    send_to_frontend(s, MESSAGE__WHAT_DRAIN, &drain);
    UNTIL(s->loop, dispatch_n_reconnections(s->d) == 1);
}

static void patience_ends(void **state)
{
    scene *s = *state;
    dispatch_free(s->d);
    link_listener_free(s->listener);
    s->listener = NULL;
    s->d = new_dispatch(s, 0.3);
    owner o[2];
    submit(s, &o[0]);
    submit(s, &o[1]);
    assert_true(dispatch_is_patient(s->d) && !dispatch_is_up(s->d));
    UNTIL(s->loop, o[0].ended && o[1].ended);
    assert_int_equal(o[1].why, END_REASON__TOO_LATE);
    assert_false(dispatch_is_patient(s->d));
    char address[64];
    memcpy(address, s->address, sizeof address);
    listen_at(s, address);
    UNTIL(s->loop, dispatch_is_up(s->d));
    assert_true(dispatch_is_patient(s->d));
    PASS(s->loop, 0.5);
    assert_true(dispatch_is_patient(s->d)); /* the clock does not run while the scheduler is there */
}

static void patience_does_not_run_out_while_the_scheduler_is_there(void **state)
{
    scene *s = *state;
    dispatch_free(s->d);
    s->d = new_dispatch(s, 0.3);
    come_back(s);
    PASS(s->loop, 0.5);
    assert_true(dispatch_is_patient(s->d));
    link_listener_free(s->listener);
    s->listener = NULL;
    UNTIL(s->loop, !dispatch_is_up(s->d));
    assert_true(dispatch_is_patient(s->d));
    UNTIL(s->loop, !dispatch_is_patient(s->d));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_travels_whole),
        TEST(tokens_come_once_and_in_order),
        TEST(tokens_twice_in_a_message_are_told_twice),
        TEST(a_gap_loses_the_link_and_not_the_request),
        TEST(after_a_lost_link_all_are_submitted_again),
        TEST(scored_tokens_of_the_prompt_are_no_output),
        TEST(many_at_once_are_told_each_its_own),
        TEST(after_tokens_another_may_be_cancelled),
        TEST(what_is_cancelled_is_heard_of_no_more),
        TEST(an_end_is_told_once),
        TEST(only_so_many_are_live),
        TEST(logprobs_are_those_of_the_new_tokens),
        TEST(what_was_cached_is_told_before_the_first_token),
        TEST(the_cluster_says_what_it_can_hold),
        TEST(residents_are_handed_on),
        TEST(what_no_scheduler_sends_loses_the_link),
        TEST(patience_ends),
        TEST(patience_does_not_run_out_while_the_scheduler_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
