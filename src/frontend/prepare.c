/* prepare.c - see prepare.h */
#include "frontend/prepare.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "frontend/conversation.h"

#define MAX_JSON ((size_t)64 << 20)  /* bytes of memory that a body may take when it is read */
#define TRIM_AFTER ((size_t)1 << 20) /* bytes of a body after which memory goes back to the system */
#define LONG_SIZE ((size_t)2 << 20)  /* added, in the fair queue, to the size of a body that takes long */

/* Bytes of an adapter's files that are read before it is somebody else's turn. */
#define VERSION_PIECE ((size_t)4 << 20)

/* Clients know the error by this text. */
#define CONTEXT_IS "This model's maximum context length is %d tokens, for prompt and output together. However, "

/* What one body is prepared with. */
typedef struct {
    const prepare_tools *tools;
    const atomic_bool *stop; /* NULL: never */
    int context;
    bool soon; /* others wait for it: what takes long is left for later */
} preparing;

/* Returns whether the output may begin with reasoning: the template mentions it, and the prompt may have opened it. A
 * grammar is one of the whole output: if the prompt has opened reasoning, none follows then. */
static int thinking_of(const api_request *r, const chat_template *t, const buf *prompt)
{
    static const char think[] = "<think>";
    size_t n = prompt->len;
    if (!chat_template_mentions(t, "</think>"))
        return THINKS_NOT;
    while (n > 0 && strchr(" \n", prompt->data[n - 1]))
        n--;
    bool open = r->conversation.add_generation_prompt && n >= strlen(think) &&
                memcmp(prompt->data + n - strlen(think), think, strlen(think)) == 0;
    return !open ? THINKS : r->sampling.grammar_kind != 0 ? THINKS_NOT : THINKS_ALREADY;
}

const char *prepared_model(const prepared *p)
{
    return p->is_registered ? p->what.name : p->asked.model;
}

/* Writes the conversation by the model's template. own: which parts of the text are the template's own. */
static int chat_text(const prepare_tools *w, prepared *p, buf *out, text_spans *own, err *e)
{
    api_request *r = &p->asked;
    const chat_template *t = templates_take(w->chat, prepared_model(p), p->what.dir, e);
    if (!t)
        return -1;
    if (r->tool_choice == CHOICE_AUTO && (r->parts.tools = tools_format_of(t)) == TOOLS_NONE) {
        templates_give(w->chat, t);
        return err_set(e, "this model's chat template shows no way to call \"tools\" that is known here; "
                          "\"tool_choice\" required, or a "
                          "function's name, does without");
    }
    chat_input in = r->conversation;
    json_t *messages = conversation_for(t, in.messages);
    in.messages = messages;
    int rc = chat_template_write(t, &in, (time_t)clock_wall(), out, own, e);
    json_decref(messages);
    if (rc == 0)
        r->parts.thinks = thinking_of(r, t, out);
    templates_give(w->chat, t);
    return rc;
}

/* Tokenizes a text, up to twice the context, so that the error says how long a prompt is that is somewhat too long.
 * own: where special tokens may stand in a conversation; NULL: it is a prompt, which may have them anywhere. */
static int encode(const preparing *w, const char *text, size_t n, const text_spans *own, bool add_special,
                  const char *field, ids *out, api_error *e)
{
    const encode_limits l = {.max_ids = 2 * (size_t)w->context, .stop = w->stop, .own = own};
    int rc = tokenizer_encode_within(w->tools->t, text, n, add_special, &l, out, &e->what);
    if (rc > 0)
        return api_error_set(e, 400, field, "context_length_exceeded",
                             CONTEXT_IS "your prompt has more than %zu tokens", w->context, l.max_ids);
    return rc ? api_error_bad(e, field) : 0;
}

static int chat_tokens(const preparing *w, prepared *p, ids *out, api_error *e)
{
    const api_request *r = &p->asked;
    buf text = {0};
    text_spans own = {0};
    int rc = chat_text(w->tools, p, &text, &own, &e->what);
    if (rc)
        api_error_bad(e, r->tool_choice == CHOICE_AUTO && r->parts.tools == TOOLS_NONE ? "tools" : "messages");
    if (rc == 0)
        rc = encode(w, text.data, text.len, &own, r->add_special, "messages", out, e);
    text_spans_free(&own);
    buf_free(&text);
    return rc;
}

