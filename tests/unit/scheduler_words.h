/* scheduler_words.h - the scheduler's commands in words, a line each, for tests to compare */
#ifndef PUNICA_TESTS_SCHEDULER_WORDS_H
#define PUNICA_TESTS_SCHEDULER_WORDS_H

#include "base/buf.h"
#include "scheduler/scheduler.h"
#include "test.h"

static void say_add(buf *b, uint64_t id, int gpu, uint32_t attempt, const int *token, int n, int n_prompt, int max_tokens)
{
    buf_printf(b, "add %d to %d as #%u, %d of %d:", (int)id, gpu, attempt, n_prompt, max_tokens);
    for (int i = 0; i < n; i++)
        buf_printf(b, " %d", token[i]);
    buf_add_str(b, "\n");
}

static void say_tokens(buf *b, uint64_t id, int frontend, int index, const int *token, int n)
{
    buf_printf(b, "tokens of %d for %d from %d:", (int)id, frontend, index);
    for (int i = 0; i < n; i++)
        buf_printf(b, " %d", token[i]);
    buf_add_str(b, "\n");
}

static const char *const end_names[] = {"stop", "length", "failed", "queue full", "too late", "too large", "kills workers"};

static void say_end(buf *b, uint64_t id, int frontend, end_reason why)
{
    buf_printf(b, "end %d for %d: %s\n", (int)id, frontend, end_names[why]);
}

/* Takes the commands of a scheduler; ctx: a buf. */
static void write_down(void *ctx, const command *c)
{
    buf *b = ctx;
    switch (c->kind) {
    case COMMAND_ADD:
        assert_true(c->what->id == c->id);
        say_add(b, c->id, c->gpu, c->attempt, c->what->token, c->what->n_tokens, c->what->n_prompt, c->what->max_tokens);
        break;
    case COMMAND_CANCEL:
        buf_printf(b, "cancel %d on %d, #%u\n", (int)c->id, c->gpu, c->attempt);
        break;
    case COMMAND_TOKENS:
        say_tokens(b, c->id, c->frontend, c->tokens->index, c->tokens->token, c->tokens->n);
        break;
    case COMMAND_END:
        assert_true((c->message != NULL) == (c->why != END_STOP && c->why != END_LENGTH));
        say_end(b, c->id, c->frontend, c->why);
        break;
    }
}

#endif
