/* call_state.h - everything a call knows (internal to call.c, call_choices.c and call_end.c)
 *
 *   call.c           its way to the scheduler: prepared, its adapter here, within limits
 *   call_choices.c   its requests at the scheduler: submitted, billed, and what of their output the client is sent
 *   call_end.c       its end, of whatever kind: the last bytes, the counts, the line in the log */
#ifndef PUNICA_FRONTEND_CALL_STATE_H
#define PUNICA_FRONTEND_CALL_STATE_H

#include "frontend/answer.h"
#include "frontend/call.h"
#include "frontend/fetches.h"

typedef struct call call;

typedef struct {
    call *owner;       /* borrowed: a choice is part of its call */
    uint64_t id;       /* at the scheduler; 0: not there */
    int index, prompt; /* number of the prompt it belongs to */
    bool in_flight;    /* counted among its tenant's requests in flight */
    bool waits;        /* it has no token yet */
    answer_rules rules;
    answer a;
    bool told;        /* of a stream: something of it has been sent */
    int n_counted;    /* tokens that are counted and billed */
    int64_t n_cached; /* of its prompt */
    size_t taken;     /* bytes from the budget, for what a holds */
    double last;      /* when its last token came */
} choice;

struct call {
    service *s;         /* borrowed */
    tenant *who;        /* kept; NULL: where there are none */
    account_entry bill; /* of who */
    int64_t *unbilled;  /* [n_prompts] tokens of a prompt; 0 once one of its choices was billed for them */
    reply *to;
    const api_shape *shape;
    prepare_job *preparing; /* NULL: it is prepared */
    fetch_wait *fetching;   /* waits for its adapter to be fetched to this host; NULL: it does not */
    charged_buf body;       /* kept while the adapter is fetched */
    int n_fetches;
    prepared *p;       /* NULL: not yet */
    const char *route; /* for the counts; static */
    catalog_kind kind;
    char name[48];   /* "cmpl-..." */
    char client[64]; /* its address */
    api_head head;
    void *events;   /* of a stream: its shape's state; NULL: not begun */
    buf text;       /* scratch of a stream */
    choice *choice; /* [n_choices] */
    int n_choices, n_open;
    int64_t prompt_tokens, cached_tokens;
    bool begun;          /* of a stream: something has been sent */
    loop_timer *quiet;   /* of a stream: sends keep-alives; NULL: none are wanted */
    double start, first; /* when it came, and its first token; first 0: none yet */
    budget *memory;      /* borrowed: the tenant's part of the budget; NULL: no limit */
    size_t taken;        /* bytes from it */
};

/* In call_choices.c. Submits all choices of a call that is prepared: 0, or -1 with e set: there is no room for all, and
 * the caller ends the call. */
int call_submit(call *c, api_error *e);

/* Sends keep-alives from now on whenever the stream has had no token for a while. */
void call_keep_alive(call *c);

/* Counts and bills the tokens of a choice that have come since the last time. */
void call_count_tokens(call *c, choice *k);

/* Ends a choice: cancels it at the scheduler if it is still there, and takes it from its tenant's requests in
 * flight. */
void call_close_choice(call *c, choice *k);

/* In call_end.c. Each of these ends the call and frees it, except call_usage(). */
void call_fail(call *c, const api_error *e);
void call_finish(call *c);             /* all choices are complete */
void call_send_prompt_tokens(call *c); /* the prompt's tokens are all that was asked for */
void call_on_client_gone(void *call, client_loss why);
api_usage call_usage(const call *c);

#endif
