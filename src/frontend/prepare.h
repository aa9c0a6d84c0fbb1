/* prepare.h - from the body of a call to tokens: all that may be slow and needs nobody else
 *
 * A short body is prepared at once, a long one on a thread of its own, since tokenizing megabytes takes a second in
 * which no stream would go on. So is reading an adapter's files to know which version of it is asked for. */
#ifndef PUNICA_FRONTEND_PREPARE_H
#define PUNICA_FRONTEND_PREPARE_H

#include <event2/event.h>

#include "frontend/api_request.h"
#include "frontend/constrain.h"
#include "frontend/templates.h"
#include "frontend/versions.h"
#include "text/tokenizer.h"

/* What preparing takes; immutable. */
typedef struct {
    const tokenizer *t;
    templates *chat;            /* these are not: they look after themselves */
    versions *adapters;
    grammar_checks *grammars;   /* may be NULL */
    int context, vocab;         /* tokens of prompt and output together; ids are below vocab */
} prepare_tools;

typedef struct {
    bool failed;
    api_error error;            /* if failed */
    api_request asked;          /* else: without its input */
    ids *prompt;                /* [n_prompts] each not empty, with room in the context behind it */
    buf *echo;                  /* [n_prompts] their texts, if these are to be echoed */
    int n_prompts;
    bool has_version;           /* of the adapter asked for; false: not looked for, or its files cannot be read */
    digest version;
} prepared;

/* Never NULL. */
prepared *prepare(const prepare_tools *tools, bool chat, const char *body, size_t n);
void prepared_drop_prompts(prepared *p);        /* they are not needed any more */
void prepared_free(prepared *p);

typedef struct preparer preparer;
typedef struct prepare_job prepare_job;

preparer *preparer_new(struct event_base *loop, const prepare_tools *tools);
void preparer_free(preparer *p);        /* waits for the body in hand; for others done is not called */

/* Prepare on the thread; body is copied. done is called from the loop, and the result is the owner's. */
prepare_job *preparer_start(preparer *p, bool chat, const char *body, size_t n, void (*done)(void *ctx, prepared *result),
                            void *ctx);

/* Find out, on the thread, which version of the adapter asked for there is; takes p, and gives it to done. */
prepare_job *preparer_find_version(preparer *w, prepared *p, void (*done)(void *ctx, prepared *result), void *ctx);

/* Nobody waits for it any more: done will not be called. */
void prepare_job_abandon(prepare_job *j);

#endif
