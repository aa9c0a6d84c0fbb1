/* frontend.h - text in, text out: the role that clients see
 *
 * OpenAI's HTTP API on one side, a link to the scheduler on the other; between them tokenizer, chat template and stop
 * strings. It keeps every live request whole, so that any process behind it may be lost. One event loop, whose thread
 * has helpers where there is much to do at once: a large body (prepare.h), the tokens of many streams (dispatch.h).
 * What clients may cost is bounded: http_server.h, prepare.h, and one budget of memory for all of them. */
#ifndef PUNICA_FRONTEND_FRONTEND_H
#define PUNICA_FRONTEND_FRONTEND_H

#include "base/buf.h"
#include "base/err.h"
#include "frontend/adapter_api.h"
#include "frontend/adapter_checks.h"
#include "net/event_loop.h"
#include "net/link.h"

typedef struct {
    const char *listen;            /* "HOST:PORT" for clients; port 0: any */
    const char *scheduler;         /* address */
    link_options link;             /* credentials, model; the role is set here */
    const char *model_dir;         /* for tokenizer and chat template */
    const char *chat_template;     /* a file to use instead of the model's own; may be NULL */
    const char *generation_config; /* where sampling defaults are from (sampling_defaults.h) */
    const char *model_name;        /* what clients call the base model */
    const char *adapters_dir;      /* catalog.h; may be NULL */
    const char *cache;             /* a disk cache's folder; without a store, the names in it are served; may be NULL */
    const char *const *adapter;    /* [n_adapters] "NAME=DIR" */
    int n_adapters;
    adapter_checker checker;    /* who says which adapters can be served */
    size_t cache_bytes;         /* its limit; 0: none */
    const fetch_options *fetch; /* how adapters come into it; needed with a cache */
    const model_config *base;   /* the model that they must fit */
    bool adapter_updates;       /* adapters of the cache may be changed by HTTP */
    const char *const *key;     /* [n_keys] clients must show one; n_keys 0: none. Not used with a store */
    int n_keys;
    const char *tls_cert, *tls_key; /* PEM files: clients speak TLS; NULL: they do not */
    const char *const *origin;      /* [n_origins] web pages from which browsers may ask, "https://HOST", or "*": any */
    int n_origins;
    const char *store;          /* store.h: where tenants and their keys are; NULL: there are none */
    const char *admin_key_file; /* for secrets_read(): operators show one of its keys; NULL: there are none */
    int context, vocab;         /* of the model */
    const int *eos;             /* [n_eos] its end tokens */
    int n_eos;
    size_t max_body;       /* bytes of a request */
    size_t max_memory;     /* bytes of all large bodies, prompts and outputs together */
    int max_connections;   /* of clients; fewer where the limit on open files is too low */
    size_t max_unsent;     /* bytes that may wait for a client that does not read, */
    size_t send_buffer;    /* and more of them that the kernel keeps */
    double client_timeout; /* seconds a client may take to send a request, or keep an answer waiting */
    double patience;       /* seconds requests wait for a scheduler that is gone */
    double keep_alive;     /* seconds a stream may be silent before its client is sent a comment; 0: for ever */
    double drain_seconds;  /* the most that frontend_drain() waits */
    int max_live;          /* requests at once */
    int threads;           /* that write tokens of one step to their clients */
    void (*more_metrics)(void *ctx, buf *out); /* appended to GET /metrics; may be NULL */
    void *metrics_ctx;
} frontend_options;

frontend_options frontend_options_default(void);

typedef struct frontend frontend;

/* Opens everything and listens. NULL with e set when the model's files are bad or the address cannot be listened on.
 * Options are copied. */
frontend *frontend_new(event_loop *l, const frontend_options *o, err *e);
void frontend_free(frontend *f);

const char *frontend_address(const frontend *f); /* "HOST:PORT" */

const char *frontend_scheme(const frontend *f); /* "http" or "https" */

/* Reads the certificate for clients, for connections made from now on, and the operators' keys again. -1 with e set:
 * what could not be read is as it was. */
int frontend_reload(frontend *f, err *e);

/* Returns the most tokens of prompt and output together: as many as the model allows and the GPUs hold. 0: no GPU is
 * known yet. */
int frontend_context(const frontend *f);

/* Returns the names of n adapters, of which the first n_good can be served. The caller frees them:
 * catalog_list_free(). */
char **frontend_adapters(const frontend *f, int *n_good, int *n);

void frontend_wake(frontend *f); /* wakes its threads, as tokens of many requests are about to come */

int frontend_n_tenants(const frontend *f); /* -1: there is no store */
int frontend_n_open(const frontend *f);    /* calls that are not completely answered */

/* Takes no new calls from now on. done is called once, when the last is answered or drain_seconds have passed. */
void frontend_drain(frontend *f, void (*done)(void *ctx), void *ctx);

#endif
