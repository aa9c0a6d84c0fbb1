/* fault_message.c - see fault_message.h */
#include "bench/fault_message.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

const char *message_name(message_kind k)
{
    static const char *const names[N_MESSAGE_KINDS] = {"hello", "submit", "cancel", "results", "add", "step", "gpu up", "gpu gone", "drain",
                                                       "close"};
    return names[k];
}

message *message_new(message_kind kind)
{
    message *m = XNEW(message);
    m->kind = kind;
    return m;
}

void message_free(message *m)
{
    if (!m)
        return;
    free(m->token);
    free(m->part);
    free(m);
}

void message_set_tokens(message *m, const int *token, int n_tokens)
{
    m->token = XNEW_ARRAY(int, (size_t)n_tokens + 1);
    memcpy(m->token, token, (size_t)n_tokens * sizeof *token);
    m->n_tokens = n_tokens;
}

void message_add_part(message *m, message_part p)
{
    m->part = xgrow(m->part, &m->part_cap, m->n_parts + 1, sizeof *m->part);
    m->part[m->n_parts++] = p;
}
