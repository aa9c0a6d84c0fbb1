/* call_text.h - one call of a function as models write it: a JSON object, or Python
 *
 * The text may end in the middle: it is read again when more has come. Arguments are what the model wrote, letter by
 * letter where it wrote JSON; whether that is valid is for who made the call to see, as with OpenAI. Pure functions. */
#ifndef PUNICA_FRONTEND_CALL_TEXT_H
#define PUNICA_FRONTEND_CALL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef enum { CALL_MORE, CALL_DONE, CALL_BAD } call_state; /* BAD: it is no call, whatever comes */

typedef struct {
    buf name, arguments; /* arguments: as much of them as is there */
    bool begun;          /* it is known to be a call: name and arguments may be told */
    size_t end;          /* of CALL_DONE: where it ends */
} call_text;

void call_text_free(call_text *c);

/* {"name": ..., "arguments" or "parameters": {...}}, with other members ignored. An object with a name and nothing else
 * is a call without arguments. */
call_state call_read_object(const char *text, size_t n, call_text *out);

/* A JSON value: arguments that stand alone. out->begun once there is anything. */
call_state call_read_arguments(const char *text, size_t n, call_text *out);

/* name(key=value, ...); it is begun when it is complete. */
call_state call_read_python(const char *text, size_t n, call_text *out);

#endif
