/* constrain.h - what a request demands of its output, checked where the vocabulary is known
 *
 * The text of a grammar is compiled here to see that a worker will be able to, with bounds on time and memory, and what
 * was found to be right is remembered. Words that may not come become tokens. */
#ifndef PUNICA_FRONTEND_CONSTRAIN_H
#define PUNICA_FRONTEND_CONSTRAIN_H

#include "frontend/api_request.h"
#include "text/tokenizer.h"

/* Grammars that were compiled; looks after itself, any thread. */
typedef struct grammar_checks grammar_checks;
grammar_checks *grammar_checks_new(void);
void grammar_checks_free(grammar_checks *c);

/* -1 with e naming the field; 1, where it is to be soon, when its grammar takes longer than most do. known may be NULL.
 * stop, unless NULL: it fails soon after that has become true. r's input is still there. */
int constrain(api_request *r, const tokenizer *t, int vocab, grammar_checks *known, bool soon, const atomic_bool *stop,
              api_error *e);

/* Whether it asks for something that takes longer than its size suggests: to be prepared beside the loop. */
bool constrain_takes_long(const api_request *r);

#endif
