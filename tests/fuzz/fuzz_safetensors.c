/* fuzz_safetensors.c - any bytes as a safetensors file; whatever is accepted must be readable to its
 * last byte */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/finite.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *copy = xmalloc(size);
    if (size)
        memcpy(copy, data, size);
    err e;
    safetensors *s = safetensors_open_memory(copy, size, "fuzz", &e);
    for (int i = 0; s && i < safetensors_count(s); i++) {
        const safetensors_entry *t = safetensors_at(s, i);
        char text[SAFETENSORS_SHAPE_TEXT];
        safetensors_shape(t, text);
        CHECK(safetensors_find(s, t->name) == t);
        const tensor *one = &t->t;
        if (t->usable)
            finite_scan(&one, 1);
    }
    safetensors_close(s);
    free(copy);
    return 0;
}
