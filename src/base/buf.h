/* buf.h - a growing string of bytes
 *
 * Plain value: zero-initialise (`buf b = {0}`), append, buf_free. `data` is NUL-terminated after
 * every append (the NUL is not counted in len); it is NULL before the first one. */
#ifndef PUNICA_BASE_BUF_H
#define PUNICA_BASE_BUF_H

#include <stddef.h>

typedef struct {
    char *data;
    size_t len, cap;
} buf;

void buf_add(buf *b, const void *bytes, size_t n);
void buf_add_str(buf *b, const char *s);
void buf_add_char(buf *b, char c);
void buf_add_number(buf *b, size_t number, unsigned base); /* appends its digits; base: 10 or 16 */
void buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *buf_extend(buf *b, size_t n); /* appends n bytes for the caller to fill; valid until the next append */
void buf_drop(buf *b, size_t n);    /* removes the first n bytes */
void buf_clear(buf *b);             /* sets len to 0 and keeps the memory */
void buf_free(buf *b);              /* frees the memory; b is zero again */
char *buf_take(buf *b);             /* returns the string, owned by the caller; b is zero again */

#endif
