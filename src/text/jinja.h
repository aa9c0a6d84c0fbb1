/* jinja.h - chat templates are Jinja programs: compile and run them
 *
 * The language is what Transformers' apply_chat_template gives a template: Jinja 3.1's immutable sandbox with
 * trim_blocks, lstrip_blocks and loop controls, its own tojson, raise_exception, strftime_now and generation blocks.
 * Values behave as Python's do, strings are sequences of code points. Left out, with an error that says so: include,
 * import, extends, blocks, autoescape, integers beyond 64 bits, and the filters that no prompt needs (jinja_filters.c).
 *
 *   source ─ jinja_lex ─▶ tokens ─ jinja_parse, jinja_expr ─▶ tree ─ jinja_scope ─▶ names resolved ─ jinja_eval ─▶ text
 *
 *   jinja_eval, jinja_loop, jinja_macro                    statements and expressions; for, macro, call
 *   jinja_ops, jinja_methods, jinja_globals                operators and attributes, methods, functions
 *   jinja_filters, jinja_sequences, jinja_tests            {{ x | filter }}, {% if x is test %}
 *   jinja_value, jinja_dict, jinja_iter, jinja_str,        Python's values
 *   jinja_case, jinja_chars, jinja_repr, jinja_format,     and their text
 *   jinja_json
 *   jinja_own                                              whose text it is: the template's own, or the conversation's
 *
 * A program is immutable: several threads may render from one. A render has an arena of its own, and bounds on steps,
 * depth, memory and output, so that a template can neither crash the process nor block the event loop's thread. */
#ifndef PUNICA_TEXT_JINJA_H
#define PUNICA_TEXT_JINJA_H

#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "text/spans.h"

typedef struct jinja jinja;

/* Compiles a program. NULL with e set on failure, which names line and construct; free with jinja_free(). */
jinja *jinja_compile(const char *source, size_t n, err *e);
void jinja_free(jinja *p);

/* What a render may use. */
typedef struct {
    long steps;    /* nodes of the tree evaluated, and within a node the items or bytes looked at */
    size_t memory; /* bytes */
    size_t output; /* bytes */
} jinja_limits;

extern const jinja_limits jinja_default_limits;

/* What a program is given. variables: a JSON object. own: another JSON object, or NULL, whose strings count as the
 * template's own (jinja_own.h); a name is looked up there if variables does not have it. now: for strftime_now. */
typedef struct {
    const json_t *variables, *own;
    time_t now;
} jinja_input;

/* Runs the program and appends its text to out. own, unless NULL, gets the spans of that text that are the template's
 * own, as offsets from where the text begins. 0, or -1 with e set and out and own as before: e names line and
 * construct; for raise_exception it has the template's message. */
int jinja_render(const jinja *p, const jinja_input *in, const jinja_limits *limits, buf *out, text_spans *own, err *e);

#endif
