/* tools.h - functions that a model may call: what a request says of them, and how calls are written
 *
 * Models write calls in their own ways, which their chat templates show:
 *
 *   Hermes, Qwen      <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several behind each other
 *   Llama 3 JSON      {"name": ..., "parameters": {...}} and nothing else; several with ; between
 *   pythonic          [name(x=1, y='z'), ...] and nothing else
 *   Mistral           [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...},
 *                     several behind each other
 *
 * Where a call is demanded (tool_choice "required", or a function's name) the output follows a grammar, and is a list
 * of {"name": ..., "parameters": {...}}, or the arguments alone. output_parts.h finds calls in outputs. Pure
 * functions. */
#ifndef PUNICA_FRONTEND_TOOLS_H
#define PUNICA_FRONTEND_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "frontend/api_error.h"
#include "text/chat.h"

typedef enum {
    TOOLS_NONE,
    TOOLS_HERMES,
    TOOLS_LLAMA,
    TOOLS_PYTHONIC,
    TOOLS_MISTRAL,
    TOOLS_REQUIRED,
    TOOLS_NAMED
} tools_format;

/* Returns how a chat template's model writes calls; TOOLS_NONE: in no way that is known. */
tools_format tools_format_of(const chat_template *c);

/* What "tools" and "tool_choice" ask for. */
typedef enum { CHOICE_NONE, CHOICE_AUTO, CHOICE_REQUIRED, CHOICE_NAMED } tools_choice;

/* Reads "tools" and "tool_choice": 0, or -1 with e naming the field. *name: the function that is demanded, borrowed
 * from input; else NULL. */
int tools_parse(const json_t *input, tools_choice *choice, const char **name, api_error *e);

/* Returns the JSON Schema of an output, owned by the caller; NULL with e set. name: the arguments of this function;
 * NULL: a list of one call of any of the tools, or, if many, of several. */
json_t *tools_schema(const json_t *tools, const char *name, bool many, api_error *e);

#endif
