/* answer.h - one output as the client sees it: tokens in, text and logprobs out
 *
 * A prompt that is scored comes first, token by token; an echo of it is not told before that is done.
 *
 * Ends by itself at an end token, at a stop string, or when it is long enough; an end token is not shown, nor is any
 * part of a stop string unless that is asked for. Knows nothing of connections. */
#ifndef PUNICA_FRONTEND_ANSWER_H
#define PUNICA_FRONTEND_ANSWER_H

#include <stdint.h>

#include "frontend/api_reply.h"
#include "frontend/output_parts.h"
#include "frontend/stop.h"
#include "net/wire.pb-c.h"
#include "text/detokenizer.h"

#define MAX_END_IDS 32
#define MAX_MARKS 8

/* What ends an output. Borrowed by the answer while it lives. */
typedef struct {
    const stop_string *stop; /* [n_stops] */
    int n_stops;
    int end_id[MAX_END_IDS];
    int n_end_ids;
    int max_tokens, min_tokens; /* of output; before min_tokens nothing but length ends it */
    bool logprobs;
    int n_to_score;         /* the first tokens that come are the prompt's last, with their logprobs */
    int n_echoed, n_listed; /* api_prompt_logprobs */
    parts_rules parts;      /* all zero: all is content */
    int mark_id[MAX_MARKS]; /* output_marks() that are tokens and hidden otherwise; 0: not so */
    uint64_t call_seed;     /* what ids of calls are made of */
    bool include_stop;      /* a stop string is shown */
    bool whole_chars;       /* a character that is cut off by length is left out: what is shown is then the beginning of
                             * something that obeys the request's grammar */
} answer_rules;

typedef enum { ANSWER_OPEN, ANSWER_STOP, ANSWER_LENGTH } answer_state;

typedef struct {
    const answer_rules *rules;
    const tokenizer *t; /* borrowed */
    int plain_id;       /* some token of plain text */
    detokenizer d;
    answer_state state;
    int n_tokens;
    double sum_logprobs;    /* of these, as far as they came */
    buf text;               /* all of it, whole characters */
    output_parts parts;     /* where the output has any */
    int reasoning_tokens;   /* of n_tokens */
    size_t stop_at, n_stop; /* the stop string that ended it, in text; n_stop 0: none did */
    size_t given,
        reasoning_given;    /* how much of content (text, where all is content) and of reasoning has been taken */
    int calls_given;        /* how many calls have been named, */
    size_t arguments_given; /* and how much was told of the last one's arguments */
    api_call *call;         /* what the last answer_take() or answer_all() told */
    size_t call_cap;
    size_t end;            /* how much of text may be taken now: an echo, and what no stop string can begin in */
    size_t counted, chars; /* characters of the first bytes of text */
    api_logprob *logprob;  /* [n_logprobs] one for every token that is shown */
    int n_logprobs, logprobs_given;
    size_t logprob_cap;
    api_logprob *prompt; /* [n_prompt] of the prompt's tokens; NULL: it is not scored */
    int n_prompt, n_scored;
    size_t prompt_cap;
    detokenizer prompt_d; /* while it is scored */
    buf prompt_text;      /* of its last token */
    size_t prompt_chars;  /* of those so far */
    bool prompt_given;
} answer;

/* plain_id: of any token that is ordinary text, after which others show their blanks. */
void answer_init(answer *a, const answer_rules *r, const tokenizer *t, int plain_id, const int *prompt,
                 size_t n_prompt);
void answer_deinit(answer *a);

/* Sets the text of the prompt, which is to be shown before the output. Before any token. */
void answer_echo(answer *a, const buf *prompt);

/* Begins to score the prompt; first: its first token, which has no score as nothing stands before it. Before any token.
 */
void answer_begin_scores(answer *a, int first);

/* Adds the next token, of the prompt where that is scored, then of output; p: its logprobs, NULL if none came. Must not
 * be called once the output has ended. */
void answer_add(answer *a, int token, const Logprobs *p);

/* Ends the output from outside: its worker says that there are no more tokens. */
void answer_finish(answer *a, answer_state why);

/* The mean of its tokens' logprobs. */
double answer_likelihood(const answer *a);

/* Whether there is something to tell that has not been taken. */
bool answer_has_news(const answer *a);

/* Bytes of memory that it holds, about. */
size_t answer_size(const answer *a);

/* What has become certain since the last call, or everything so far. Pointers hold until the next call. */
api_choice answer_take(answer *a);
api_choice answer_all(answer *a);

#endif