static int prompt_tokens(const preparing *w, const api_request *r, const api_prompt *p, ids *out, api_error *e)
{
    for (size_t i = 0; i < p->n_ids; i++)
        ids_add(out, p->id[i]);
    return p->text ? encode(w, p->text, p->n, NULL, r->add_special, "prompt", out, e) : 0;
}

/* Appends a prompt's text, as it was given or decoded from the tokens that were. */
static void prompt_text(const prepare_tools *w, const api_prompt *p, const ids *x, buf *out)
{
    if (p->text)
        buf_add(out, p->text, p->n);
    else
        tokenizer_decode(w->t, x->items, x->n, true, out);
}

/* Truncates a prompt at its beginning, as vLLM does. */
static void drop_beginning(const preparing *w, const api_request *r, ids *x)
{
    size_t keep = r->truncate < 0 ? (size_t)w->context - 1 : (size_t)r->truncate;
    if (r->truncate == 0 || x->n <= keep)
        return;
    memmove(x->items, x->items + x->n - keep, keep * sizeof *x->items);
    x->n = keep;
}

static int check_ids(const preparing *w, const char *field, const ids *x, api_error *e)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->items[i] >= w->tools->vocab)
            return api_error_set(e, 400, field, NULL, "token id %d is outside the vocabulary of %d", x->items[i],
                                 w->tools->vocab);
    return 0;
}

/* Refuses prompts that the engine would refuse, naming the field. */
static int check_tokens(const preparing *w, const api_request *r, const ids *x, api_error *e)
{
    const char *field = r->chat ? "messages" : "prompt";
    if (r->only_prompt)
        return check_ids(w, "tokens", x, e);
    if (x->n == 0)
        return api_error_set(e, 400, field, NULL, "the prompt is empty");
    if (x->n >= (size_t)w->context)
        return api_error_set(e, 400, field, "context_length_exceeded",
                             CONTEXT_IS "your prompt has %zu tokens, and there must be room for one more", w->context,
                             x->n);
    if (check_ids(w, field, x, e))
        return -1;
    int room = w->context - (int)x->n;
    if (r->sampling.min_tokens > room)
        return api_error_set(e, 400, "min_tokens", NULL,
                             "\"min_tokens\" is %d; behind the prompt the context has room for %d tokens",
                             r->sampling.min_tokens, room);
    return 0;
}

static int encode_all(const preparing *w, prepared *p, api_error *e)
{
    api_request *r = &p->asked;
    int n = r->chat ? 1 : r->n_prompts;
    p->prompt = XNEW_ARRAY(ids, (size_t)n);
    p->echo = XNEW_ARRAY(buf, (size_t)n);
    while (p->n_prompts < n) {
        ids *x = &p->prompt[p->n_prompts++];
        if (r->chat ? chat_tokens(w, p, x, e) : prompt_tokens(w, r, &r->prompt[p->n_prompts - 1], x, e))
            return -1;
        drop_beginning(w, r, x);
        if (check_tokens(w, r, x, e))
            return -1;
        if (r->echo)
            prompt_text(w->tools, &r->prompt[p->n_prompts - 1], x, &p->echo[p->n_prompts - 1]);
    }
    return 0;
}

static int translate(const api_shape *shape, json_t *body, char **repeated, api_error *e)
{
    if (!json_is_object(body))
        return api_error_set(e, 400, NULL, NULL, "the body must be a JSON object");
    if (shape->translate(body, repeated, e) == 0)
        return 0;
    free(*repeated);
    return -1;
}

