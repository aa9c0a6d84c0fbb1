/* json_text.c - see json_text.h */
#include "frontend/json_text.h"

#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

json_t *json_text(const char *text)
{
    buf repaired = {0};
    utf8_tail tail = {0};
    buf_add(&repaired, "", 0);
    utf8_repair(&tail, text, strlen(text), &repaired);
    utf8_repair_end(&tail, &repaired);
    json_t *value = json_stringn(repaired.data, repaired.len);
    buf_free(&repaired);
    return value;
}

/* Returns what a JSON string has in place of a character; NULL: the character itself. */
static const char *escape_of(unsigned char c, char code[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default:
        if (c >= 0x20)
            return NULL;
        snprintf(code, 8, "\\u%04x", c);
        return code;
    }
}

void json_add_string(buf *out, const char *text, size_t n)
{
    size_t plain = 0; /* text[plain..i) stands for itself */
    char code[8];
    buf_add_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        const char *escape = escape_of((unsigned char)text[i], code);
        if (!escape)
            continue;
        buf_add(out, text + plain, i - plain);
        buf_add_str(out, escape);
        plain = i + 1;
    }
    buf_add(out, text + plain, n - plain);
    buf_add_char(out, '"');
}

static int append(const char *bytes, size_t n, void *out)
{
    buf_add(out, bytes, n);
    return 0;
}

void json_add_take(buf *out, json_t *value)
{
    CHECK(value);
    json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(value);
}
