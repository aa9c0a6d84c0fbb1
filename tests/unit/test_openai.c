/* test_openai.c - OpenAI's JSON in and out: what is understood, which field an error names, the shapes of answers */
#include <stdlib.h>
#include <string.h>

#include "frontend/api_reply.h"
#include "frontend/api_request.h"
#include "grammar/grammar.h"
#include "support/test.h"

static api_request r;
static api_error e;

static int parse(bool chat, const char *body)
{
    return api_request_parse(&r, chat, body, strlen(body), &e);
}

static void expect_ok(bool chat, const char *body)
{
    if (parse(chat, body))
        fail_msg("%s: %s", body, e.what.msg);
}

/* status, and the field named; "-" for none */
static void expect_error(bool chat, const char *body, int status, const char *param)
{
    if (parse(chat, body) == 0)
        fail_msg("accepted: %s", body);
    if (e.status != status || strcmp(e.param ? e.param : "-", param) != 0)
        fail_msg("%s: %d %s %s", body, e.status, e.param, e.what.msg);
    assert_true(strlen(e.what.msg) > 0);
}

static void test_defaults(void **state)
{
    (void)state;
    expect_ok(false, "{\"model\": \"sql\", \"prompt\": \"hi\"}");
    assert_string_equal(r.model, "sql");
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompt[0].n, 2);
    assert_int_equal(r.max_tokens, 16);
    assert_int_equal(r.n, 1);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.repetition_penalty == 1);
    assert_true(r.sampling.n_logprobs == 0 && !r.has_seed && !r.stream && r.n_stops == 0);
    api_request_deinit(&r);
    expect_ok(true, "{\"model\": \"sql\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
    assert_int_equal(r.max_tokens, -1);
    api_request_deinit(&r);
}

static void test_everything(void **state)
{
    (void)state;
    expect_ok(
        false,
        "{\"model\":\"m\",\"prompt\":[\"a\",\"b\\u0000c\"],\"n\":2,\"max_tokens\":7,\"min_tokens\":3,\"temperature\":0."
        "5,\"top_p\":0.9,"
        "\"top_k\":-1,\"min_p\":0.1,\"presence_penalty\":-1,\"frequency_penalty\":1,\"repetition_penalty\":1.1,"
        "\"seed\":-5,"
        "\"stop\":[\"x\",\"\\n\"],\"stop_token_ids\":[3,4],\"ignore_eos\":true,\"logprobs\":0,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"user\":\"u\",\"best_of\":2,\"suffix\":null,\"logit_bias\":{},"
        "\"whatever\":[1]}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompt[1].n, 3);
    assert_true(r.n == 2 && r.max_tokens == 7 && r.sampling.min_tokens == 3 && r.sampling.top_k == 0);
    assert_true(r.sampling.temperature == 0.5f && r.sampling.top_p == 0.9f && r.sampling.min_p == 0.1f);
    assert_true(r.sampling.presence_penalty == -1 && r.sampling.frequency_penalty == 1 &&
                r.sampling.repetition_penalty == 1.1f);
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-5 && r.sampling.ignore_eos && r.sampling.n_logprobs == 1);
    assert_true(r.stream && r.include_usage && r.n_stops == 2 && r.stop[1].n == 1 && r.sampling.n_stop_ids == 2 &&
                r.stop_id[1] == 4);
    api_request_drop_input(&r);
    assert_string_equal(r.model, "m");
    assert_memory_equal(r.stop[0].text, "x", 1);
    api_request_deinit(&r);
}

