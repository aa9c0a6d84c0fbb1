/* call_end.c - the end of a call, of whatever kind: the last bytes, the counts, the line in the log */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "frontend/call_state.h"

static void call_free(call *c)
{
    for (int i = 0; i < c->n_choices; i++) {
        call_count_tokens(c, &c->choice[i]); /* tokens may have come with what ended another choice */
        call_close_choice(c, &c->choice[i]);
        answer_deinit(&c->choice[i].a);
    }
    free(c->choice);
    free(c->unbilled);
    tenant_release(c->who);
    loop_timer_free(c->quiet);
    if (c->events)
        c->shape->stream_free(c->events);
    buf_free(&c->text);
    if (c->preparing)
        prepare_job_abandon(c->preparing);
    if (c->fetching)
        fetches_forget(c->fetching);
    charged_buf_free(&c->body);
    prepared_free(c->p);
    budget_give(c->memory, c->taken);
    c->s->counts->live_calls--;
    free(c);
}

api_usage call_usage(const call *c)
{
    api_usage u = {.prompt = c->prompt_tokens, .cached = c->cached_tokens};
    for (int i = 0; i < c->n_choices; i++)
        u.completion += c->choice[i].a.n_tokens;
    for (int i = 0; i < c->n_choices; i++)
        u.reasoning += c->choice[i].a.reasoning_tokens;
    return u;
}

/* Counts the call in the metrics and writes its line of the access log. */
static void count(call *c, int status)
{
    static const char *const kinds[] = {
        [CATALOG_NOTHING] = "none", [CATALOG_BASE] = "base", [CATALOG_ADAPTER] = "adapter"};
    api_usage u = call_usage(c);
    double now = loop_now(c->s->on);
    metrics_count_answer(c->s->counts, c->route, kinds[c->kind], status);
    if (c->n_choices)
        metrics_count_model(c->s->counts, prepared_model(c->p), u.prompt, u.completion);
    access_log_write(c->s->log, now,
                     &(access_line){.method = "POST",
                                    .path = c->route,
                                    .status = status,
                                    .client = c->client,
                                    .key = c->who ? tenant_name(c->who) : NULL,
                                    .adapter = c->kind == CATALOG_NOTHING || !c->p ? NULL : prepared_model(c->p),
                                    .prompt = c->n_choices ? u.prompt : -1,
                                    .output = c->n_choices ? u.completion : -1,
                                    .first = c->first ? c->first - c->start : -1,
                                    .total = now - c->start});
}

static void count_loss(call *c, client_loss why)
{
    if (why == CLIENT_DOES_NOT_READ) {
        log_info("frontend: %s is cut off: its client does not read", c->name);
        c->s->counts->cut_off++;
    } else {
        c->s->counts->disconnects++;
    }
    count(c, 499); /* as nginx counts clients that close */
}

void call_on_client_gone(void *ctx, client_loss why)
{
    call *c = ctx;
    count_loss(c, why);
    call_free(c);
}

/* Sends the last bytes of a stream and ends it; counts the call by whether the client has read all. */
static void end_stream(call *c, int status, const buf *last)
{
    reply_add(c->to, last);
    if (reply_end(c->to))
        count(c, status);
    else
        count_loss(c, CLIENT_DOES_NOT_READ);
}

void call_fail(call *c, const api_error *e)
{
    buf text = {0};
    if (c->begun) {
        c->shape->stream_fail(c->events, &text, e);
        end_stream(c, e->status, &text);
    } else {
        count(c, e->status);
        char seconds[16];
        int wait = api_error_retry_after(e);
        snprintf(seconds, sizeof seconds, "%d", wait);
        if (wait)
            reply_add_header(c->to, "Retry-After", seconds);
        c->shape->write_error(e, &text);
        reply_send(c->to, e->status, "application/json", &text, c->s->draining);
    }
    buf_free(&text);
    call_free(c);
}

/* Orders choices by their mean logprob per token, the likeliest first; among equals, by index. */
static int by_likelihood(const void *a, const void *b)
{
    const choice *x = *(const choice *const *)a, *y = *(const choice *const *)b;
    double p = answer_likelihood(&x->a), q = answer_likelihood(&y->a);
    return p != q ? (p < q ? 1 : -1) : x->index - y->index;
}

/* Chooses the n best of each prompt's best_of outputs, numbered anew: all[], of all prompts. Returns how many. */
static int choose_best(call *c, api_choice *all)
{
    const api_request *r = &c->p->asked;
    choice *best[MAX_CHOICES];
    int n = 0;
    for (int first = 0; first < c->n_choices; first += r->best_of) {
        for (int i = 0; i < r->best_of; i++)
            best[i] = &c->choice[first + i];
        if (r->best_of > r->n)
            qsort(best, (size_t)r->best_of, sizeof *best, by_likelihood);
        for (int i = 0; i < r->n; i++, n++) {
            all[n] = answer_all(&best[i]->a);
            all[n].index = n;
        }
    }
    return n;
}

static void send_whole(call *c)
{
    buf body = {0};
    api_usage u = call_usage(c);
    api_choice *all = XNEW_ARRAY(api_choice, (size_t)c->n_choices);
    int n = choose_best(c, all);
    c->shape->write(&body, &c->head, all, n, &u);
    count(c, 200);
    reply_send(c->to, 200, "application/json", &body, c->s->draining);
    free(all);
    buf_free(&body);
}

static void send_last_events(call *c)
{
    api_usage u = call_usage(c);
    buf_clear(&c->text);
    c->shape->stream_end(c->events, &c->text, &u);
    end_stream(c, 200, &c->text);
}

void call_finish(call *c)
{
    if (c->p->asked.stream)
        send_last_events(c);
    else
        send_whole(c);
    call_free(c);
}

void call_send_prompt_tokens(call *c)
{
    buf body = {0};
    for (int i = 0; i < c->p->n_prompts; i++)
        c->prompt_tokens += (int64_t)c->p->prompt[i].n;
    api_usage u = call_usage(c);
    if (c->shape->write_prompt)
        c->shape->write_prompt(&body, c->s->tools.t, &c->p->prompt[0], c->p->context, c->p->asked.token_strings);
    else
        c->shape->write(&body, &c->head, NULL, 0, &u);
    count(c, 200);
    reply_send(c->to, 200, "application/json", &body, c->s->draining);
    buf_free(&body);
    call_free(c);
}
