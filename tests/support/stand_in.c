/* stand_in.c - see stand_in.h */
#include "support/stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "frontend/frontend.h"
#include "support/http_client.h"
#include "support/test.h"

/* Suppresses a false report of TSan: client and server share this process, so a descriptor that one has closed may
 * become the other's next, and TSan does not see that libevent is done with it by then. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:epoll_ctl\n";
}

static const char *const adapters[] = {"parrot", "flood", "burst",  "mute",   "full",
                                       "late",   "large", "failed", "deadly", "gap"};

/* A request for which the stand-in has more tokens to send. */
typedef struct playing {
    uint64_t id;
    uint32_t *token;
    size_t n, n_prompt, max, next; /* next: index of the next token of output */
    bool flood;
    struct playing *after;
} playing;

stand_in_counts stand_in_seen;

static struct {
    event_loop *loop;
    link_listener *listener;
    net_link *link;
    frontend *f;
    playing *list;
    struct event *turn;
    int quit[2];
    pthread_t thread;
    char dir[64];
} it;

static void send_message(Results *r)
{
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_RESULTS;
    m.results = r;
    link_send(it.link, &m);
}

static void send_results(Tokens *t, End *end)
{
    Results r = RESULTS__INIT;
    r.tokens = &t;
    r.n_tokens = t != NULL;
    r.ends = &end;
    r.n_ends = end != NULL;
    send_message(&r);
}

static void forget(uint64_t id)
{
    for (playing **p = &it.list; *p; p = &(*p)->after)
        if ((*p)->id == id) {
            playing *gone = *p;
            *p = gone->after;
            free(gone->token);
            free(gone);
            return;
        }
}

/* The message that is being built: its tokens, and the ends of requests. */
static struct {
    Tokens *t;
    End *end;
    size_t n, cap, n_ends, ends_cap;
} step;

static void play(playing *p)
{
    step.t = xgrow(step.t, &step.cap, step.n + 1, sizeof *step.t);
    Tokens *t = &step.t[step.n++];
    tokens__init(t);
    t->id = p->id;
    t->index = (uint32_t)p->next;
    t->tokens = &p->token[p->next % p->n_prompt];
    t->n_tokens = 1;
    p->next++;
    stand_in_seen.n_played++;
    if (p->next < p->max)
        return;
    step.end = xgrow(step.end, &step.ends_cap, step.n_ends + 1, sizeof *step.end);
    End *end = &step.end[step.n_ends++];
    end__init(end);
    end->id = p->id;
    end->why = END_REASON__LENGTH;
}

static void send_step(void)
{
    Results r = RESULTS__INIT;
    r.tokens = XNEW_ARRAY(Tokens *, step.n + 1);
    r.ends = XNEW_ARRAY(End *, step.n_ends + 1);
    while (r.n_tokens < step.n) {
        r.tokens[r.n_tokens] = &step.t[r.n_tokens];
        r.n_tokens++;
    }
    while (r.n_ends < step.n_ends) {
        r.ends[r.n_ends] = &step.end[r.n_ends];
        r.n_ends++;
    }
    if (r.n_tokens)
        send_message(&r);
    while (step.n_ends)
        forget(step.end[--step.n_ends].id);
    step.n = 0;
    free(r.tokens);
    free(r.ends);
}

/* Sends one message for all requests at a time, as the scheduler does; one of them has two tokens of each. */
static void on_turn(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
    if (atomic_exchange(&stand_in_seen.drop, 0) && it.link)
        link_drop(it.link, "the test wants it");
    for (int i = 0; i < 200 && it.list && it.link; i++) {
        for (playing *p = it.list; p; p = p->after)
            if ((i < 5 || p->flood) && p->next < p->max)
                play(p);
        if (i != 1)
            send_step();
    }
    send_step();
}

/* Sends all tokens in one message, each with 20 alternatives as logprobs. */
static void burst(const Request *r)
{
    TopLogprob likely = TOP_LOGPROB__INIT, *top[20];
    Logprobs p = LOGPROBS__INIT;
    LogprobList all = LOGPROB_LIST__INIT;
    Tokens t = TOKENS__INIT;
    End end = END__INIT;
    t.id = end.id = r->id;
    t.n_tokens = all.n_tokens = r->max_tokens;
    t.tokens = XNEW_ARRAY(uint32_t, t.n_tokens);
    all.tokens = XNEW_ARRAY(Logprobs *, t.n_tokens);
    p.top = top;
    p.n_top = 20;
    for (size_t i = 0; i < p.n_top; i++)
        top[i] = &likely;
    for (size_t i = 0; i < t.n_tokens; i++) {
        t.tokens[i] = r->tokens[i % r->n_prompt];
        all.tokens[i] = &p;
    }
    t.logprobs.len = logprob_list__get_packed_size(&all);
    t.logprobs.data = xmalloc(t.logprobs.len);
    logprob_list__pack(&all, t.logprobs.data);
    end.why = END_REASON__LENGTH;
    send_results(&t, &end);
    free(t.tokens);
    free(t.logprobs.data);
    free(all.tokens);
}

