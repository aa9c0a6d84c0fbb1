/* output_parts.h - an output's text as its parts: reasoning, content, calls of functions
 *
 *   <think> reasoning </think> content <tool_call> a call </tool_call> ...
 *
 * Text comes piece by piece; the parts only grow, and are the same however the text was cut. A call's arguments are
 * told as they come; a call that is cut off is told as far as it went. What looks like a call and is none is content,
 * letter by letter. Blanks around reasoning and calls are dropped. */
#ifndef PUNICA_FRONTEND_OUTPUT_PARTS_H
#define PUNICA_FRONTEND_OUTPUT_PARTS_H

#include "base/buf.h"
#include "frontend/tools.h"

typedef struct {
    tools_format tools;                                 /* TOOLS_NONE: there are no calls */
    const char *tool_name;                              /* of TOOLS_NAMED */
    bool one_call;                                      /* calls behind the first are dropped */
    enum { THINKS_NOT, THINKS, THINKS_ALREADY } thinks; /* ALREADY: the prompt has opened <think> */
} parts_rules;

typedef struct {
    char *name;
    buf arguments;
} tool_call; /* arguments: JSON */

typedef struct {
    buf reasoning, content;
    tool_call *call; /* [n_calls] */
    int n_calls;
    size_t calls_cap;
    size_t at; /* how much of the text is told or dropped */
    enum { IN_BEGINNING, IN_REASONING, BEHIND_REASONING, IN_CONTENT, IN_CALL } in;
    size_t doubtful;  /* in a call: where content goes on if it is none: at the blanks before it */
    bool goes_on;     /* in a call: one is complete; its end tag, or the list's next element or end, is to come */
    bool any_content; /* there was more than blanks: a call without a mark cannot begin any more */
    bool open;        /* the last call is not complete */
} output_parts;

void output_parts_free(output_parts *p);

/* Reads on in the text so far, of which nothing may have changed since the last call. whole: there will be no more. */
void output_parts_read(output_parts *p, const parts_rules *r, const char *text, size_t n, bool whole);

/* Returns the marks that say where parts begin and end, [*n], static. As special tokens they are hidden in text. */
const char *const *output_marks(int *n);

#endif
