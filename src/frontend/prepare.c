/* prepare.c - see prepare.h */
#include "frontend/prepare.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/queue.h"
#include "frontend/conversation.h"

/* The conversation as the model's template writes it. */
static int chat_text(const prepare_tools *w, const api_request *r, buf *out, err *e)
{
    const chat_template *t = templates_take(w->chat, r->model, e);
    if (!t)
        return -1;
    chat_input in = r->conversation;
    json_t *messages = conversation_for(t, in.messages);
    in.messages = messages;
    int rc = chat_template_write(t, &in, time(NULL), out, e);
    json_decref(messages);
    templates_give(w->chat, t);
    return rc;
}

static int chat_tokens(const prepare_tools *w, const api_request *r, ids *out, api_error *e)
{
    buf text = {0};
    int rc = chat_text(w, r, &text, &e->what);
    if (rc == 0)
        rc = tokenizer_encode(w->t, text.data, text.len, false, out, &e->what);
    buf_free(&text);
    return rc ? api_error_bad(e, "messages") : 0;
}

static int prompt_tokens(const prepare_tools *w, const api_prompt *p, ids *out, api_error *e)
{
    for (size_t i = 0; i < p->n_ids; i++)
        ids_add(out, p->id[i]);
    if (p->text && tokenizer_encode(w->t, p->text, p->n, true, out, &e->what))
        return api_error_bad(e, "prompt");
    return 0;
}

/* What was given, or what the given tokens stand for. */
static void prompt_text(const prepare_tools *w, const api_prompt *p, const ids *x, buf *out)
{
    if (p->text)
        buf_add(out, p->text, p->n);
    else
        tokenizer_decode(w->t, x->items, x->n, true, out);
}

/* As vLLM does it, the beginning goes. */
static void drop_beginning(const prepare_tools *w, const api_request *r, ids *x)
{
    size_t keep = r->truncate < 0 ? (size_t)w->context - 1 : (size_t)r->truncate;
    if (r->truncate == 0 || x->n <= keep)
        return;
    memmove(x->items, x->items + x->n - keep, keep * sizeof *x->items);
    x->n = keep;
}

/* Prompts the engine would refuse are refused here, with the field's name. */
static int check_tokens(const prepare_tools *w, const api_request *r, const ids *x, api_error *e)
{
    const char *field = r->chat ? "messages" : "prompt";
    if (x->n == 0)
        return api_error_set(e, 400, field, NULL, "the prompt is empty");
    if (x->n >= (size_t)w->context)
        return api_error_set(e, 400, field, "context_length_exceeded",
                             "the prompt has %zu tokens; this model's context is %d, for prompt and output together",
                             x->n, w->context);
    for (size_t i = 0; i < x->n; i++)
        if (x->items[i] >= w->vocab)
            return api_error_set(e, 400, field, NULL, "token id %d is outside the vocabulary of %d", x->items[i], w->vocab);
    int room = w->context - (int)x->n;
    if (r->how.min_tokens > room)
        return api_error_set(e, 400, "min_tokens", NULL,
                             "\"min_tokens\" is %d; behind the prompt the context has room for %d tokens",
                             r->how.min_tokens, room);
    return 0;
}

static int encode_all(const prepare_tools *w, prepared *p, api_error *e)
{
    const api_request *r = &p->asked;
    int n = r->chat ? 1 : r->n_prompts;
    p->prompt = XNEW_ARRAY(ids, (size_t)n);
    p->echo = XNEW_ARRAY(buf, (size_t)n);
    while (p->n_prompts < n) {
        ids *x = &p->prompt[p->n_prompts++];
        if (r->chat ? chat_tokens(w, r, x, e) : prompt_tokens(w, &r->prompt[p->n_prompts - 1], x, e))
            return -1;
        drop_beginning(w, r, x);
        if (check_tokens(w, r, x, e))
            return -1;
        if (r->echo)
            prompt_text(w, &r->prompt[p->n_prompts - 1], x, &p->echo[p->n_prompts - 1]);
    }
    return 0;
}

prepared *prepare(const prepare_tools *tools, bool chat, const char *body, size_t n)
{
    prepared *p = XNEW(prepared);
    p->failed = api_request_parse(&p->asked, chat, body, n, &p->error) ||
                constrain(&p->asked, tools->t, tools->vocab, tools->grammars, &p->error) || encode_all(tools, p, &p->error);
    api_request_drop_input(&p->asked);
    return p;
}

