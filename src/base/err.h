/* err.h - how a failure of the outside world is reported
 *
 * Functions that read files, talk to peers or claim device memory take an `err *` last and return
 * 0 or -1; on -1 the err holds one line for the user, with the names involved. Our own mistakes
 * are not errors: CHECK() them. */
#ifndef PUNICA_BASE_ERR_H
#define PUNICA_BASE_ERR_H

#include <stdbool.h>

typedef struct {
    char msg[512];
    bool is_local; /* this host failed, as when its disk is full: what was asked for may be right, and succeed later */
} err;

/* Sets the message. Always returns -1, so that `return err_set(e, ...)` reads well. */
int err_set(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Does the same for a failure of this host. */
int err_set_local(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " before the message already there. Always returns -1. */
int err_wrap(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Removes a folder's path from the message, for readers who must not learn where files are: "DIR/file: why" becomes
 * "file: why", "DIR: why" becomes "why". */
void err_hide_folder(err *e, const char *dir);

/* Aborts with place and condition when our own reasoning was wrong. Kept in release builds. */
#define CHECK(cond) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__))
void check_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

#endif