static void test_prompts(void **state)
{
    (void)state;
    expect_ok(false, "{\"model\":\"m\",\"prompt\":[1,2,3]}");
    assert_true(r.n_prompts == 1 && r.prompt[0].n_ids == 3 && r.prompt[0].id[2] == 3 && !r.prompt[0].text);
    api_request_deinit(&r);
    expect_ok(false, "{\"model\":\"m\",\"prompt\":[[1],[2,3]]}");
    assert_true(r.n_prompts == 2 && r.prompt[1].n_ids == 2);
    api_request_deinit(&r);
    expect_ok(false, "{\"model\":\"m\",\"prompt\":[]}"); /* one empty prompt: refused where tokens are counted */
    assert_true(r.n_prompts == 1 && r.prompt[0].n_ids == 0);
    api_request_deinit(&r);
    expect_ok(false, "{\"model\":\"m\",\"prompt\":[1e3],\"user\":123456789012345678901234567890}");
    assert_int_equal(r.prompt[0].id[0], 1000);
    api_request_deinit(&r);
    expect_ok(false, "{\"model\":\"m\",\"prompt\":[1],\"seed\":-5,\"user\":123456789012345678901234567890}");
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-5);
    api_request_deinit(&r);
    expect_error(false, "{\"model\":\"m\"}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":7}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":{}}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[1,\"a\"]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[\"a\",1]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[[1],[\"a\"]]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[-1]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[1.5]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[99999999999]}", 400, "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":100}", 400, "prompt");
}

static void test_messages(void **state)
{
    (void)state;
    expect_ok(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
                    "\"one \"},{\"type\":\"text\",\"text\":\"two\"}]},"
                    "{\"role\":\"user\",\"content\":\"three\"},{\"role\":\"assistant\",\"content\":null},{\"role\":"
                    "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"four\"}]}]}");
    assert_int_equal(json_array_size(r.conversation.messages), 4);
    assert_true(r.conversation.add_generation_prompt && !r.conversation.continues && !r.conversation.more &&
                !r.conversation.tools);
    api_request_deinit(&r);
    expect_error(true, "{\"model\":\"m\"}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":[]}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":\"hi\"}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":[\"hi\"]}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":[{\"content\":\"hi\"}]}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":5}]}", 400, "messages");
    expect_error(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
                 400, "messages");
}

static void test_template_arguments(void **state)
{
    (void)state;
#define HELLO "{\"model\":\"m\",\"messages\":[{\"role\":\"critic\",\"content\":\"hi\",\"name\":\"Eva\"}],"
    expect_ok(true, HELLO
              "\"continue_final_message\":true,\"chat_template_kwargs\":{\"a\":1},\"documents\":[{}],\"tools\":[]}");
    assert_true(!r.conversation.add_generation_prompt && r.conversation.more &&
                json_array_size(r.conversation.documents) == 1);
    assert_string_equal(r.conversation.continues, "content");
    api_request_deinit(&r);
    expect_ok(true, HELLO "\"add_generation_prompt\":false,\"chat_template_kwargs\":null}");
    assert_true(!r.conversation.add_generation_prompt && !r.conversation.continues && !r.conversation.more);
    api_request_deinit(&r);
    expect_error(true, HELLO "\"chat_template_kwargs\":[]}", 400, "chat_template_kwargs");
    expect_error(true, HELLO "\"continue_final_message\":\"x\"}", 400, "continue_final_message");
    expect_error(true, HELLO "\"add_generation_prompt\":1}", 400, "add_generation_prompt");
    expect_error(true, HELLO "\"chat_template\":\"x\"}", 400, "chat_template");
    expect_error(true, HELLO "\"tools\":[{}]}", 400, "tools");
}

#define CHAT "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define TEXT "{\"model\":\"m\",\"prompt\":\"x\","

