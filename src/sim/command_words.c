/* command_words.c - see command_words.h */
#include "sim/command_words.h"

#include "base/err.h"

void command_words_add(buf *b, uint64_t id, int gpu, uint32_t attempt, const int *token, int n, int n_prompt,
                       int max_tokens, int n_scored)
{
    buf_printf(b, "add %llu to %d as #%u, %d of %d", (unsigned long long)id, gpu, attempt, n_prompt, max_tokens);
    if (n_scored)
        buf_printf(b, ", %d scored", n_scored);
    buf_add_str(b, ":");
    for (int i = 0; i < n; i++)
        buf_printf(b, " %d", token[i]);
    buf_add_str(b, "\n");
}

void command_words_tokens(buf *b, uint64_t id, int frontend, int index, const int *token, int n)
{
    buf_printf(b, "tokens of %llu for %d from %d:", (unsigned long long)id, frontend, index);
    for (int i = 0; i < n; i++)
        buf_printf(b, " %d", token[i]);
    buf_add_str(b, "\n");
}

static const char *const end_names[N_END_REASONS] = {
    [END_STOP] = "stop",
    [END_LENGTH] = "length",
    [END_FAILED] = "failed",
    [END_EVICTED] = "evicted",
    [END_QUEUE_FULL] = "queue full",
    [END_TOO_LATE] = "too late",
    [END_TOO_LARGE] = "too large",
    [END_KILLS_WORKERS] = "kills workers",
};

void command_words_end(buf *b, uint64_t id, int frontend, end_reason why)
{
    buf_printf(b, "end %llu for %d: %s\n", (unsigned long long)id, frontend, end_names[why]);
}

void command_words_write(void *ctx, const command *c)
{
    buf *b = ctx;
    switch (c->kind) {
    case COMMAND_ADD:
        CHECK(c->what->id == c->id);
        command_words_add(b, c->id, c->gpu, c->attempt, c->what->token, c->what->n_tokens, c->what->n_prompt,
                          c->what->max_tokens, c->what->n_scored);
        break;
    case COMMAND_CANCEL:
        buf_printf(b, "cancel %llu on %d, #%u\n", (unsigned long long)c->id, c->gpu, c->attempt);
        break;
    case COMMAND_TOKENS:
        command_words_tokens(b, c->id, c->frontend, c->tokens->index, c->tokens->token, c->tokens->n);
        break;
    case COMMAND_END:
        CHECK((c->message != NULL) == (c->why != END_STOP && c->why != END_LENGTH));
        command_words_end(b, c->id, c->frontend, c->why);
        break;
    }
}
