/* token_bytes.c - see token_bytes.h */
#include "text/token_bytes.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/detokenizer.h"

static bool has_replacement(const char *text, size_t n)
{
    return n > 0 && memmem(text, n, "\xef\xbf\xbd", 3) != NULL;
}

/* A token that decodes to U+FFFD, and is not spelt so in the vocabulary, is no whole character. */
bool token_is_part_of_char(const tokenizer *t, int id)
{
    size_t n;
    const char *spelt = tokenizer_token_text(t, id, &n);
    if (!spelt || has_replacement(spelt, n))
        return false;
    buf text = {0};
    tokenizer_decode(t, &id, 1, false, &text);
    bool part = has_replacement(text.data, text.len);
    buf_free(&text);
    return part;
}

void token_bytes(const tokenizer *t, int id, buf *out)
{
    size_t n;
    const char *spelt = tokenizer_token_text(t, id, &n);
    if (!spelt)
        return;
    int byte = decoder_byte_of_token(spelt, n);
    if (byte >= 0)
        buf_add_char(out, (char)byte);
    else
        byte_level_decode(spelt, n, out);
}

int token_plain_id(const tokenizer *t)
{
    ids x = {0};
    err e;
    int id = tokenizer_encode(t, "a", 1, false, &x, &e) == 0 && x.n > 0 ? x.items[x.n - 1] : 0;
    ids_free(&x);
    return id;
}

void token_bytes_in_text(const tokenizer *t, int plain, int id, buf *out)
{
    size_t n;
    if (!tokenizer_token_text(t, id, &n) || tokenizer_is_special(t, id))
        return;
    if (token_is_part_of_char(t, id)) {
        token_bytes(t, id, out);
        return;
    }
    detokenizer d;
    detokenizer_init(&d, t, false, &plain, 1);
    detokenizer_add(&d, id, out);
    detokenizer_finish(&d, out);
    detokenizer_deinit(&d);
}