void prepared_drop_prompts(prepared *p)
{
    for (int i = 0; i < p->n_prompts; i++) {
        ids_free(&p->prompt[i]);
        buf_free(&p->echo[i]);
    }
    free(p->prompt);
    free(p->echo);
    p->prompt = NULL;
    p->echo = NULL;
    p->n_prompts = 0;
}

void prepared_free(prepared *p)
{
    if (!p)
        return;
    prepared_drop_prompts(p);
    api_request_deinit(&p->asked);
    free(p);
}

/* The thread. Between the two queues it reads chat and body and writes the result; done and ctx are the loop's all along. */

struct prepare_job {
    bool chat;
    char *body;                 /* [n]; NULL: it is prepared, and the adapter's version is wanted */
    size_t n;
    prepared *result;
    void (*done)(void *ctx, prepared *result);      /* NULL: abandoned */
    void *ctx;
};

struct preparer {
    prepare_tools tools;
    queue *todo, *ready;
    int wake;                   /* eventfd: something is ready */
    struct event *awake;
    pthread_t thread;
};

/* Whoever loads the adapter will say what is wrong with files that cannot be read. */
static void find_version(const prepare_tools *tools, prepared *p)
{
    err e;
    p->has_version = versions_read(tools->adapters, p->asked.model, &p->version, &e) == 0;
}

static void *work(void *ctx)
{
    preparer *p = ctx;
    for (prepare_job *j; (j = queue_pop(p->todo));) {
        if (j->body)
            j->result = prepare(&p->tools, j->chat, j->body, j->n);
        else
            find_version(&p->tools, j->result);
        queue_push(p->ready, j);
        CHECK(eventfd_write(p->wake, 1) == 0);
    }
    return NULL;
}

static void job_free(prepare_job *j)
{
    free(j->body);
    free(j);
}

static void on_ready(evutil_socket_t fd, short what, void *ctx)
{
    (void)what;
    preparer *p = ctx;
    eventfd_t n;
    eventfd_read(fd, &n);
    for (prepare_job *j; (j = queue_try_pop(p->ready));) {
        if (j->done)
            j->done(j->ctx, j->result);
        else
            prepared_free(j->result);
        job_free(j);
    }
}

preparer *preparer_new(struct event_base *loop, const prepare_tools *tools)
{
    preparer *p = XNEW(preparer);
    *p = (preparer){.tools = *tools, .todo = queue_new(), .ready = queue_new(), .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    CHECK(p->wake >= 0);
    p->awake = event_new(loop, p->wake, EV_READ | EV_PERSIST, on_ready, p);
    event_add(p->awake, NULL);
    CHECK(pthread_create(&p->thread, NULL, work, p) == 0);
    return p;
}

void preparer_free(preparer *p)
{
    if (!p)
        return;
    prepare_job *j;
    while ((j = queue_try_pop(p->todo))) {
        prepared_free(j->result);
        job_free(j);
    }
    queue_close(p->todo);
    pthread_join(p->thread, NULL);
    while ((j = queue_try_pop(p->ready))) {
        prepared_free(j->result);
        job_free(j);
    }
    event_free(p->awake);
    close(p->wake);
    queue_free(p->todo);
    queue_free(p->ready);
    free(p);
}

prepare_job *preparer_start(preparer *p, bool chat, const char *body, size_t n, void (*done)(void *ctx, prepared *result),
                            void *ctx)
{
    prepare_job *j = XNEW(prepare_job);
    *j = (prepare_job){.chat = chat, .body = xmalloc(n + 1), .n = n, .done = done, .ctx = ctx};
    memcpy(j->body, body, n);
    queue_push(p->todo, j);
    return j;
}

prepare_job *preparer_find_version(preparer *w, prepared *p, void (*done)(void *ctx, prepared *result), void *ctx)
{
    prepare_job *j = XNEW(prepare_job);
    *j = (prepare_job){.result = p, .done = done, .ctx = ctx};
    queue_push(w->todo, j);
    return j;
}

void prepare_job_abandon(prepare_job *j)
{
    j->done = NULL;
}
