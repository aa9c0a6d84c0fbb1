/* constrain.h - what a request demands of its output, checked where the vocabulary is known
 *
 * A grammar is compiled, with bounds on time and memory, to see that a worker will be able to; texts that were good are
 * remembered. Bad words become tokens. */
#ifndef PUNICA_FRONTEND_CONSTRAIN_H
#define PUNICA_FRONTEND_CONSTRAIN_H

#include "frontend/api_request.h"
#include "text/tokenizer.h"

/* A cache of grammars that compiled. Any thread. */
typedef struct grammar_checks grammar_checks;
grammar_checks *grammar_checks_new(void);
void grammar_checks_free(grammar_checks *c);

/* Checks r, whose input is still there, and makes tokens of its bad words. -1 with e naming the field; 1, if `soon`,
 * when its grammar takes longer to compile than most. known may be NULL. stop, unless NULL: it fails soon after that
 * has become true. */
int constrain(api_request *r, const tokenizer *t, int vocab, grammar_checks *known, bool soon, const atomic_bool *stop,
              api_error *e);

/* Returns whether it may take longer than its size suggests, and so belongs on a thread. */
bool constrain_takes_long(const api_request *r);

#endif
