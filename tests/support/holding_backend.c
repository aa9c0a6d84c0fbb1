/* holding_backend.c - see holding_backend.h */
#include "support/holding_backend.h"

#include <stdlib.h>
#include <string.h>

static void *hold_alloc(backend *be, size_t bytes, err *e)
{
    (void)be;
    (void)e;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void hold_release(backend *be, void *p)
{
    (void)be;
    free(p);
}

static void hold_copy(backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    memcpy(dst, src, bytes);
}

static int hold_adopt(backend *be, tensor *t, err *e)
{
    (void)be;
    (void)t;
    (void)e;
    return 0;
}

static int hold_adopt_linear(backend *be, linear *w, err *e)
{
    (void)be;
    (void)w;
    (void)e;
    return 0;
}

static size_t hold_table_bytes(backend *be, int n_sites)
{
    (void)be;
    (void)n_sites;
    return 0;
}

static void hold_bind_lora(backend *be, lora *l, void *memory)
{
    (void)be;
    (void)l;
    (void)memory;
}

const backend_ops holding_backend_ops = {
    .alloc = hold_alloc,
    .release = hold_release,
    .upload = hold_copy,
    .download = hold_copy,
    .adopt = hold_adopt,
    .adopt_linear = hold_adopt_linear,
    .lora_table_bytes = hold_table_bytes,
    .bind_lora = hold_bind_lora,
};