static void test_logprobs(void **state)
{
    (void)state;
    expect_ok(true, CHAT "\"logprobs\":true}");
    assert_int_equal(r.sampling.n_logprobs, 1);
    api_request_deinit(&r);
    expect_ok(true, CHAT "\"logprobs\":true,\"top_logprobs\":5,\"max_tokens\":9,\"max_completion_tokens\":4}");
    assert_true(r.sampling.n_logprobs == 6 && r.max_tokens == 4);
    api_request_deinit(&r);
    expect_error(true, CHAT "\"top_logprobs\":5}", 400, "top_logprobs");
    expect_error(true, CHAT "\"logprobs\":2}", 400, "logprobs");
    expect_error(true, CHAT "\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs");
    expect_error(false, TEXT "\"logprobs\":true}", 400, "logprobs");
    expect_error(false, TEXT "\"logprobs\":21}", 400, "logprobs");
    expect_ok(false, TEXT "\"logprobs\":1,\"echo\":true,\"max_tokens\":0}");
    assert_true(r.sampling.n_logprobs == 2 && r.sampling.n_prompt_logprobs == 2 && r.prompt_logprobs == -1 &&
                r.max_tokens == 0);
    api_request_deinit(&r);
    expect_ok(false, TEXT "\"logprobs\":1,\"echo\":true,\"prompt_logprobs\":5}");
    assert_true(r.sampling.n_logprobs == 2 && r.sampling.n_prompt_logprobs == 6 && r.prompt_logprobs == 5);
    api_request_deinit(&r);
    expect_ok(true, CHAT "\"prompt_logprobs\":0,\"max_tokens\":0}");
    assert_true(r.sampling.n_logprobs == 0 && r.sampling.n_prompt_logprobs == 1 && r.prompt_logprobs == 0);
    api_request_deinit(&r);
    expect_error(false, TEXT "\"prompt_logprobs\":1,\"stream\":true}", 400, "prompt_logprobs");
}

/* What the output must be, by each of its names; sampling.grammar is the text, or JSON without blanks. */
static void test_grammars(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        unsigned kind;
        const char *text;
    } good[] = {
        {"\"response_format\":{\"type\":\"json_object\"}", GRAMMAR_JSON, ""},
        {"\"response_format\":{\"type\":\"text\"}", GRAMMAR_NONE, ""},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":{"
         "\"type\": \"null\"}}}",
         GRAMMAR_SCHEMA, "{\"type\":\"null\"}"},
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":true}", GRAMMAR_SCHEMA, "true"},
        {"\"guided_json\":\"{ }\"", GRAMMAR_SCHEMA, "{ }"},
        {"\"guided_regex\":\"a+\"", GRAMMAR_REGEX, "a+"},
        {"\"guided_choice\":[\"a\", \"b\"]", GRAMMAR_CHOICE, "[\"a\",\"b\"]"},
        {"\"guided_grammar\":\"root ::= x\"", GRAMMAR_GBNF, "root ::= x"},
        {"\"grammar\":\"root ::= x\",\"guided_json\":null", GRAMMAR_GBNF, "root ::= x"},
        {"\"json_schema\":{}", GRAMMAR_SCHEMA, "{}"},
        {"\"structured_outputs\":{\"regex\":\"a\\u0000\",\"json\":null,\"disable_fallback\":false}", GRAMMAR_REGEX,
         "a"},
        {"\"structured_outputs\":{\"json_object\":true}", GRAMMAR_JSON, ""},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        buf body = {0};
        buf_printf(&body, TEXT "%s}", good[i].field);
        expect_ok(false, body.data);
        assert_int_equal(r.sampling.grammar_kind, good[i].kind);
        assert_memory_equal(r.sampling.grammar.data ? (char *)r.sampling.grammar.data : "", good[i].text,
                            strlen(good[i].text));
        api_request_deinit(&r);
        buf_free(&body);
    }
    expect_error(false, TEXT "\"grammar\":\"x\",\"guided_regex\":\"a\"}", 400, "grammar");
    expect_error(false, TEXT "\"grammar\":\"x\",\"ignore_eos\":true}", 400, "ignore_eos");
    expect_ok(false,
              TEXT "\"logit_bias\":{\"3\":-100,\"5\":2.5},\"allowed_token_ids\":[3,5],\"bad_words\":[\"x\"],\"truncate_"
                   "prompt_tokens\":-1,"
                   "\"include_stop_str_in_output\":true,\"lora\":[],\"typical_p\":1,\"skip_special_tokens\":true}");
    assert_true(r.sampling.n_bias == 2 && r.sampling.biased[1] == 5 && r.sampling.bias[1] == 2.5f &&
                r.sampling.n_allowed_ids == 2 && r.truncate == -1);
    assert_true(json_array_size(r.bad_words) == 1 && r.include_stop);
    api_request_deinit(&r);
}

