/* fuzz_tokenizer.c - any bytes as tokenizer.json; what loads must encode and decode without harm */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const tokenizer *t, const char *text, size_t n)
{
    err e;
    ids out = {0};
    buf back = {0};
    if (tokenizer_encode(t, text, n, true, &out, &e) == 0)
        tokenizer_decode(t, out.items, out.n, n % 2, &back);
    buf_free(&back);
    ids_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const texts[] = {
        "",
        " ",
        "Hello, world! It's 2024.\r\n\n  x",
        "<s>[INST] a\tb </s>",
        "a\xcc\x81\xe2\x82\xac\xf0\x9f\x99\x82\xff\xe2\x82",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    err e;
    tokenizer *t = tokenizer_from_json((const char *)data, size, NULL, 0, &e);
    if (!t)
        return 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        round_trip(t, texts[i], strlen(texts[i]));
    int every[512];
    for (int i = 0; i < 512; i++)
        every[i] = i - 8;
    buf out = {0};
    tokenizer_decode(t, every, 512, true, &out);
    buf_free(&out);
    tokenizer_free(t);
    return 0;
}
