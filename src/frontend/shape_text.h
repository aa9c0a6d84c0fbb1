/* shape_text.h - what the translations of shapes have in common: small steps on JSON */
#ifndef PUNICA_FRONTEND_SHAPE_TEXT_H
#define PUNICA_FRONTEND_SHAPE_TEXT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "frontend/api_error.h"

/* Whether v is the string. */
bool json_says(const json_t *v, const char *text);

/* Move a member to another name; where it is not there, or null, neither is. */
void json_rename(json_t *object, const char *from, const char *to);

/* -1 with e set where the body has a field of chats that this shape has not, and that asks for something: it must
 * neither be ignored nor reach the chat. Those that ask for nothing are removed. fields: ends with NULL. */
int refuse_fields_of_chats(json_t *body, const char *const *fields, api_error *e);

/* A message, appended to the list; content is taken. Borrowed. */
json_t *add_message(json_t *messages, const char *role, json_t *content);

/* The last message if it is the assistant's, else a new one of it, without content. Borrowed. */
json_t *assistant_turn(json_t *messages);

/* Add a call to an assistant's message; arguments are taken. */
void add_tool_call(json_t *message, json_t *id, json_t *name, json_t *arguments);

/* Append an event of a stream, "event: NAME\ndata: ...\n\n", and free the value. */
void add_event(buf *out, const char *name, json_t *data);

#endif
