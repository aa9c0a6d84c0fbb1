/* api_shape.h - the shapes of the API that clients may use; the rest of the frontend knows only one
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
    bool prompt_only; /* no output: the prompt's tokens are counted or shown */

    /* Makes body the completion or chat that means the same. *repeated: what the answer repeats of it, owned by the
     * caller (may stay NULL). -1 with e set. NULL: it is one already. */
    int (*translate)(json_t *body, char **repeated, api_error *e);

    /* Writes a whole answer. c is not used with prompt_only. */
    void (*write)(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u);
    /* In place of write, for shapes that answer with the prompt itself (/tokenize): it may be empty or longer than the
     * context. The body tells whether it is a prompt or a conversation; the model "" is the base. */
    void (*write_prompt)(buf *out, const tokenizer *t, const ids *prompt, int context, bool strings);
    void (*write_error)(const api_error *e, buf *out);

    /* A stream. stream_new makes its state before the first event (h stays valid; u has the prompt's tokens),
     * stream_add appends what is new of a choice, stream_end the end when all choices have finished, stream_fail a
     * failure in the middle. NULL where there are no streams. */
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
