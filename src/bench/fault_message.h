/* fault_message.h - what crosses a simulated link: the messages of net/wire.proto, as plain values
 *
 * Made with message_new(), handed from owner to owner, ended with message_free(). */
#ifndef PUNICA_BENCH_FAULT_MESSAGE_H
#define PUNICA_BENCH_FAULT_MESSAGE_H

#include "scheduler/scheduler.h"

typedef enum {
    MESSAGE_HELLO,              /* both ways, first */
    MESSAGE_SUBMIT,             /* frontend to scheduler */
    MESSAGE_CANCEL,             /* frontend to scheduler, scheduler to runner */
    MESSAGE_RESULTS,            /* scheduler to frontend */
    MESSAGE_ADD,                /* scheduler to runner */
    MESSAGE_STEP,               /* runner to scheduler, from here on */
    MESSAGE_GPU_UP,
    MESSAGE_GPU_GONE,
    MESSAGE_DRAIN,
    MESSAGE_CLOSE,              /* both ways, last */
    N_MESSAGE_KINDS
} message_kind;

const char *message_name(message_kind k);

/* One token, or the end of a request. why: an outcome from workers, an end_reason towards frontends. */
typedef struct { uint64_t id; uint32_t attempt; bool is_end; int index, token, why; } message_part;

typedef struct {
    message_kind kind;
    uint64_t instance;          /* HELLO */
    uint64_t id;                /* SUBMIT, ADD, CANCEL */
    uint32_t attempt;           /* ADD, CANCEL to a runner */
    double arrival;             /* SUBMIT, ADD, from here on */
    int *token;                 /* [n_tokens] */
    int n_tokens, n_prompt, max_tokens;
    bool again;                 /* SUBMIT */
    int gpu;                    /* of the runner's: ADD, CANCEL, STEP, GPU_UP, GPU_GONE */
    uint64_t start;             /* GPU_UP, and repeated in ADD, CANCEL: for which start of the worker it is meant */
    bool died;                  /* GPU_GONE */
    uint64_t n_seen;            /* STEP, from here on */
    int pages_free;
    message_part *part;         /* [n_parts] STEP, RESULTS */
    size_t n_parts, part_cap;
} message;

message *message_new(message_kind kind);
void message_free(message *m);
void message_set_tokens(message *m, const int *token, int n_tokens);
void message_add_part(message *m, message_part p);

#endif
