/* prepare.h - from the body of a call to tokens: all that may be slow and needs nobody else
 *
 * A short body is prepared at once, a long one on a thread (background.h), since tokenizing megabytes takes a second in
 * which no stream would go on. So is one with a grammar, or for an adapter with a chat template of its own, and so is
 * reading an adapter's files to know which version of it is asked for. What a body may cost is bounded: 64 MB of memory
 * for its JSON, and tokens are made until there are twice as many as the context has. */
#ifndef PUNICA_FRONTEND_PREPARE_H
#define PUNICA_FRONTEND_PREPARE_H

#include "base/budget.h"
#include "frontend/adapter_checks.h"
#include "frontend/api_request.h"
#include "frontend/api_shape.h"
#include "frontend/background.h"
#include "frontend/constrain.h"
#include "frontend/model_view.h"
#include "frontend/templates.h"
#include "frontend/versions.h"
#include "text/tokenizer.h"

/* What preparing takes. */
typedef struct {
    const tokenizer *t;
    templates *chat;
    const catalog *models; /* NULL: there is no registry */
    versions *adapters;
    adapter_checks *checks;            /* may be NULL */
    grammar_checks *grammars;          /* may be NULL */
    const atomic_int *context;         /* tokens of prompt and output together; may change at any time */
    int vocab;                         /* ids are below */
    const sampling_defaults *defaults; /* of requests; NULL: OpenAI's */
} prepare_tools;

typedef struct {
    bool failed;
    api_error error;   /* if failed */
    api_request asked; /* else: without its input */
    ids *prompt;       /* [n_prompts] each not empty, with room in the context behind it */
    buf *echo;         /* [n_prompts] their texts, if these are to be echoed */
    int n_prompts;
    int context;      /* as it was then */
    bool is_bad;      /* the adapter asked for cannot be served; error says why */
    bool has_version; /* of the adapter asked for; false: not looked for, or its files cannot be read */
    digest version;
    bool is_registered; /* the adapter asked for is a name of the store's registry, and at that moment was: */
    registered what;    /* owned */
    bool is_missing;    /* its files are not on this host: nothing is prepared, and */
    charged_buf body;   /* is to be prepared again when they are. Owned */
} prepared;

/* What everybody but the client calls the model that is asked for. */
const char *prepared_model(const prepared *p);

/* Prepares a body: checks it and makes tokens of it. Never NULL; what is wrong is in the result. seen: a model that is
 * not in it fails as one that is not there, before anything is done with it. stop, unless NULL: it fails soon after
 * that has become true. */
prepared *prepare(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                  size_t n, const atomic_bool *stop);

/* The same on a thread that others wait for. NULL: it would take long, because of its grammar. */
prepared *prepare_soon(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                       size_t n, const atomic_bool *stop);

/* The same for a short body, on the loop's thread, where streams wait meanwhile. NULL: it may take long, and belongs on
 * a thread. One whose adapter is missing has no body in it: the caller has it still. */
prepared *prepare_at_once(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                          size_t n);
void prepared_drop_prompts(prepared *p); /* they are not needed any more */
void prepared_free(prepared *p);

typedef struct preparer preparer;
typedef struct prepare_job prepare_job;

preparer *preparer_new(background *threads, const prepare_tools *tools); /* threads: borrowed */
void preparer_free(preparer *p); /* no job may be left: the threads are freed before */

/* Prepare on a thread; the body is taken, and seen is kept meanwhile. done is called from the loop, and the result is
 * the owner's. */
prepare_job *preparer_start(preparer *p, model_view *seen, const api_shape *shape, charged_buf *body,
                            void (*done)(void *ctx, prepared *result), void *ctx);

/* Find out, on a thread, which version of the adapter asked for there is; takes result, and gives it to done. */
prepare_job *preparer_find_version(preparer *p, prepared *result, void (*done)(void *ctx, prepared *result), void *ctx);

/* Nobody waits for it any more: done will not be called. */
void prepare_job_abandon(prepare_job *j);

#endif
