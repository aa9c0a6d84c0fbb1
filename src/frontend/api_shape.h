/* api_shape.h - the shapes of the API in which clients may ask, all of which are the same to everybody else
 *
 * A shape translates its requests into those of completions or chats, the one form that is checked and served, and
 * writes answers, events of streams and errors as its clients know them. */
#ifndef PUNICA_FRONTEND_API_SHAPE_H
#define PUNICA_FRONTEND_API_SHAPE_H

#include "base/json.h"
#include "frontend/api_error.h"
#include "frontend/api_reply.h"
#include "text/tokenizer.h"

typedef struct api_shape {
    const char *id_prefix; /* what ids of calls begin with */
    bool chat;
    bool counts; /* only how many tokens the prompt has is asked */

    /* Make body the chat that means the same. repeated: what the answer repeats of it, the caller's (may stay NULL). -1
     * with e set. NULL: it is one already. */
    int (*translate)(json_t *body, char **repeated, api_error *e);

    /* A whole answer; of a shape that counts, c is not looked at. */
    void (*write)(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u);
    /* Of a shape that asks for the prompt itself, of any length, or none: what there is in place of write. Whether it
     * is a prompt or a conversation the body tells; without a model the base is meant. */
    void (*write_prompt)(buf *out, const tokenizer *t, const ids *prompt, int context, bool strings);
    void (*write_error)(const api_error *e, buf *out);

    /* A stream: what it keeps, from the first event on (h stays valid; u has the prompt's tokens); what is new of a
     * choice; its end, when all choices have told how they finished; or its failure in the middle. NULL where there are
     * no streams. */
    void *(*stream_new)(const api_head *h, const api_usage *u);
    void (*stream_add)(void *s, buf *out, const api_choice *news);
    void (*stream_end)(void *s, buf *out, const api_usage *u);
    void (*stream_fail)(void *s, buf *out, const api_error *e);
    void (*stream_free)(void *s);
} api_shape;

extern const api_shape shape_completions, shape_chat;      /* shape_openai.c: OpenAI's, as they are */
extern const api_shape shape_responses;                    /* shape_responses.c: OpenAI's Responses */
extern const api_shape shape_messages, shape_count_tokens; /* shape_messages.c: Anthropic's */
extern const api_shape shape_tokenize, shape_detokenize;   /* shape_tokens.c: vLLM's */

#endif
