/* tensor.c - see tensor.h */
#include "backend/tensor.h"

#include <stdint.h>

#include "base/half.h"

static float element(const tensor *t, size_t i)
{
    if (t->type == DTYPE_F32)
        return ((const float *)t->data)[i];
    uint16_t h = ((const uint16_t *)t->data)[i];
    return t->type == DTYPE_F16 ? f16_to_float(h) : bf16_to_float(h);
}

void tensor_convert(void *out, dtype type, const tensor *t)
{
    size_t n = (size_t)t->rows * (size_t)t->cols;
    for (size_t i = 0; i < n; i++) {
        float x = element(t, i);
        if (type == DTYPE_F32)
            ((float *)out)[i] = x;
        else
            ((uint16_t *)out)[i] = type == DTYPE_F16 ? f16_of_float(x) : bf16_of_float(x);
    }
}
