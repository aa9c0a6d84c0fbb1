/* call_text.h - one call of a function as models write it: a JSON object, or Python
 *
 * The text may end in the middle: it is read again when more has come. JSON arguments are copied letter by letter,
 * valid or not: checking them is for the client, as with OpenAI. Pure functions. */
#ifndef PUNICA_FRONTEND_CALL_TEXT_H
#define PUNICA_FRONTEND_CALL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef enum { CALL_MORE, CALL_DONE, CALL_BAD } call_status; /* MORE: incomplete; BAD: no call, whatever comes */

typedef struct {
    buf name, arguments; /* arguments: as much of them as is there */
    bool begun;          /* it is known to be a call: name and arguments may be told */
    size_t end;          /* of CALL_DONE: where it ends */
} call_text;

void call_text_free(call_text *c);

/* Reads {"name": ..., "arguments" or "parameters": {...}}, ignoring other members. An object with a name alone ("type"
 * and "id" aside) is a call without arguments. out: all zero; freed by the caller. */
call_status call_read_object(const char *text, size_t n, call_text *out);

/* Reads a JSON value: arguments that stand alone. out->begun once there is anything. */
call_status call_read_arguments(const char *text, size_t n, call_text *out);

/* Reads name(key=value, ...). out->begun only when it is complete. */
call_status call_read_python(const char *text, size_t n, call_text *out);

#endif
