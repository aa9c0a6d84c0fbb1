/* tensor.h - a matrix in some device's memory, as a plain value */
#ifndef PUNICA_BACKEND_TENSOR_H
#define PUNICA_BACKEND_TENSOR_H

#include <stddef.h>

/* F8 is E4M3: only a base model's matrices, beside their scales (backend.h), and the KvCache (batch.h). */
typedef enum { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8 } dtype;

#define SCALE_BLOCK 128 /* columns of an F8 matrix under one scale, where a row has several */

/* Returns how many blocks of SCALE_BLOCK cover n rows or columns. */
static inline int scale_blocks(int n)
{
    return (n + SCALE_BLOCK - 1) / SCALE_BLOCK;
}

/* [rows, cols], row-major, no gaps. A vector has rows = 1; an absent tensor has data = NULL. Who
 * owns data is said where the tensor is held. */
typedef struct {
    void *data;
    dtype type;
    int rows, cols;
} tensor;

static inline size_t dtype_size(dtype t)
{
    return t == DTYPE_F32 ? 4 : t == DTYPE_F8 ? 1 : 2;
}

/* The name of a type in safetensors files. */
static inline const char *dtype_name(dtype t)
{
    return t == DTYPE_F32 ? "F32" : t == DTYPE_F16 ? "F16" : t == DTYPE_BF16 ? "BF16" : "F8_E4M3";
}

static inline size_t tensor_bytes(const tensor *t)
{
    return (size_t)t->rows * (size_t)t->cols * dtype_size(t->type);
}

/* Writes the elements of t, which is not F8, as F32, F16 or BF16. */
void tensor_convert(void *out, dtype type, const tensor *t);

#endif