static void test_errors_name_the_field(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"temperature", "-0.1"},
        {"temperature", "\"hot\""},
        {"temperature", "1e400"},
        {"top_p", "0"},
        {"top_p", "1.1"},
        {"min_p", "2"},
        {"presence_penalty", "3"},
        {"frequency_penalty", "[]"},
        {"repetition_penalty", "0"},
        {"top_k", "1.5"},
        {"n", "0"},
        {"n", "129"},
        {"max_tokens", "0"},
        {"max_tokens", "\"5\""},
        {"min_tokens", "17"},
        {"seed", "1.5"},
        {"seed", "12345678901234567890123456"},
        {"seed", "\"x\""},
        {"stop", "5"},
        {"stop", "\"\""},
        {"stop", "[\"a\", 1]"},
        {"stop", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"},
        {"stop_token_ids", "[\"a\"]"},
        {"stop_token_ids", "5"},
        {"ignore_eos", "1"},
        {"stream", "\"yes\""},
        {"echo", "1"},
        {"stream_options", "{}"},
        {"suffix", "\"x\""},
        {"logit_bias", "{\"5\": 101}"},
        {"logit_bias", "{\"x\": 1}"},
        {"logit_bias", "{\"-1\": 1}"},
        {"logit_bias", "{\"\": 1}"},
        {"logit_bias", "[1]"},
        {"allowed_token_ids", "[]"},
        {"allowed_token_ids", "[-1]"},
        {"allowed_token_ids", "7"},
        {"bad_words", "\"x\""},
        {"bad_words", "[\"\"]"},
        {"bad_words", "[7]"},
        {"truncate_prompt_tokens", "0"},
        {"truncate_prompt_tokens", "-2"},
        {"include_stop_str_in_output", "1"},
        {"response_format", "{\"type\": \"xml\"}"},
        {"response_format", "7"},
        {"response_format", "{\"type\": \"json_schema\"}"},
        {"response_format", "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\"}}"},
        {"guided_regex", "7"},
        {"guided_grammar", "{}"},
        {"guided_json_object", "1"},
        {"grammar", "[]"},
        {"structured_outputs", "[]"},
        {"structured_outputs", "{}"},
        {"structured_outputs", "{\"structural_tag\": \"x\"}"},
        {"structured_outputs", "{\"regex\": \"a\", \"json\": {}}"},
        {"tools", "[{}]"},
        {"lora", "[{\"id\": 0, \"scale\": 1}]"},
        {"prompt_logprobs", "-1"},
        {"prompt_logprobs", "21"},
        {"use_beam_search", "true"},
        {"skip_special_tokens", "false"},
        {"return_tokens_as_token_ids", "true"},
        {"mirostat", "2"},
        {"typical_p", "0.5"},
        {"tfs_z", "0.5"},
        {"xtc_probability", "0.5"},
        {"dry_multiplier", "1"},
        {"logits_processors", "[\"x\"]"},
        {"guided_whitespace_pattern", "\"x\""}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf body = {0};
        buf_printf(&body, TEXT "\"%s\":%s}", bad[i][0], bad[i][1]);
        expect_error(false, body.data, 400, strcmp(bad[i][1], "1e400") == 0 ? "-" : bad[i][0]);
        buf_free(&body);
    }
    expect_error(false, TEXT "\"stream\":true,\"stream_options\":{\"include_usage\":1}}", 400,
                 "stream_options.include_usage");
    expect_error(false, TEXT "\"max_tokens\":12345678901234567890123456}", 400, "max_tokens");
    assert_non_null(strstr(e.what.msg, "between"));
    expect_error(false, "{\"prompt\":\"x\"}", 400, "model");
    expect_error(false, "{\"model\":7,\"prompt\":\"x\"}", 400, "model");
    expect_error(false, "{\"model\":\"m\\u0000\",\"prompt\":\"x\"}", 404, "model");
    expect_error(false, "[]", 400, "-");
    expect_error(false, "", 400, "-");
    expect_error(false, "{\"model\":", 400, "-");
    expect_error(false, "{\"model\":\"m\",\"model\":\"m\",\"prompt\":\"x\"}", 400, "-");
    expect_error(false, "{\"model\":\"m\",\"prompt\":\"\xff\"}", 400, "-");
}

