/* conversation.h - OpenAI's messages as chat templates expect them
 *
 * Clients send a tool call's arguments as JSON text, where templates expect an object; and some templates know content
 * as a text only, others as a list of parts only. */
#ifndef PUNICA_FRONTEND_CONVERSATION_H
#define PUNICA_FRONTEND_CONVERSATION_H

#include "base/json.h"
#include "text/chat.h"

/* Returns the messages (checked by api_request.h) as this template expects them. Owned by the caller; what needs no
 * change is shared. */
json_t *conversation_for(const chat_template *c, const json_t *messages);

#endif
