/* fuzz_template.c - any bytes as a chat template, with variables of our own or, behind a NUL, of the input's. What
 * compiles must run within its bounds; what it writes is UTF-8, the same each time, and what of it is the template's
 * own lies in it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/jinja.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \xc3\xa4 brief. \"}, {\"role\": "
                            "\"user\", \"content\": \" a\\nb \"},"
                            " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
                            "\"f\", \"arguments\": {\"x\": 1, \"y\": [1.5, true]}}}]}],"
                            " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], \"documents\": "
                            "null, \"add_generation_prompt\": true,"
                            " \"bos_token\": \"<s>\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"x\"}, \"n\": -7, "
                            "\"f\": 2.5, \"s\": \"\xf0\x9f\xaa\x81 text\"}";

static void render(const jinja *p, const json_t *variables)
{
    const jinja_limits limits = {.steps = 100000, .memory = 8u << 20, .output = 1u << 20};
    const jinja_input in = {.variables = variables, .now = 1751630400};
    buf first = {0}, again = {0};
    text_spans own = {0};
    err e;
    int rc = jinja_render(p, &in, &limits, &first, &own, &e);
    CHECK(rc != 0 || (utf8_is_valid(first.data, first.len) && first.len <= (2u << 20)));
    for (size_t i = 0; i < own.n; i++)
        CHECK(own.at[i].from < own.at[i].to && own.at[i].to <= first.len &&
              (i == 0 || own.at[i].from > own.at[i - 1].to));
    text_spans_free(&own);
    CHECK(jinja_render(p, &in, &limits, &again, NULL, &e) == rc);
    CHECK(first.len == again.len && (first.len == 0 || memcmp(first.data, again.data, first.len) == 0));
    buf_free(&first);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    char *source = xmalloc(n); /* of exactly this size, so that reading past its end is seen */
    err e;
    if (n)
        memcpy(source, data, n);
    jinja *p = jinja_compile(source, n, &e);
    free(source);
    if (!p)
        return 0;
    json_t *variables =
        nul ? json_read_text((const char *)nul + 1, size - n - 1, &e) : json_read_text(usual, strlen(usual), &e);
    if (json_is_object(variables))
        render(p, variables);
    json_decref(variables);
    jinja_free(p);
    return 0;
}