/* The written text, parsed again. */
static json_t *read_back(buf *out)
{
    err why;
    json_t *doc = json_read_text(out->data, out->len, &why);
    if (!doc)
        fail_msg("%s: %s", out->data, why.msg);
    buf_free(out);
    return doc;
}

static void test_error_shape(void **state)
{
    (void)state;
    buf out = {0};
    const char *type, *message;
    api_error_set(&e, 429, NULL, "queue_full", "name \xff cut \xe2\x82");
    api_error_write(&e, &out);
    json_t *doc = read_back(&out), *param, *error;
    assert_int_equal(json_unpack(doc, "{s:{s:s, s:s, s:o, s:s}}", "error", "type", &type, "message", &message, "param",
                                 &param, "code", &type),
                     0);
    error = json_object_get(doc, "error");
    assert_string_equal(json_string_value(json_object_get(error, "type")), "rate_limit_error");
    assert_true(json_is_null(param));
    assert_string_equal(message, "name \xef\xbf\xbd cut \xef\xbf\xbd");
    json_decref(doc);
}

static api_token top[] = {{.text = (char *)"a", .n = 1, .logprob = -0.5f},
                          {.text = (char *)"b", .n = 1, .logprob = -2}};
static const api_logprob token = {
    .token = {.text = (char *)"\xc3\xa9", .n = 2, .logprob = -1}, .top = top, .n_top = 2, .offset = 3, .chars = 2};

static void test_response(void **state)
{
    (void)state;
    const api_usage u = {.prompt = 5, .completion = 7};
    const api_choice c[] = {
        {.index = 0, .text = "a\"\0b", .n = 4, .finish = "stop"},
        {.index = 1, .text = "", .n = 0, .finish = "length", .has_logprobs = true, .logprob = &token, .n_logprobs = 1}};
    api_head h = {.id = "cmpl-1", .model = "sql", .created = 9};
    buf out = {0};
    api_write_response(&out, &h, c, 2, &u);
    json_t *doc = read_back(&out), *choices, *p;
    int prompt, completion, total;
    assert_int_equal(json_unpack(doc, "{s:o, s:{s:i, s:i, s:i}}", "choices", &choices, "usage", "prompt_tokens",
                                 &prompt, "completion_tokens", &completion, "total_tokens", &total),
                     0);
    assert_true(prompt == 5 && completion == 7 && total == 12);
    assert_int_equal(json_string_length(json_object_get(json_array_get(choices, 0), "text")), 4);
    p = json_object_get(json_array_get(choices, 1), "logprobs");
    assert_string_equal(json_string_value(json_array_get(json_object_get(p, "tokens"), 0)), "\xc3\xa9");
    const json_t *likely = json_array_get(json_object_get(p, "top_logprobs"), 0); /* and the token itself */
    assert_int_equal(json_object_size(likely), 3);
    assert_true(json_real_value(json_object_get(likely, "\xc3\xa9")) == -1);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(p, "text_offset"), 0)), 2);
    json_decref(doc);

    h.chat = true;
    api_write_response(&out, &h, c, 2, &u);
    doc = read_back(&out);
    choices = json_object_get(doc, "choices");
    assert_string_equal(json_string_value(json_object_get(doc, "object")), "chat.completion");
    assert_int_equal(
        json_string_length(json_object_get(json_object_get(json_array_get(choices, 0), "message"), "content")), 4);
    p = json_array_get(json_object_get(json_object_get(json_array_get(choices, 1), "logprobs"), "content"), 0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(p, "bytes"), 1)), 0xa9);
    assert_int_equal(json_array_size(json_object_get(p, "top_logprobs")), 2);
    json_decref(doc);
}

