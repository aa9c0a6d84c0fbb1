/* tools.h - functions that a model may call: what a request says of them, and calls found in an output
 *
 * Models write calls in their own ways, which their chat templates tell:
 *
 *   Hermes, Qwen      <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several behind each other
 *   Llama 3 JSON      {"name": ..., "parameters": {...}} and nothing else; several with ; between
 *   pythonic          [name(x=1, y='z'), ...] and nothing else
 *   Mistral           [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...}
 *
 * Where a call is demanded (tool_choice "required", or a function's name) the output follows a grammar, and is a list of
 * {"name": ..., "parameters": {...}}, or the arguments alone. Pure functions. */
#ifndef PUNICA_FRONTEND_TOOLS_H
#define PUNICA_FRONTEND_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "frontend/api_error.h"
#include "text/chat.h"

typedef enum { TOOLS_NONE, TOOLS_HERMES, TOOLS_LLAMA, TOOLS_PYTHONIC, TOOLS_MISTRAL, TOOLS_REQUIRED, TOOLS_NAMED } tools_format;

/* What a chat template's model writes; TOOLS_NONE: nothing that is known. */
tools_format tools_format_of(const chat_template *c);

/* A token that announces a call and is not shown as text; NULL: there is none. */
const char *tools_mark(tools_format f);

/* What "tools" and "tool_choice" ask for. */
typedef enum { CHOICE_NONE, CHOICE_AUTO, CHOICE_REQUIRED, CHOICE_NAMED } tools_choice;

/* -1 with e naming the field. *name: of a function that is demanded; borrowed from input. */
int tools_parse(const json_t *input, tools_choice *choice, const char **name, api_error *e);

/* The JSON Schema of an output that calls one of the tools, or the one of this name (NULL: any; several if many). The
 * caller's. NULL with e set. */
json_t *tools_schema(const json_t *tools, const char *name, bool many, api_error *e);

typedef struct { char *name, *arguments; } tool_call;           /* arguments: JSON */
typedef struct { tool_call *at; int n; size_t cap; } tool_calls;
void tool_calls_free(tool_calls *c);

/* Look at an output so far: adds the calls behind those already in `found` that are complete; name: of TOOLS_NAMED. Returns
 * how much of the text is certain to be content, which does not include calls. whole: there will be no more text. */
size_t tools_find(tools_format f, const char *name, const char *text, size_t n, bool whole, tool_calls *found);

#endif
