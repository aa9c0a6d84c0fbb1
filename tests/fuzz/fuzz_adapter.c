/* fuzz_adapter.c - adapter_config.json, and after a NUL byte adapter_model.safetensors; without one,
 * the weights of a q_proj adapter of rank 2. Whatever is accepted must be loadable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "model/peft.h"
#include "support/holding_backend.h"
#include "support/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const model_config base = {
    .family = "llama", .n_layers = 2, .hidden = 4, .n_heads = 2, .n_kv_heads = 1, .head_dim = 2, .ffn = 6, .vocab = 8};

static buf default_weights(void)
{
    st_file f = {0};
    for (int layer = 0; layer < 2; layer++) {
        char name[96];
        snprintf(name, sizeof name, "base_model.model.model.layers.%d.self_attn.q_proj.lora_A.weight", layer);
        st_add(&f, name, DTYPE_F16, 2, 4);
        name[strlen(name) - strlen("A.weight")] = 'B';
        st_add(&f, name, DTYPE_F16, 4, 2);
    }
    return st_finish(&f);
}

static void load(const adapter *a)
{
    backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
    lora *l = adapter_to_lora(a, &be);
    CHECK(l && l->bytes > 0 && l->max_rank_sum >= 1);
    lora_free(l, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *config = (const char *)data, *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - config) : size;
    buf weights = {0};
    if (end)
        buf_add(&weights, end + 1, size - n - 1);
    else
        weights = default_weights();
    err e;
    adapter *a = adapter_open_memory("fuzz", config, n, weights.data, weights.len, &base, &e);
    if (a)
        load(a);
    adapter_close(a);
    buf_free(&weights);
    return 0;
}
