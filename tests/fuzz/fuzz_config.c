/* fuzz_config.c - config.json, and after a NUL byte generation_config.json; whatever is accepted must
 * keep the promises later code relies on */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_promises(const model_config *c)
{
    CHECK(c->n_layers >= 1 && c->n_layers <= MAX_LAYERS && c->layer_slides);
    CHECK(c->hidden > 0 && c->ffn > 0 && c->vocab > 0 && c->max_positions > 0);
    CHECK(c->n_heads % c->n_kv_heads == 0 && c->head_dim % 2 == 0 && c->head_dim > 0);
    CHECK(c->n_eos <= MAX_EOS && c->bos < c->vocab);
    for (int i = 0; i < c->n_eos; i++)
        CHECK(c->eos[i] >= 0 && c->eos[i] < c->vocab);
    for (int i = 0; i < c->n_layers; i++)
        CHECK(!c->layer_slides[i] || c->window > 0);
    float *inv_freq = XNEW_ARRAY(float, (size_t)c->head_dim / 2);
    model_config_inv_freq(c, inv_freq);
    for (int i = 0; i < c->head_dim / 2; i++)
        CHECK(inv_freq[i] >= 0 && inv_freq[i] <= 1000);
    free(inv_freq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *config = (const char *)data, *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - config) : size;
    model_config c;
    err e;
    if (model_config_parse(&c, config, n, end ? end + 1 : NULL, end ? size - n - 1 : 0, &e) == 0) {
        check_promises(&c);
        model_config_deinit(&c);
    }
    return 0;
}
