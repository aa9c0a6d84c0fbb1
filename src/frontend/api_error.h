/* api_error.h - what goes wrong with a call, as an HTTP status and OpenAI's error object */
#ifndef PUNICA_FRONTEND_API_ERROR_H
#define PUNICA_FRONTEND_API_ERROR_H

#include "base/buf.h"
#include "base/err.h"

typedef struct {
    int status;                      /* of HTTP */
    const char *type, *code, *param; /* static strings; code and param may be NULL */
    double retry_after;              /* seconds; 0: nothing is said */
    err what;
} api_error;

/* Fills in e; the type follows from the status. Always returns -1. */
int api_error_set(api_error *e, int status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Makes e a 400 whose reason is in e->what already. Always returns -1. */
int api_error_bad(api_error *e, const char *param);

/* Makes e a 404, the same whether the name does not exist or the client may not use it. Always returns -1. */
int api_error_no_model(api_error *e, const char *name);

/* Returns what Retry-After says of an error, in whole seconds; 0: nothing, a retry is of no use. */
int api_error_retry_after(const api_error *e);

/* Appends {"error": {...}}. */
void api_error_write(const api_error *e, buf *out);

#endif
