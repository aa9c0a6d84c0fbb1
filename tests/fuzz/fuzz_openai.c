/* fuzz_openai.c - any bytes as the body of a call: the first says which kind. Whatever is accepted must keep the
 * promises later code relies on, and its texts must be readable to the last byte. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/api_request.h"
#include "frontend/api_shape.h"
#include "frontend/conversation.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sampling(const api_request *r)
{
    const Sampling *h = &r->sampling;
    CHECK(h->temperature >= 0 && h->temperature <= 100 && h->top_p > 0 && h->top_p <= 1 && h->min_p >= 0 &&
          h->min_p <= 1);
    CHECK(h->repetition_penalty > 0 && fabsf(h->presence_penalty) <= 2 && fabsf(h->frequency_penalty) <= 2 &&
          h->top_k >= 0);
    CHECK(h->n_logprobs >= 0 && h->n_logprobs <= MAX_TOP + 1 && h->n_stop_ids <= MAX_STOPS && h->min_tokens >= 0);
    CHECK(r->max_tokens >= (r->chat ? -1 : 0) && r->n >= 1 && r->n_stops <= MAX_STOPS && strlen(r->model) < SIZE_MAX);
    for (int i = 0; i < r->n_stops; i++)
        CHECK(r->stop[i].n >= 1 && r->stop[i].n <= MAX_STOP_LEN && utf8_is_valid(r->stop[i].text, r->stop[i].n));
}

static void check_input(const api_request *r)
{
    CHECK(r->chat ? json_array_size(r->conversation.messages) >= 1
                  : r->n_prompts >= 1 && r->n_prompts * r->n <= MAX_CHOICES);
    for (int i = 0; i < r->n_prompts; i++) {
        const api_prompt *p = &r->prompt[i];
        CHECK(!p->text || utf8_is_valid(p->text, p->n));
        for (size_t k = 0; k < p->n_ids; k++)
            CHECK(p->id[k] >= 0);
    }
    for (size_t i = 0; i < json_array_size(r->conversation.messages); i++)
        CHECK(json_string_length(json_object_get(json_array_get(r->conversation.messages, i), "role")) > 0);
}

/* A conversation of any content is written, or refused: by a template that knows text only, by one that takes parts, by
 * one that looks into everything. */
static void write_chat(const api_request *r)
{
    static const char *const programs[] = {
        "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim }}{% endfor %}",
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text "
        "}}"
        "{% endfor %}{% endif %}{% endfor %}",
        "{{ messages | tojson(indent=1) }}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ "
        "c.function.arguments | items | list }}"
        "{% endfor %}{{ m }}{% endfor %}{{ documents }}{{ add_generation_prompt }}",
    };
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        chat_template *t = chat_template_new(programs[i], "<s>", "</s>");
        buf out = {0};
        err e;
        chat_input in = r->conversation;
        json_t *messages = conversation_for(t, in.messages);
        in.messages = messages;
        if (chat_template_write(t, &in, 0, &out, NULL, &e) == 0)
            CHECK(utf8_is_valid(out.data, out.len));
        json_decref(messages);
        buf_free(&out);
        chat_template_free(t);
    }
}

/* As prepare.c does it: a shape's body becomes a chat first. */
static int parse(api_request *r, const api_shape *shape, const char *body, size_t n, api_error *e)
{
    char *repeated = NULL;
    json_t *input = json_read_text(body, n, &e->what);
    if (!input)
        return api_error_bad(e, NULL);
    if (shape->translate && (!json_is_object(input) || shape->translate(input, &repeated, e))) {
        json_decref(input);
        free(repeated);
        return api_error_set(e, 400, NULL, NULL, "bad");
    }
    free(repeated);
    return api_request_take(r, shape->chat, input, NULL, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const api_shape *const shapes[] = {&shape_completions, &shape_chat, &shape_responses, &shape_messages};
    if (size == 0)
        return 0;
    api_request r;
    api_error e;
    char *body = xmalloc(size); /* of exactly this size, so that reading past its end is seen */
    memcpy(body, data + 1, size - 1);
    const api_shape *shape = shapes[data[0] % 4];
    if (parse(&r, shape, body, size - 1, &e)) {
        buf out = {0};
        CHECK(e.status >= 400 && e.status < 500);
        shape->write_error(&e, &out);
        buf_free(&out);
    } else {
        check_sampling(&r);
        check_input(&r);
        if (r.chat)
            write_chat(&r);
        api_request_deinit(&r);
    }
    free(body);
    return 0;
}
