/* safetensors.h - mapped safetensors files, one or sharded
 *
 * Everything about a file is checked when it is opened (header length, JSON, dtypes, shapes, alignment, and that
 * offsets cover the file exactly once), so that a tensor found here is safe to read. */
#ifndef PUNICA_MODEL_SAFETENSORS_H
#define PUNICA_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/tensor.h"
#include "base/err.h"

#define SAFETENSORS_MAX_DIMS 8

/* Bytes of a file's header; a longer one is refused. A dense model of 126 layers needs 0.3 MB. The limit bounds what a
 * hostile header makes the JSON parser allocate, up to 45 times the header's size. */
#define SAFETENSORS_MAX_HEADER ((size_t)8 << 20)

typedef struct safetensors safetensors;

/* One tensor as the file has it. 1-D tensors are [1, n], scalars [1, 1]. Only F32, F16, BF16 and F8_E4M3 of up to two
 * dimensions, none of them zero, can be used; others are listed with usable = 0. */
typedef struct {
    const char *name;       /* borrowed: while the safetensors lives, as all below */
    const char *file;       /* path of the file it lies in */
    const char *dtype_text; /* as written, e.g. "I64" */
    int n_dims;
    int64_t dim[SAFETENSORS_MAX_DIMS];
    int usable;
    tensor t; /* data: the mapping; aligned to its type */
} safetensors_entry;

/* Opens one file. NULL with e set. */
safetensors *safetensors_open(const char *path, err *e);

/* Opens dir/model.safetensors, or else the shards named by dir/model.safetensors.index.json. NULL with e set. */
safetensors *safetensors_open_dir(const char *dir, err *e);

/* Opens a file that is in memory already, 8-byte aligned; name stands for its path in messages. data is borrowed until
 * safetensors_close(). NULL with e set. */
safetensors *safetensors_open_memory(const void *data, size_t size, const char *name, err *e);

void safetensors_close(safetensors *s);

/* Entries stand in one array, so `entry - safetensors_at(s, 0)` is an entry's index. */
int safetensors_count(const safetensors *s);
const safetensors_entry *safetensors_at(const safetensors *s, int i);
const safetensors_entry *safetensors_find(const safetensors *s, const char *name); /* or NULL */

/* Writes the shape as "[4, 16]", for messages, and returns text. */
#define SAFETENSORS_SHAPE_TEXT 180
const char *safetensors_shape(const safetensors_entry *t, char text[SAFETENSORS_SHAPE_TEXT]);

#endif