static int read_body(prepared *p, const preparing *w, const api_shape *shape, const char *body, size_t n, api_error *e)
{
    bool too_large;
    json_t *input = json_read_within(body, n, MAX_JSON, w->stop, &too_large, &e->what);
    if (too_large)
        return api_error_set(e, 413, NULL, "body_too_large",
                             "the body takes more than %zu MB of memory when it is read", MAX_JSON >> 20);
    if (!input)
        return api_error_bad(e, NULL);
    char *repeated = NULL;
    if (shape->translate && translate(shape, input, &repeated, e)) {
        json_decref(input);
        return -1;
    }
    bool chat = shape->write_prompt ? json_member(input, "messages") != NULL : shape->chat;
    int rc = api_request_take(&p->asked, chat, input, w->tools->defaults, e);
    p->asked.only_prompt = shape->write_prompt != NULL;
    if (rc)
        free(repeated);
    else
        p->asked.repeated = repeated;
    return rc;
}

/* Finds the model. Called before templates or tokens are looked at: an error must not reveal anything of a model that
 * the client may not use. The version of a registered name is settled here for the whole request. */
static int check_model(const prepare_tools *tools, prepared *p, const model_view *seen, api_error *e)
{
    const api_request *r = &p->asked;
    bool is_unnamed = r->only_prompt && !*r->model;
    p->is_registered =
        !is_unnamed && tools->models && catalog_lookup(tools->models, model_view_owner(seen), r->model, &p->what);
    if (!(is_unnamed ? model_view_has_base(seen) : model_view_has(seen, prepared_model(p))))
        return api_error_no_model(e, r->model);
    p->is_missing = p->is_registered && !file_is_dir(p->what.dir);
    return 0;
}

static prepared *begin_preparing(const preparing *w, const model_view *seen, const api_shape *shape, const char *body,
                                 size_t n)
{
    prepared *p = XNEW(prepared);
    p->context = w->context;
    p->failed = read_body(p, w, shape, body, n, &p->error) || check_model(w->tools, p, seen, &p->error);
    return p;
}

/* Prepares the rest: constraints and tokens. NULL: it would take long. */
static prepared *go_on(const preparing *w, const model_view *seen, prepared *p)
{
    const prepare_tools *tools = w->tools;
    const constrain_tools c = {.t = tools->t,
                               .vocab = tools->vocab,
                               .known = tools->grammars,
                               .tenant = model_view_owner(seen),
                               .stop = w->stop,
                               .soon = w->soon};
    if (p->is_missing && !p->failed)
        return p;
    int status = p->failed ? -1 : constrain(&p->asked, &c, &p->error);
    if (status > 0) {
        prepared_free(p);
        return NULL;
    }
    p->failed = status || encode_all(w, p, &p->error);
    p->is_missing = p->is_registered && !file_is_dir(p->what.dir); /* it may have been removed meanwhile */
    api_request_drop_input(&p->asked);
    return p;
}

prepared *prepare(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                  size_t n, const atomic_bool *stop)
{
    const preparing w = {tools, stop, atomic_load(tools->context), false};
    return go_on(&w, seen, begin_preparing(&w, seen, shape, body, n));
}

prepared *prepare_soon(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                       size_t n, const atomic_bool *stop)
{
    const preparing w = {tools, stop, atomic_load(tools->context), true};
    return go_on(&w, seen, begin_preparing(&w, seen, shape, body, n));
}

prepared *prepare_at_once(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                          size_t n)
{
    const preparing w = {tools, NULL, atomic_load(tools->context), true};
    prepared *p = begin_preparing(&w, seen, shape, body, n);
    bool slow = !p->failed && !p->is_missing &&
                (constrain_takes_long(&p->asked) ||
                 (p->asked.chat && templates_may_be_own(tools->chat, prepared_model(p), p->what.dir)));
    if (!slow)
        return go_on(&w, seen, p);
    prepared_free(p);
    return NULL;
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
    registered_deinit(&p->what);
    charged_buf_free(&p->body);
    free(p);
}

/* On the threads. Between start and done a job's body and result belong to its thread; done and ctx to the loop all
 * along. */

struct prepare_job {
    task t;       /* first */
    preparer *of; /* borrowed */
    bool takes_long;
    const api_shape *shape;
    model_view *seen; /* kept; NULL: everything */
    charged_buf body;
    prepared *result;         /* NULL: there is none yet */
    version_reading *reading; /* of one that finds a version; NULL: it has */
    void (*done)(void *ctx, prepared *result);
    void *ctx;
};

