/* chat.h - a conversation as the text a model was trained to see
 *
 * A chat_template holds the Jinja templates that a model comes with, each called a program here; jinja.h runs them.
 * This file does the rest: which program, with which variables, and a last message that is to be continued; all as
 * Transformers' apply_chat_template does it.
 *
 * Immutable: many threads may write with one chat_template. */
#ifndef PUNICA_TEXT_CHAT_H
#define PUNICA_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "text/spans.h"

typedef struct chat_template chat_template;

/* Loads the programs of a directory: chat_template.jinja and additional_chat_templates/NAME.jinja; if there are none of
 * these, "chat_template" in tokenizer_config.json, one or several by name. file, unless NULL, is the one program used
 * instead. Special tokens (bos_token, ...) are those of the directory in any case.
 *
 * A directory without a program, or with a bad one, still gives a chat_template: writing with it fails and says why.
 * NULL with e set when a file exists but cannot be read, and when `file` is bad. Free with chat_template_free(). */
chat_template *chat_template_load(const char *dir, const char *file, err *e);

/* Makes a chat_template of one program (NULL: of none), with these tokens as bos_token and eos_token. Never NULL. */
chat_template *chat_template_new(const char *program, const char *bos, const char *eos);

/* Loads the programs and special tokens of an adapter's directory; tokens that it does not have are base's. NULL with e
 * empty: dir has no program. NULL with e set: a file exists but cannot be read. */
chat_template *chat_template_load_over(const char *dir, const chat_template *base, err *e);

void chat_template_free(chat_template *c);

/* Returns why c cannot write a conversation (without tools); NULL: it can. Borrowed: while c lives. */
const char *chat_template_problem(const chat_template *c);

/* Return whether a message's content may be a list of parts ({"type": "text", "text": ...}); whether it must be one.
 * Both are found out by rendering a message of each form when the template is loaded. */
bool chat_template_takes_parts(const chat_template *c);
bool chat_template_wants_parts(const chat_template *c);

/* Returns whether the source of one of the programs has this text in it. */
bool chat_template_mentions(const chat_template *c, const char *text);

/* What the program is given. All JSON is borrowed. */
typedef struct {
    const json_t *messages;          /* a list of objects */
    const json_t *tools, *documents; /* lists of objects; NULL or null: none */
    const json_t *more;              /* an object with other variables; or NULL */
    bool add_generation_prompt;
    const char *continues; /* the field of the last message that the output continues ("content"); NULL: none */
} chat_input;

/* Renders the conversation and appends it to out. own, unless NULL, gets the spans of out that come from the template
 * itself (jinja_own.h): special tokens are recognised only there (encode_limits of tokenizer.h), and what the
 * conversation says is ordinary text, whatever it looks like. now: for templates that tell today's date. 0, or -1 with
 * e set and out and own as before: the input is bad, or the template refuses it or fails. */
int chat_template_write(const chat_template *c, const chat_input *in, time_t now, buf *out, text_spans *own, err *e);

#endif
