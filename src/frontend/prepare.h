/* prepare.h - from the body of a call to tokens: all that may be slow and needs nobody else
 *
 * A short body is prepared at once, a long one on a thread (background.h), since tokenizing megabytes takes a second in
 * which no stream would go on. A thread also prepares one with a grammar, or for an adapter with a chat template of its
 * own, and reads an adapter's files to know which version of it is asked for. What a body may cost is bounded: 64 MB of
 * memory for its JSON, and twice as many tokens as the context has. */
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

/* What preparing needs. All borrowed. */
typedef struct {
    const tokenizer *t;
    templates *chat;
    const catalog *models; /* NULL: there is no registry */
    versions *adapters;
    adapter_checks *checks;            /* may be NULL */
    grammar_checks *grammars;          /* may be NULL */
    const atomic_int *context;         /* tokens of prompt and output together; may change at any time */
    int vocab;                         /* its size: ids are below */
    const sampling_defaults *defaults; /* of requests; NULL: OpenAI's */
} prepare_tools;

typedef struct {
    bool failed;
    api_error error;   /* if failed */
    api_request asked; /* else: without its input */
    ids *prompt;       /* [n_prompts] each not empty, with room in the context behind it (unless asked.only_prompt) */
    buf *echo;         /* [n_prompts] their texts, if these are to be echoed */
    int n_prompts;
    int context;      /* as it was then */
    bool is_bad;      /* the adapter asked for cannot be served; error says why */
    bool has_version; /* of the adapter asked for; false: not looked for, or its files cannot be read */
    digest version;
    bool is_registered; /* the adapter asked for is of the store's registry; what it was at that moment: */
    registered what;    /* owned */
    bool is_missing;    /* its files are not on this host: nothing is prepared; once they are, */
    charged_buf body;   /* this is to be prepared again. Owned */
} prepared;

/* Returns the model's whole name (TENANT/NAME of a tenant's own), where a client may leave out its tenant. Borrowed. */
const char *prepared_model(const prepared *p);

/* Prepares a body: checks it and makes tokens of it. Never NULL; what is wrong is in the result, which the caller
 * frees. seen: a model that is not in it fails as one that does not exist, before anything is done with it. stop,
 * unless NULL: it fails soon after that has become true. */
prepared *prepare(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                  size_t n, const atomic_bool *stop);

/* Does the same on a thread that others wait for. NULL: it would take long, because of its grammar. */
prepared *prepare_soon(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                       size_t n, const atomic_bool *stop);

/* Does the same for a short body, on the loop's thread, while streams wait. NULL: it may take long, and belongs on a
 * thread. If the adapter is missing the result has no body: the caller still has it. */
prepared *prepare_at_once(const prepare_tools *tools, const model_view *seen, const api_shape *shape, const char *body,
                          size_t n);
void prepared_drop_prompts(prepared *p); /* they are not needed any more */
void prepared_free(prepared *p);

typedef struct preparer preparer;
typedef struct prepare_job prepare_job;

preparer *preparer_new(background *threads, const prepare_tools *tools); /* threads: borrowed */
void preparer_free(preparer *p); /* no job may be left: the threads are freed before */

/* Prepares a body on a thread. body is taken, and seen kept meanwhile. done is called from the loop, and owns the
 * result. */
prepare_job *preparer_start(preparer *p, model_view *seen, const api_shape *shape, charged_buf *body,
                            void (*done)(void *ctx, prepared *result), void *ctx);

/* Finds out, on a thread, which version the adapter asked for has. result is taken, and given to done. */
prepare_job *preparer_find_version(preparer *p, prepared *result, void (*done)(void *ctx, prepared *result), void *ctx);

/* Drops a job that nobody waits for any more: done will not be called. */
void prepare_job_abandon(prepare_job *j);

#endif
