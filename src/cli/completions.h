/* completions.h - what `punica generate` has made of each prompt, and how it is shown
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
    detokenizer live; /* of a single one: its text so far */
    int n_live;       /* tokens of it that are written; below 0: there is none to be written as it comes */
} completions;

void completions_init(completions *c, const prompts *in, const tokenizer *t, bool json);
void completions_deinit(completions *c);

bool completions_has_news(const completions *c); /* there is something to be written */

/* Write what there is to be written. */
void completions_write(completions *c);

/* There will be no more: write all of the others, too. How many have failed. */
int completions_finish(completions *c);

#endif
