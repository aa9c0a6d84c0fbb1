/* completions.h - the outcomes of the prompts of `punica generate`, and how they are written
 *
 * Completions are written in the order of their prompts, each as soon as it and all before it are done; a single one is
 * written as it comes. */
#ifndef PUNICA_CLI_COMPLETIONS_H
#define PUNICA_CLI_COMPLETIONS_H

#include "cli/prompts.h"
#include "engine/engine.h"
#include "text/detokenizer.h"

/* How a prompt ended, and the logprobs of its output where asked for. */
typedef struct {
    bool done, failed; /* neither: it was cut off */
    err error;
    finish_reason why;
    sample_result *drawn; /* [output tokens] when logprobs are asked for */
    size_t n_drawn, drawn_cap;
} outcome;

typedef struct {
    const prompts *in;  /* borrowed */
    const tokenizer *t; /* borrowed */
    outcome *out;       /* [in->n] */
    bool json;
    int n_written;
    int width;        /* of the names in front of texts */
    detokenizer live; /* a single one's text so far */
    int n_live;       /* its tokens, with the prompt's, that are written; below 0: nothing is written as it comes */
} completions;

void completions_init(completions *c, const prompts *in, const tokenizer *t, bool json);
void completions_deinit(completions *c);

bool completions_has_news(const completions *c); /* there is something to be written */

/* Writes what is ready to be written. */
void completions_write(completions *c);

/* Writes all that are left, done or not, and returns how many have failed. */
int completions_finish(completions *c);

#endif
