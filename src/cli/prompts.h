/* prompts.h - the prompts of `punica generate`
 *
 * From one --prompt, or from a file of JSON objects, one a line:
 *   {"adapter": NAME or null, "prompt": TEXT or [ids], "max_tokens": N, sampling parameters...} */
#ifndef PUNICA_CLI_PROMPTS_H
#define PUNICA_CLI_PROMPTS_H

#include <stdio.h>

#include "engine/sampling.h"
#include "text/tokenizer.h"

typedef struct {
    int line;      /* of the prompts file; 0: from the command line */
    char *adapter; /* NULL: the base model */
    int *token;    /* [n_tokens] prompt, then output */
    int n_tokens, n_prompt;
    size_t token_cap;
    sampling_params sampling;
} prompt;

typedef struct {
    prompt *at;
    int n;
    size_t cap;
} prompts;

/* Appends one prompt of the given text; adapter NULL: of the base model. 0, or -1 with e set. */
int prompts_add_text(prompts *p, const char *adapter, const char *text, const tokenizer *t,
                     const sampling_params *sampling, err *e);

/* Appends every line of the file; `defaults` apply where a line says nothing. A line without a seed of its own gets one
 * from defaults->seed and its place among the prompts. 0, or -1 with e set; name is the file's, for errors. */
int prompts_read(prompts *p, FILE *in, const char *name, const tokenizer *t, const sampling_params *defaults, err *e);

void prompt_append(prompt *q, int token);
void prompts_deinit(prompts *p);

#endif
