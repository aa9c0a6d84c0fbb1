/* chat.h - a conversation as the text a model was trained to see
 *
 * Models say how in a Jinja program (chat_template). It is not run here: the form it writes is recognised by what it
 * contains, and written by a function of ours.
 *
 *   ChatML    <|im_start|>role\n content <|im_end|>\n          Qwen, Yi, the demo model; a default system text is kept
 *   Llama 3   <|start_header_id|>role<|end_header_id|>\n\n content <|eot_id|>     with 3.1's preface where it has one
 *   Llama 2   [INST] <<SYS>>\n system \n<</SYS>>\n\n user [/INST] answer </s>
 *
 * Immutable: many threads may write with one template. */
#ifndef PUNICA_TEXT_CHAT_H
#define PUNICA_TEXT_CHAT_H

#include <stddef.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct chat_template chat_template;

typedef struct { const char *role, *content; size_t n; } chat_message;      /* content: [n], not NUL-terminated */

/* What dir/chat_template.jinja or dir/tokenizer_config.json say. A model without a template, or with one of a form
 * that is not known, still gets a chat_template: writing with it fails and says so. NULL with e set when a file is
 * there and cannot be read. */
chat_template *chat_template_load(const char *dir, err *e);

/* The same from texts: the Jinja program (NULL: none) and the tokens it calls bos_token and eos_token. */
chat_template *chat_template_new(const char *program, const char *bos, const char *eos);

void chat_template_free(chat_template *c);

const char *chat_template_form(const chat_template *c);     /* "ChatML", ...; NULL: none that is known */

/* Append the conversation and the opening of the assistant's answer. now: for templates that tell today's date.
 * -1, with out as before, when the template cannot express it. */
int chat_template_write(const chat_template *c, const chat_message *m, int n, time_t now, buf *out, err *e);

#endif
