/* err.c - see err.h. Messages are kept to one line: control characters become '?'. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* File and tensor names come from outside and may hold anything; a message stays one line. */
static void keep_one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

static int set(err *e, bool is_local, const char *fmt, va_list ap)
{
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    keep_one_line(e->msg);
    e->is_local = is_local;
    return -1;
}

int err_set(err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(e, false, fmt, ap);
    va_end(ap);
    return -1;
}

int err_set_local(err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(e, true, fmt, ap);
    va_end(ap);
    return -1;
}

int err_wrap(err *e, const char *fmt, ...)
{
    char context[256], old[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    memcpy(old, e->msg, sizeof old);
    return (e->is_local ? err_set_local : err_set)(e, "%s: %s", context, old);
}

void err_hide_folder(err *e, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    for (char *at; n > 0 && (at = memmem(e->msg, strlen(e->msg), dir, n));) {
        const char *rest = at + n;
        char text[sizeof e->msg];
        rest += *rest == '/' ? 1 : strncmp(rest, ": ", 2) == 0 ? 2 : 0;
        snprintf(text, sizeof text, "%s%s", rest == at + n ? "the folder" : "", rest);
        snprintf(at, sizeof e->msg - (size_t)(at - e->msg), "%s", text);
        if (rest == at + n && memmem("the folder", 10, dir, n))
            return; /* "t" as a folder would be found for ever */
    }
}

void check_failed(const char *cond, const char *file, int line)
{
    char text[600];
    int n = snprintf(text, sizeof text, "punica: internal error at %s:%d: CHECK(%.300s)\n", file, line, cond);
    log_write(text, (size_t)n);
    log_flush();
    abort();
}
