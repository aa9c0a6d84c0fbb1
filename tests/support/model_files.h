/* model_files.h - for tests of model/: safetensors made by hand, and files in a directory of their own */
#ifndef PUNICA_TESTS_SUPPORT_MODEL_FILES_H
#define PUNICA_TESTS_SUPPORT_MODEL_FILES_H

#include <stdbool.h>

#include "backend/tensor.h"
#include "base/buf.h"
#include "base/err.h"

/* Replaces single quotes by double ones in s and returns s: tests write JSON with single quotes, since escaped ones are
 * hard to read. */
char *quoted(char *s);

/* Returns whether the message contains the text, in which single quotes stand for double ones. */
bool says(const err *e, const char *text);

/* Builds a safetensors file: zero-initialise, add tensors, then st_finish(). */
typedef struct { buf header, data; } st_file;

/* Adds a tensor of zeros; returns the offset of its bytes in f->data. */
size_t st_add_raw(st_file *f, const char *name, const char *type, const char *shape, size_t bytes);

/* Adds a matrix (rows > 0) or a vector (rows 0) of values from 1 to 2, which are the same in every type. */
void st_add(st_file *f, const char *name, dtype t, int rows, int cols);

/* Returns the file with this data and this text between the header's braces (single quotes); the caller owns it. */
buf st_join(const char *header, const buf *data);

/* The same from f, which it frees. */
buf st_finish(st_file *f);

/* Makes a directory; remove it with drop_dir(). */
char *make_dir(void);

/* Writes a file; put_text() with single quotes for double ones. */
void put_file(const char *dir, const char *name, const void *data, size_t n);
void put_text(const char *dir, const char *name, const char *text);

/* Removes dir with all that is in it, and frees dir. */
void drop_dir(char *dir);

#endif
