/* conversation.h - OpenAI's messages as chat templates expect them
 *
 * The two differ in what clients must send and templates must get: a tool call's arguments are a JSON text there and an
 * object here, and not every template knows content made of parts, or content that is not. */
#ifndef PUNICA_FRONTEND_CONVERSATION_H
#define PUNICA_FRONTEND_CONVERSATION_H

#include "base/json.h"
#include "text/chat.h"

/* These messages (checked by api_request.h) for this template. Owned by the caller; what needs no change is shared. */
json_t *conversation_for(const chat_template *c, const json_t *messages);

#endif
