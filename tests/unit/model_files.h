/* model_files.h - for tests of model/: safetensors made by hand, files in a directory of their own,
 * and a backend that only holds memory */
#ifndef PUNICA_TESTS_MODEL_FILES_H
#define PUNICA_TESTS_MODEL_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

/* JSON in C strings is hard to read with its quotes escaped: tests write single ones. Changes s in place
 * and returns it. */
static inline char *quoted(char *s)
{
    for (char *p = s; *p; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

/* Whether the message has the text, in which single quotes stand for double ones. */
static inline bool says(const err *e, const char *text)
{
    char *wanted = quoted(xstrdup(text));
    bool found = strstr(e->msg, wanted);
    free(wanted);
    return found;
}

/* A safetensors file in the making: zero-initialise, add tensors, then st_finish. */
typedef struct { buf header, data; } st_file;

/* Describe a tensor and give the place of its (zeroed) bytes in f->data. */
static inline size_t st_add_raw(st_file *f, const char *name, const char *type, const char *shape, size_t bytes)
{
    size_t at = f->data.len;
    buf_printf(&f->header, "%s'%s': {'dtype': '%s', 'shape': %s, 'data_offsets': [%zu, %zu]}",
               f->header.len ? ", " : "", name, type, shape, at, at + bytes);
    for (size_t i = 0; i < bytes; i++)
        buf_add_char(&f->data, 0);
    return at;
}

/* A matrix (rows > 0) or a vector (rows 0) of small distinct values, the same in every type. */
static inline void st_add(st_file *f, const char *name, dtype t, int rows, int cols)
{
    char shape[64];
    if (rows)
        snprintf(shape, sizeof shape, "[%d, %d]", rows, cols);
    else
        snprintf(shape, sizeof shape, "[%d]", cols);
    size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    size_t at = st_add_raw(f, name, dtype_name(t), shape, n * dtype_size(t));
    for (size_t i = 0; i < n; i++) {
        /* 1 + k/128 with k < 128 is exact in all three types */
        float x = 1 + (float)((i * 37 + at) % 128) / 128;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        uint16_t half = (uint16_t)(t == DTYPE_BF16 ? bits >> 16 : 0x3c00 | (bits >> 13 & 0x3ff));
        memcpy(f->data.data + at + i * dtype_size(t), t == DTYPE_F32 ? (void *)&bits : (void *)&half, dtype_size(t));
    }
}

/* The whole file, from the text between the header's braces (single quotes). Owned by the caller. */
static inline buf st_join(const char *header, const buf *data)
{
    buf out = {0}, text = {0};
    buf_printf(&text, "{%s}", header);
    quoted(text.data);
    while (text.len % 8)
        buf_add_char(&text, ' ');
    uint64_t n = text.len;
    buf_add(&out, &n, 8);
    buf_add(&out, text.data, text.len);
    buf_add(&out, data->data, data->len);
    buf_free(&text);
    return out;
}

static inline buf st_finish(st_file *f)
{
    buf out = st_join(f->header.data ? f->header.data : "", &f->data);
    buf_free(&f->header);
    buf_free(&f->data);
    return out;
}

static inline char *make_dir(void)
{
    char *dir = xstrdup("/tmp/punica-test-XXXXXX");
    CHECK(mkdtemp(dir));
    return dir;
}

static inline void put_file(const char *dir, const char *name, const void *data, size_t n)
{
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
    free(path);
}

static inline void put_text(const char *dir, const char *name, const char *text)
{
    char *content = quoted(xstrdup(text));
    put_file(dir, name, content, strlen(content));
    free(content);
}

/* Remove dir and the plain files in it. Frees dir. */
static inline void drop_dir(char *dir)
{
    char *command = xasprintf("rm -r '%s'", dir);
    CHECK(system(command) == 0);
    free(command);
    free(dir);
}

static inline void *holding_alloc(backend *be, size_t bytes, err *e)
{
    (void)be;
    (void)e;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static inline void holding_release(backend *be, void *p)
{
    (void)be;
    free(p);
}

static inline void holding_copy(backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    memcpy(dst, src, bytes);
}

static inline int holding_adopt(backend *be, tensor *t, err *e)
{
    (void)be;
    (void)t;
    (void)e;
    return 0;
}

static inline int holding_adopt_linear(backend *be, linear *w, err *e)
{
    (void)be;
    (void)w;
    (void)e;
    return 0;
}

static inline size_t holding_table_bytes(backend *be, int n_sites)
{
    (void)be;
    (void)n_sites;
    return 0;
}

static inline void holding_bind_lora(backend *be, lora *l, void *memory)
{
    (void)be;
    (void)l;
    (void)memory;
}

static const backend_ops holding_ops = {
    .alloc = holding_alloc,
    .release = holding_release,
    .upload = holding_copy,
    .download = holding_copy,
    .adopt = holding_adopt,
    .adopt_linear = holding_adopt_linear,
    .lora_table_bytes = holding_table_bytes,
    .bind_lora = holding_bind_lora,
};

#endif
