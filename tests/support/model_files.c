/* model_files.c - see model_files.h */
#include "support/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

char *quoted(char *s)
{
    for (char *p = s; *p; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

bool says(const err *e, const char *text)
{
    char *wanted = quoted(xstrdup(text));
    bool found = strstr(e->msg, wanted);
    free(wanted);
    return found;
}

size_t st_add_raw(st_file *f, const char *name, const char *type, const char *shape, size_t bytes)
{
    size_t at = f->data.len;
    buf_printf(&f->header, "%s'%s': {'dtype': '%s', 'shape': %s, 'data_offsets': [%zu, %zu]}",
               f->header.len ? ", " : "", name, type, shape, at, at + bytes);
    for (size_t i = 0; i < bytes; i++)
        buf_add_char(&f->data, 0);
    return at;
}

void st_add(st_file *f, const char *name, dtype t, int rows, int cols)
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

buf st_join(const char *header, const buf *data)
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

buf st_finish(st_file *f)
{
    buf out = st_join(f->header.data ? f->header.data : "", &f->data);
    buf_free(&f->header);
    buf_free(&f->data);
    return out;
}

char *make_dir(void)
{
    char *dir = xstrdup("/tmp/punica-test-XXXXXX");
    CHECK(mkdtemp(dir));
    return dir;
}

void put_file(const char *dir, const char *name, const void *data, size_t n)
{
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
    free(path);
}

void put_text(const char *dir, const char *name, const char *text)
{
    char *content = quoted(xstrdup(text));
    put_file(dir, name, content, strlen(content));
    free(content);
}

void drop_dir(char *dir)
{
    char *command = xasprintf("rm -r '%s'", dir);
    CHECK(system(command) == 0);
    free(command);
    free(dir);
}