struct preparer {
    prepare_tools tools;
    background *threads; /* borrowed */
};

static void job_free(prepare_job *j)
{
    charged_buf_free(&j->body);
    model_view_release(j->seen);
    version_reading_free(j->reading);
    free(j);
}

static void run_done(task *t)
{
    prepare_job *j = (prepare_job *)t;
    if (!j->result)
        t->turn.size = LONG_SIZE + j->body.bytes.len;
    if (!j->result || j->reading) {
        background_start(j->of->threads, t);
        return;
    }
    j->done(j->ctx, j->result);
    job_free(j);
}

static void run_drop(task *t)
{
    prepare_job *j = (prepare_job *)t;
    prepared_free(j->result);
    job_free(j);
}

/* Prepares the body unless that takes long; then run_done() queues the job again, with a larger size. A parsed document
 * is many small allocations, which malloc would keep for this thread's next one: after a large body they are
 * trimmed. */
static void run_prepare(task *t)
{
    prepare_job *j = (prepare_job *)t;
    size_t n = j->body.bytes.len;
    j->result = (j->takes_long ? prepare : prepare_soon)(&j->of->tools, j->seen, j->shape, j->body.bytes.data, n,
                                                         &t->abandoned);
    j->takes_long = !j->result;
    if (j->takes_long)
        return;
    if (j->result->is_missing) {
        j->result->body = j->body;
        j->body = (charged_buf){.of = j->body.of};
        return;
    }
    charged_buf_free(&j->body);
    if (n > TRIM_AFTER)
        malloc_trim(0);
}

/* Reads a piece of an adapter's files. An error is ignored: whoever loads the adapter will say what is wrong with
 * it. */
static void run_find_version(task *t)
{
    prepare_job *j = (prepare_job *)t;
    err e;
    if (adapter_checks_look(j->of->tools.checks, prepared_model(j->result), &j->result->error.what) == CHECK_BAD) {
        j->result->is_bad = true;
        version_reading_free(j->reading);
        j->reading = NULL;
        return;
    }
    int status = versions_read(j->reading, VERSION_PIECE, &j->result->version, &e);
    if (status > 0)
        return; /* goes on when others have had their turn */
    j->result->has_version = status == 0;
    version_reading_free(j->reading);
    j->reading = NULL;
}

preparer *preparer_new(background *threads, const prepare_tools *tools)
{
    preparer *p = XNEW(preparer);
    *p = (preparer){.tools = *tools, .threads = threads};
    return p;
}

void preparer_free(preparer *p)
{
    free(p);
}

static prepare_job *new_job(preparer *p, size_t size, void (*run)(task *), void (*done)(void *ctx, prepared *result),
                            void *ctx)
{
    prepare_job *j = XNEW(prepare_job);
    j->t.turn.size = size;
    j->t.run = run;
    j->t.done = run_done;
    j->t.drop = run_drop;
    j->of = p;
    j->done = done;
    j->ctx = ctx;
    return j;
}

prepare_job *preparer_start(preparer *p, model_view *seen, const api_shape *shape, charged_buf *body,
                            void (*done)(void *ctx, prepared *result), void *ctx)
{
    prepare_job *j = new_job(p, body->bytes.len, run_prepare, done, ctx);
    j->shape = shape;
    j->seen = model_view_keep(seen);
    j->body = *body;
    *body = (charged_buf){.of = j->body.of};
    background_start(p->threads, &j->t);
    return j;
}

prepare_job *preparer_find_version(preparer *p, prepared *result, void (*done)(void *ctx, prepared *result), void *ctx)
{
    prepare_job *j = new_job(p, VERSION_PIECE, run_find_version, done, ctx);
    j->result = result;
    j->reading = versions_begin(p->tools.adapters, prepared_model(result));
    background_start(p->threads, &j->t);
    return j;
}

void prepare_job_abandon(prepare_job *j)
{
    background_abandon(j->of->threads, &j->t);
}