static json_t *read_event(buf *out)
{
    assert_memory_equal(out->data, "data: ", 6);
    assert_memory_equal(out->data + out->len - 2, "\n\n", 2);
    buf body = {0};
    buf_add(&body, out->data + 6, out->len - 8);
    assert_null(strchr(body.data, '\n'));
    buf_free(out);
    return read_back(&body);
}

static void test_events(void **state)
{
    (void)state;
    const api_head h = {.chat = true, .id = "chatcmpl-1", .model = "sql", .created = 9};
    api_choice c = {.index = 1, .text = "x\ny", .n = 3};
    buf out = {0};
    api_stream s;
    api_stream_init(&s, &h, true);
    api_write_chunk(&out, &s, &c);
    json_t *doc = read_event(&out), *choice = json_array_get(json_object_get(doc, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(choice, "delta"), "content")), "x\ny");
    assert_true(json_is_null(json_object_get(choice, "finish_reason")) && json_is_null(json_object_get(doc, "usage")));
    assert_string_equal(json_string_value(json_object_get(doc, "object")), "chat.completion.chunk");
    json_decref(doc);
    api_stream_deinit(&s);

    api_stream_init(&s, &h, false);
    c = (api_choice){.index = 1, .finish = "stop"};
    api_write_chunk(&out, &s, &c);
    doc = read_event(&out);
    choice = json_array_get(json_object_get(doc, "choices"), 0);
    assert_int_equal(json_object_size(json_object_get(choice, "delta")), 0);
    assert_null(json_object_get(doc, "usage"));
    json_decref(doc);

    api_write_role(&out, &s, 1);
    doc = read_event(&out);
    choice = json_array_get(json_object_get(doc, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(choice, "delta"), "role")), "assistant");
    json_decref(doc);

    api_write_usage(&out, &s, &(api_usage){.prompt = 1, .completion = 2});
    doc = read_event(&out);
    assert_int_equal(json_array_size(json_object_get(doc, "choices")), 0);
    json_decref(doc);

    api_stream_deinit(&s);

    /* any text, without logprobs and with them, in a completion */
    api_stream_init(&s, &(api_head){.id = "cmpl-1", .model = "a\"b", .created = 9}, true);
    char all[128];
    for (int i = 0; i < 128; i++)
        all[i] = (char)i;
    c = (api_choice){
        .text = all, .n = 128, .has_logprobs = true, .logprob = &token, .n_logprobs = 1, .finish = "length"};
    api_write_chunk(&out, &s, &c);
    doc = read_event(&out);
    choice = json_array_get(json_object_get(doc, "choices"), 0);
    assert_int_equal(json_string_length(json_object_get(choice, "text")), 128);
    assert_memory_equal(json_string_value(json_object_get(choice, "text")), all, 128);
    assert_non_null(json_object_get(json_object_get(choice, "logprobs"), "tokens"));
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "length");
    json_decref(doc);
    api_stream_deinit(&s);

    api_error_set(&e, 503, NULL, NULL, "no");
    api_write_stream_error(&out, &e);
    doc = read_event(&out);
    assert_non_null(json_object_get(doc, "error"));
    json_decref(doc);

    api_write_done(&out);
    assert_string_equal(out.data, "data: [DONE]\n\n");
    buf_free(&out);
}

static void test_models(void **state)
{
    (void)state;
    char *names[] = {(char *)"json", (char *)"sql"};
    buf out = {0};
    api_write_models(&out, "base", true, names, 2, 5, 1024);
    json_t *doc = read_back(&out), *data = json_object_get(doc, "data");
    assert_int_equal(json_array_size(data), 3);
    assert_true(json_is_null(json_object_get(json_array_get(data, 0), "parent")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(data, 2), "parent")), "base");
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_template_arguments),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_errors_name_the_field),
        cmocka_unit_test(test_error_shape),
        cmocka_unit_test(test_response),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
