/* shape_text.h - what the translations of shapes have in common: small steps on JSON */
#ifndef PUNICA_FRONTEND_SHAPE_TEXT_H
#define PUNICA_FRONTEND_SHAPE_TEXT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "frontend/api_error.h"

/* Return whether v is this text. */
bool json_says(const json_t *v, const char *text);

/* Rename a member; where it is missing or null, neither name is there afterwards. */
void json_rename(json_t *object, const char *from, const char *to);

/* Refuse fields of chats that this shape does not have, as they must neither be ignored nor reach the chat: -1 with e
 * set where one asks for something. Those that ask for nothing are removed. fields: ends with NULL. */
int refuse_fields_of_chats(json_t *body, const char *const *fields, api_error *e);

/* Append a message to the list and return it, borrowed; content is taken. */
json_t *add_message(json_t *messages, const char *role, json_t *content);

/* Return the last message if it is the assistant's, else append one with empty content. Borrowed. */
json_t *assistant_turn(json_t *messages);

/* Add a call to an assistant's message; arguments are taken. */
void add_tool_call(json_t *message, json_t *id, json_t *name, json_t *arguments);

/* Append an event of a stream, "event: NAME\ndata: ...\n\n", and free the value. */
void add_event(buf *out, const char *name, json_t *data);

#endif
