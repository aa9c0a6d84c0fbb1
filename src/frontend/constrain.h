/* constrain.h - what a request demands of its output, checked where the vocabulary is known
 *
 * A grammar is compiled, with bounds on time and memory, to see that a worker will be able to; texts that were good are
 * remembered, for each tenant and cache salt by itself: how soon an answer comes tells nobody what others have asked.
 * Bad words become tokens. */
#ifndef PUNICA_FRONTEND_CONSTRAIN_H
#define PUNICA_FRONTEND_CONSTRAIN_H

#include "frontend/api_request.h"
#include "text/tokenizer.h"

/* A cache of grammars that compiled. The tenant that has most in it makes room for others. Any thread. */
typedef struct grammar_checks grammar_checks;
grammar_checks *grammar_checks_new(void);
void grammar_checks_free(grammar_checks *c);

/* What requests are checked with. */
typedef struct {
    const tokenizer *t;
    int vocab;
    grammar_checks *known;   /* may be NULL */
    const char *tenant;      /* whose request it is; NULL: there are none */
    const atomic_bool *stop; /* unless NULL: the check fails soon after it has become true */
    bool soon;               /* a grammar that takes longer to compile than most is left for later */
} constrain_tools;

/* Checks r, whose input is still there, and makes tokens of its bad words. -1 with e naming the field; 1: its grammar
 * is left for later. */
int constrain(api_request *r, const constrain_tools *w, api_error *e);

/* Returns whether it may take longer than its size suggests, and so belongs on a thread. */
bool constrain_takes_long(const api_request *r);

#endif