static void on_submit(const Request *r)
{
    static const char *const ends[] = {[END_REASON__FAILED] = "failed",
                                       [END_REASON__QUEUE_FULL] = "full",
                                       [END_REASON__TOO_LATE] = "late",
                                       [END_REASON__TOO_LARGE] = "large",
                                       [END_REASON__KILLS_WORKERS] = "deadly"};
    stand_in_seen.n_submits++;
    stand_in_seen.n_resubmits += r->n_tokens > r->n_prompt;
    stand_in_seen.n_again += r->again;
    for (uint32_t why = END_REASON__FAILED; why <= END_REASON__KILLS_WORKERS; why++)
        if (strcmp(r->adapter, ends[why]) == 0) {
            End end = END__INIT;
            end.id = r->id;
            end.why = why;
            end.message = (char *)(why == END_REASON__TOO_LARGE ? "it does not fit" : "");
            end.retry_after = why == END_REASON__QUEUE_FULL ? 3.5 : 0;
            send_results(NULL, &end);
            return;
        }
    if (strcmp(r->adapter, "burst") == 0)
        burst(r);
    if (strcmp(r->adapter, "burst") == 0 || strcmp(r->adapter, "mute") == 0)
        return;
    playing *p = XNEW(playing);
    *p = (playing){.id = r->id,
                   .n = r->n_tokens,
                   .n_prompt = r->n_prompt,
                   .max = r->max_tokens,
                   .next = r->n_tokens - r->n_prompt,
                   .flood = strcmp(r->adapter, "flood") == 0,
                   .after = it.list};
    p->token = XNEW_ARRAY(uint32_t, p->n);
    memcpy(p->token, r->tokens, p->n * sizeof *p->token);
    if (strcmp(r->adapter, "gap") == 0 && !stand_in_seen.gap_done && p->next == 0) {
        stand_in_seen.gap_done = 1;
        p->next = 1;
    }
    it.list = p;
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)ctx;
    (void)l;
    if (m->what_case == MESSAGE__WHAT_SUBMIT) {
        on_submit(m->submit);
    } else {
        assert(m->what_case == MESSAGE__WHAT_CANCEL);
        stand_in_seen.n_cancels++;
        forget(m->cancel->id);
    }
}

static void on_up(void *ctx, net_link *l, const Hello *hello)
{
    (void)ctx;
    (void)hello;
    it.link = l;
    stand_in_seen.n_ups++;
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)ctx;
    (void)l;
    (void)why;
    it.link = NULL;
    while (it.list)
        forget(it.list->id);
}

static void on_quit(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
    event_base_loopbreak(it.loop->events);
}

static void *run_loop(void *ctx)
{
    event_base_dispatch(it.loop->events);
    return ctx;
}

void stand_in_add_adapter(const char *name)
{
    char *dir = path_join(it.dir, name), *config = path_join(dir, "adapter_config.json");
    assert_int_equal(mkdir(dir, 0700), 0);
    fclose(fopen(config, "w"));
    free(config);
    free(dir);
}

const char *stand_in_adapters_dir(void)
{
    return it.dir;
}

static void make_adapters(void)
{
    strcpy(it.dir, "/tmp/test_frontend_XXXXXX");
    assert_non_null(mkdtemp(it.dir));
    for (size_t i = 0; i < sizeof adapters / sizeof adapters[0]; i++)
        stand_in_add_adapter(adapters[i]);
}

int stand_in_start(void **state)
{
    (void)state;
    err e;
    make_adapters();
    log_set_level(LOG_ERROR);
    it.loop = event_loop_new();
    link_options link = link_options_default();
    static const credentials secret = {.secret = {"s"}};
    link.own = &secret;
    link.role = HELLO__ROLE__SCHEDULER;
    link.name = "stand-in";
    const link_events events = {.up = on_up, .message = on_message, .down = on_down};
    it.listener = link_listen(&it.loop->base, "127.0.0.1:0", &link, &events, &e);
    assert_non_null(it.listener);
    static const int eos[] = {1};
    frontend_options o = frontend_options_default();
    o.listen = "127.0.0.1:0";
    o.scheduler = link_listener_address(it.listener);
    o.link.own = &secret;
    o.link.model = "demo";
    o.model_dir = TEST_DATA "/../demo/model";
    o.model_name = "base";
    o.adapters_dir = it.dir;
    o.context = 1024;
    o.vocab = 1536;
    o.eos = eos;
    o.n_eos = 1;
    o.max_body = 100000;
    o.client_timeout = 2;
    o.keep_alive = 1;
    o.send_buffer = 4096;
    o.threads = 4;
    it.f = frontend_new(it.loop, &o, &e);
    if (!it.f)
        fail_msg("%s", e.msg);
    http_client_set_server(frontend_address(it.f));
    assert_int_equal(pipe(it.quit), 0);
    event_base_once(it.loop->events, it.quit[0], EV_READ, on_quit, NULL, NULL);
    it.turn = event_new(it.loop->events, -1, EV_PERSIST, on_turn, NULL);
    event_add(it.turn, &(struct timeval){.tv_usec = 1000});
    return pthread_create(&it.thread, NULL, run_loop, NULL);
}

int stand_in_stop(void **state)
{
    (void)state;
    assert_int_equal(write(it.quit[1], "", 1), 1);
    pthread_join(it.thread, NULL);
    frontend_free(it.f);
    link_listener_free(it.listener);
    while (it.list)
        forget(it.list->id);
    free(step.t);
    free(step.end);
    event_free(it.turn);
    event_loop_free(it.loop);
    char *command = xasprintf("rm -r %s", it.dir);
    int rc = system(command);
    free(command);
    close(it.quit[0]);
    close(it.quit[1]);
    return rc;
}
