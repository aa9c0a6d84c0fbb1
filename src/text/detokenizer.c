/* detokenizer.c - see detokenizer.h */
#include "text/detokenizer.h"

void detokenizer_init(detokenizer *d, const tokenizer *t, bool skip_special, const int *prefix, size_t n)
{
    *d = (detokenizer){.t = t, .skip_special = skip_special};
    buf sent = {0};
    for (size_t i = 0; i < n; i++) {
        detokenizer_add(d, prefix[i], &sent);
        buf_clear(&sent);
    }
    buf_free(&sent);
}

void detokenizer_deinit(detokenizer *d)
{
    decoder_state_deinit(&d->state);
}

void detokenizer_add(detokenizer *d, int id, buf *out)
{
    size_t n;
    const char *token = tokenizer_token_text(d->t, id, &n);
    if (token && !(d->skip_special && tokenizer_is_special(d->t, id)))
        decoder_feed(tokenizer_decoder(d->t), &d->state, token, n, out);
}

void detokenizer_finish(detokenizer *d, buf *out)
{
    decoder_finish(tokenizer_decoder(d->t), &d->state, out);
}
