/* tools.h - functions that a model may call: what a request says of them, and how calls are written
 *
 * Models write calls in their own ways, which their chat templates tell:
 *
 *   Hermes, Qwen      <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several behind each other
 *   Llama 3 JSON      {"name": ..., "parameters": {...}} and nothing else; several with ; between
 *   pythonic          [name(x=1, y='z'), ...] and nothing else
 *   Mistral           [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...},
 *                     several behind each other
 *
 * Where a call is demanded (tool_choice "required", or a function's name) the output follows a grammar, and is a list
 * of
 * {"name": ..., "parameters": {...}}, or the arguments alone. output_parts.h finds calls in outputs. Pure functions. */
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

/* What a chat template's model writes; TOOLS_NONE: nothing that is known. */
tools_format tools_format_of(const chat_template *c);

/* What "tools" and "tool_choice" ask for. */
typedef enum { CHOICE_NONE, CHOICE_AUTO, CHOICE_REQUIRED, CHOICE_NAMED } tools_choice;

/* -1 with e naming the field. *name: of a function that is demanded; borrowed from input. */
int tools_parse(const json_t *input, tools_choice *choice, const char **name, api_error *e);

/* The JSON Schema of an output that calls one of the tools, or the one of this name (NULL: any; several if many). The
 * caller's. NULL with e set. */
json_t *tools_schema(const json_t *tools, const char *name, bool many, api_error *e);

#endif
