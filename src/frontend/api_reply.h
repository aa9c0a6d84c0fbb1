/* api_reply.h - the JSON of OpenAI's responses: whole ones, the events of a stream, lists of models
 *
 * Pure functions that append to a buffer. */
#ifndef PUNICA_FRONTEND_API_REPLY_H
#define PUNICA_FRONTEND_API_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "frontend/api_error.h"

/* A token with its logprob; below, with the likeliest tokens in its place. */
typedef struct {
    int id;
    char *text; /* [n] valid UTF-8 */
    size_t n;
    char *bytes; /* [n_bytes] the token's bytes, where they are no text by themselves; else NULL */
    size_t n_bytes;
    float logprob;
} api_token;
typedef struct {
    api_token token, *top; /* top: [n_top] */
    int n_top;
    size_t offset, chars; /* where its text begins: in bytes, in characters */
    bool unknown;         /* no logprob: a prompt's first token, as nothing stands before it */
    int rank;             /* of a prompt's token: 1 + how many tokens are likelier */
} api_logprob;

/* The tokens of a prompt that was scored. */
typedef struct {
    const api_logprob *at; /* [n] */
    int n;
    int n_echoed; /* -1: not echoed; else they come before the output's logprobs, with so many likely tokens each */
    int n_listed; /* -1: not listed; else they are vLLM's "prompt_logprobs", with so many likely tokens each */
} api_prompt_logprobs;

/* What every response or event of a call begins with. */
typedef struct {
    bool chat;
    const char *id, *model;
    int64_t created;
    bool include_usage;   /* of a stream, at its end */
    const char *repeated; /* what the answer repeats of its request (api_shape.h); may be NULL */
} api_head;

/* A call of a function, or the part of one that a chunk tells. */
typedef struct {
    int number;   /* in its choice */
    bool goes_on; /* id and name were told before, perhaps with some of the arguments */
    char id[24];
    const char *name;
    const char *arguments; /* [n] of a JSON text */
    size_t n;
} api_call;

/* A choice, or the part of one that a chunk tells. */
typedef struct {
    int index;
    const char *text; /* [n] */
    size_t n;
    bool first;         /* of a stream: nothing of it was told before */
    const char *finish; /* NULL: it goes on */
    const char *stop;   /* [n_stop] the stop string that ended it; NULL: none did */
    size_t n_stop;
    const char *reasoning; /* [n_reasoning] */
    size_t n_reasoning;
    const api_call *call; /* [n_calls] */
    int n_calls;
    bool has_logprobs;
    const api_logprob *logprob; /* [n_logprobs] */
    int n_logprobs;
    api_prompt_logprobs prompt;
} api_choice;

typedef struct {
    int64_t prompt, cached, completion, reasoning;
} api_usage; /* tokens; cached: of prompt, not computed; reasoning: of completion */

/* Append the body of a whole response. */
void api_write_response(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u);

/* The beginning and end that all events of a stream share, made once: a token's event is then little more than its
 * text. */
typedef struct {
    bool chat;
    buf opening;
    const char *closing;
} api_stream;

/* Make them. null_usage: each event says "usage": null, which clients expect that asked for usage at the end. */
void api_stream_init(api_stream *s, const api_head *h, bool null_usage);
void api_stream_deinit(api_stream *s);

/* Append an event, "data: ...\n\n". api_write_role(): the first of a choice in a chat. */
void api_write_role(buf *out, const api_stream *s, int index);
void api_write_chunk(buf *out, const api_stream *s, const api_choice *c);
void api_write_usage(buf *out, const api_stream *s, const api_usage *u);
void api_write_stream_error(buf *out, const api_error *e);
void api_write_done(buf *out);

/* Append the list of models, the base first if with_base; or one model. context: its "max_model_len". */
void api_write_models(buf *out, const char *base, bool with_base, char *const *adapter, int n_adapters, int64_t created,
                      int context);
void api_write_model(buf *out, const char *name, const char *base, int64_t created, int context);

#endif
