/* safetensors.h - mapped safetensors files, one or sharded
 *
 * Everything about a file is checked when it is opened (header length, JSON, dtypes, shapes,
 * offsets inside the file, no overlap), so that a tensor found here is safe to read. */
#ifndef PUNICA_MODEL_SAFETENSORS_H
#define PUNICA_MODEL_SAFETENSORS_H

#include <stddef.h>

#include "backend/tensor.h"
#include "base/err.h"

typedef struct safetensors safetensors;

/* One tensor as the file has it. 1-D tensors are [1, n]. Only F32, F16 and BF16 of one or two
 * dimensions can be used; others are listed with usable = 0. */
typedef struct {
    const char *name;               /* borrowed: while the safetensors lives */
    const char *dtype_text;         /* as written, e.g. "I64" */
    int usable;
    tensor t;                       /* data: borrowed mapping */
} safetensors_entry;

/* One file. NULL with e set. */
safetensors *safetensors_open(const char *path, err *e);

/* dir/model.safetensors, or the shards named by dir/model.safetensors.index.json. */
safetensors *safetensors_open_dir(const char *dir, err *e);

void safetensors_close(safetensors *s);

int safetensors_count(const safetensors *s);
const safetensors_entry *safetensors_at(const safetensors *s, int i);
const safetensors_entry *safetensors_find(const safetensors *s, const char *name);    /* or NULL */

#endif
