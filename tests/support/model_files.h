/* model_files.h - for tests of model/: safetensors made by hand, and files in a directory of their own */
#ifndef PUNICA_TESTS_SUPPORT_MODEL_FILES_H
#define PUNICA_TESTS_SUPPORT_MODEL_FILES_H

#include <stdbool.h>

#include "backend/tensor.h"
#include "base/buf.h"
#include "base/err.h"

/* JSON in C strings is hard to read with its quotes escaped: tests write single ones. Changes s in place
 * and returns it. */
char *quoted(char *s);

/* Whether the message has the text, in which single quotes stand for double ones. */
bool says(const err *e, const char *text);

/* A safetensors file in the making: zero-initialise, add tensors, then st_finish. */
typedef struct { buf header, data; } st_file;

/* Describe a tensor and give the place of its (zeroed) bytes in f->data. */
size_t st_add_raw(st_file *f, const char *name, const char *type, const char *shape, size_t bytes);

/* A matrix (rows > 0) or a vector (rows 0) of small distinct values, the same in every type. */
void st_add(st_file *f, const char *name, dtype t, int rows, int cols);

/* The whole file, from the text between the header's braces (single quotes). Owned by the caller. */
buf st_join(const char *header, const buf *data);

buf st_finish(st_file *f);

/* A new directory; to be dropped with drop_dir(). */
char *make_dir(void);

/* Writes a file; put_text() with single quotes for double ones. */
void put_file(const char *dir, const char *name, const void *data, size_t n);
void put_text(const char *dir, const char *name, const char *text);

/* Remove dir and the plain files in it. Frees dir. */
void drop_dir(char *dir);

#endif
