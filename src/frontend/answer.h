/* answer.h - one output as the client sees it: tokens in, text and logprobs out
 *
 * If the prompt is scored, its tokens come first; an echo of it is held back until they are complete.
 *
 * The output ends by itself at an end token, at a stop string, or at its maximum length. An end token is not shown, nor
 * is any part of a stop string unless that is asked for. Knows nothing of connections. */
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
    int n_to_score;         /* so many tokens of the prompt's end come before the output's, with logprobs */
    int n_echoed, n_listed; /* api_prompt_logprobs */
    parts_rules parts;      /* all zero: all is content */
    int mark_id[MAX_MARKS]; /* of output_marks() that are special tokens, which text hides; 0: it is none */
    uint64_t call_seed;     /* ids of calls are drawn from it */
    bool include_stop;      /* a stop string is shown */
    bool whole_chars;       /* a character that is cut off by length is left out, so that what is shown begins something
                             * that obeys the request's grammar */
} answer_rules;

typedef enum { ANSWER_OPEN, ANSWER_STOP, ANSWER_LENGTH } answer_state;

typedef struct {
    const answer_rules *rules;
    const tokenizer *t; /* borrowed */
    int plain_id;       /* any token of ordinary text */
    detokenizer d;
    answer_state state;
    int n_tokens;
    double sum_logprobs;    /* of these, where logprobs came */
    buf text;               /* all of it, whole characters */
    output_parts parts;     /* where the output has any */
    int reasoning_tokens;   /* of n_tokens */
    size_t stop_at, n_stop; /* the stop string that ended it, in text; n_stop 0: none did */
    /* How much of content (text, where all is content) and of reasoning has been taken. */
    size_t given, reasoning_given;
    int calls_given;        /* how many calls have been named, */
    size_t arguments_given; /* and how much was told of the last one's arguments */
    api_call *call;         /* what the last answer_take() or answer_all() told */
    size_t call_cap;
    size_t end;            /* how much of text may be taken now: no stop string can begin before it */
    size_t counted, chars; /* chars: characters in the first `counted` bytes of text */
    api_logprob *logprob;  /* [n_logprobs] one for every token that is shown */
    int n_logprobs, logprobs_given;
    size_t logprob_cap;
    api_logprob *prompt; /* [n_prompt] of the prompt's tokens; NULL: it is not scored */
    int n_prompt, n_scored;
    size_t prompt_cap;
    detokenizer prompt_d; /* while it is scored */
    buf prompt_text;      /* of its last token */
    size_t prompt_chars;  /* characters of its tokens so far */
    bool prompt_given;
} answer;

/* Begins an output. plain_id: any token of ordinary text; behind it others are decoded with their leading blanks.
 * prompt: its end decides how the output's text begins; not kept. */
void answer_init(answer *a, const answer_rules *r, const tokenizer *t, int plain_id, const int *prompt,
                 size_t n_prompt);
void answer_deinit(answer *a);

/* Puts the prompt's text before the output's. To be called before any token comes. */
void answer_echo(answer *a, const buf *prompt);

/* Begins to score the prompt. first: its first token, which has no score as nothing stands before it. To be called
 * before any token comes. */
void answer_begin_scores(answer *a, int first);

/* Adds the next token: of the prompt while that is scored, then of the output. p: its logprobs, or NULL. Must not be
 * called once the output has ended. */
void answer_add(answer *a, int token, const Logprobs *p);

/* Ends an output whose worker sends no more tokens. One that has ended stays as it is. */
void answer_finish(answer *a, answer_state why);

/* Returns the mean of the logprobs of its tokens; 0: there are none. */
double answer_likelihood(const answer *a);

/* Returns whether there is something to tell that has not been taken, or the output has ended. */
bool answer_has_news(const answer *a);

/* Returns about how many bytes of memory it holds. */
size_t answer_size(const answer *a);

/* Return what has become certain since the last answer_take(), or everything so far. Pointers hold until the next
 * call. */
api_choice answer_take(answer *a);
api_choice answer_all(answer *a);

#endif
