/* command_words.h - the scheduler's commands in words, a line each: for comparison and traces */
#ifndef PUNICA_SIM_COMMAND_WORDS_H
#define PUNICA_SIM_COMMAND_WORDS_H

#include "base/buf.h"
#include "scheduler/scheduler.h"

void command_words_add(buf *b, uint64_t id, int gpu, uint32_t attempt, const int *token, int n, int n_prompt,
                       int max_tokens, int n_scored);
void command_words_tokens(buf *b, uint64_t id, int frontend, int index, const int *token, int n);
void command_words_end(buf *b, uint64_t id, int frontend, end_reason why);

/* Appends any command; a command_sink, with a buf as ctx. */
void command_words_write(void *ctx, const command *c);

#endif
