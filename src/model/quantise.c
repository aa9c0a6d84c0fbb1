/* quantise.c - see quantise.h */
#include "model/quantise.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/fp8.h"
#include "base/mem.h"

enum { ROWS_PER_ITEM = 16 };

typedef struct {
    const tensor *from;
    uint8_t *w;
    float *scale;
    float *row;
} quantise_job;

static void quantise_rows(void *arg, int item, int thread)
{
    const quantise_job *j = arg;
    size_t n = (size_t)j->from->cols;
    float *row = j->row + (size_t)thread * n;
    for (int r = item * ROWS_PER_ITEM; r < (item + 1) * ROWS_PER_ITEM && r < j->from->rows; r++) {
        const tensor one = {.data = (char *)j->from->data + (size_t)r * n * dtype_size(j->from->type),
                            .type = j->from->type,
                            .rows = 1,
                            .cols = (int)n};
        tensor_convert(row, DTYPE_F32, &one);
        e4m3_quantise(j->w + (size_t)r * n, &j->scale[r], row, (int)n);
    }
}

static size_t aligned_bytes(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Bytes that a part takes: numbers, then scales. */
static size_t part_bytes(const tensor *w)
{
    return aligned_bytes((size_t)w->rows * (size_t)w->cols) + aligned_bytes((size_t)w->rows * sizeof(float));
}

void *quantise_linear(linear *w, pool *cores)
{
    size_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        bytes += w->part[i].w.type == DTYPE_F8 ? 0 : part_bytes(&w->part[i].w);
    if (bytes == 0)
        return NULL;
    char *memory = mem_alloc_block(bytes), *at = memory;
    CHECK(memory);
    float *rows = XNEW_ARRAY(float, (size_t)pool_size(cores) * (size_t)w->part[0].w.cols);
    for (int i = 0; i < w->n; i++) {
        proj *p = &w->part[i];
        if (p->w.type == DTYPE_F8)
            continue;
        tensor from = p->w;
        p->w = (tensor){.data = at, .type = DTYPE_F8, .rows = from.rows, .cols = from.cols};
        p->scale =
            (tensor){.data = at + aligned_bytes(tensor_bytes(&p->w)), .type = DTYPE_F32, .rows = 1, .cols = from.rows};
        pool_run(cores, (from.rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM, quantise_rows,
                 &(quantise_job){.from = &from, .w = p->w.data, .scale = p->scale.data, .row = rows});
        at += part_bytes(&from);
    }
    free(rows);
    return memory;
}
