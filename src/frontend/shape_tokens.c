/* shape_tokens.c - vLLM's /tokenize and /detokenize: a prompt or a conversation as tokens, tokens as text
 *
 *   {"prompt": ...} or {"messages": ...}   ->   {"count", "max_model_len", "tokens", "token_strs"}
 *   {"tokens": [...]}                      ->   {"prompt"}
 *
 * The model need not be named: all adapters have the base's tokenizer, and some a chat template of their own. */
#include "frontend/api_shape.h"
#include "frontend/json_text.h"
#include "text/utf8.h"

/* Names the base, by "", where no model is named. */
static void name_base(json_t *body)
{
    if (!json_member(body, "model"))
        json_object_set_new(body, "model", json_string(""));
}

static int translate_text(json_t *body, char **repeated, api_error *e)
{
    (void)repeated;
    const json_t *prompt = json_member(body, "prompt"), *messages = json_member(body, "messages");
    if (!prompt == !messages)
        return api_error_set(e, 400, "prompt", NULL, "either \"prompt\" or \"messages\" is needed");
    if (prompt && !json_is_string(prompt))
        return api_error_set(e, 400, "prompt", NULL, "\"prompt\" must be a string");
    name_base(body);
    return 0;
}

static int translate_tokens(json_t *body, char **repeated, api_error *e)
{
    (void)repeated;
    json_t *tokens = json_member(body, "tokens");
    bool ok = json_is_array(tokens);
    for (size_t i = 0; ok && i < json_array_size(tokens); i++)
        ok = json_is_number(json_array_get(tokens, i));
    if (!ok)
        return api_error_set(e, 400, "tokens", NULL, "\"tokens\" must be a list of token ids");
    json_object_set(body, "prompt", tokens);
    json_object_del(body, "messages");
    name_base(body);
    return 0;
}

/* Returns the tokens as the vocabulary writes them; "" for one that is no valid UTF-8 there. */
static json_t *strings_of(const tokenizer *t, const ids *x)
{
    json_t *list = json_array();
    for (size_t i = 0; i < x->n; i++) {
        size_t n = 0;
        const char *text = tokenizer_token_text(t, x->items[i], &n);
        bool valid = text && utf8_is_valid(text, n);
        json_array_append_new(list, valid ? json_stringn_nocheck(text, n) : json_string(""));
    }
    return list;
}

static void write_ids(buf *out, const tokenizer *t, const ids *x, int context, bool strings)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < x->n; i++)
        json_array_append_new(tokens, json_integer(x->items[i]));
    json_add_take(out, json_pack("{s:I, s:i, s:o, s:o}", "count", (json_int_t)x->n, "max_model_len", context, "tokens",
                                 tokens, "token_strs", strings ? strings_of(t, x) : json_null()));
}

static void write_text(buf *out, const tokenizer *t, const ids *x, int context, bool strings)
{
    (void)context, (void)strings;
    buf text = {0};
    buf_add_str(&text, "");
    tokenizer_decode(t, x->items, x->n, false, &text);
    json_add_take(out, json_pack("{s:o}", "prompt", json_stringn_nocheck(text.data, text.len)));
    buf_free(&text);
}

const api_shape shape_tokenize = {.id_prefix = "tok-",
                                  .prompt_only = true,
                                  .write_prompt = write_ids,
                                  .translate = translate_text,
                                  .write_error = api_error_write};
const api_shape shape_detokenize = {.id_prefix = "tok-",
                                    .prompt_only = true,
                                    .write_prompt = write_text,
                                    .translate = translate_tokens,
                                    .write_error = api_error_write};
