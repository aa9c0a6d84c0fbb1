/* api_request.h - the JSON of OpenAI's completions and chat completions, from bytes to a checked request
 *
 * Pure functions. Unknown fields are ignored; a field that is known, but wrong or not served, is an error that names
 * it. */
#ifndef PUNICA_FRONTEND_API_REQUEST_H
#define PUNICA_FRONTEND_API_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "frontend/api_error.h"
#include "frontend/output_parts.h"
#include "frontend/sampling_defaults.h"
#include "frontend/stop.h"
#include "net/wire.pb-c.h"
#include "text/chat.h"

#define MAX_CHOICES 128   /* of one call: prompts times best_of */
#define MAX_STOPS 16      /* stop strings, and stop token ids */
#define MAX_STOP_LEN 1024 /* bytes */
#define MAX_TOP 20        /* alternatives to a token */
#define MAX_BIASED 1024   /* tokens with a bias */
#define MAX_BAD_WORDS 256
#define MAX_SALT 1024 /* bytes; sent with every choice */

typedef struct {
    const char *text; /* [n] borrowed: until api_request_drop_input(); NULL: ids are given */
    size_t n;
    int *id; /* [n_ids] */
    size_t n_ids;
} api_prompt;

typedef struct {
    bool chat;
    char *model;
    api_prompt *prompt; /* [n_prompts] completions */
    int n_prompts;
    chat_input conversation; /* chat; borrowed: until api_request_drop_input() */
    int n;                   /* choices for each prompt */
    int best_of;             /* outputs for each prompt, of which the n likeliest are choices */
    bool stream, include_usage, echo;
    int priority;        /* among those of its tenant that wait: lower is earlier, as vLLM has it */
    int max_tokens;      /* -1: as many as the context has room for; 0 only of a prompt that is echoed or scored */
    int most_tokens;     /* limit of generation_config.json; max_tokens is not above it */
    int prompt_logprobs; /* -1: not wanted; else so many likely tokens for each of the prompt */
    bool has_seed;
    Sampling sampling; /* stop_ids points to stop_id, so the struct must not be moved; other lists are owned */
    int32_t stop_id[MAX_STOPS];
    stop_string stop[MAX_STOPS];
    int n_stops;
    bool include_stop;  /* a stop string is shown */
    bool only_prompt;   /* only the prompt is wanted, as tokens or text; no output */
    bool token_strings; /* tokens also as the vocabulary writes them */
    bool add_special; /* the tokenizer puts its special tokens around a text: a prompt, or what a chat template wrote */
    int truncate;     /* 0: not; -1: to the context; else how many of the prompt's last tokens are kept */
    char *cache_salt; /* what sampling.cache_salt points to; NULL: none */
    char *grammar;    /* what sampling.grammar points to */
    const char *grammar_field; /* the field that gave it; static */
    tools_choice tool_choice;
    parts_rules parts;       /* of the output; prepare.c sets what the chat template decides */
    char *tool_name;         /* what parts.tool_name points to */
    const json_t *bad_words; /* borrowed: until api_request_drop_input(). Not tokens yet: see constrain.h */
    char *repeated;          /* what the answer repeats of the request; may be NULL */
    json_t *input;           /* the parsed body */
} api_request;

/* Parse a body, or JSON that was read from one, which is taken. d: sampling defaults; NULL: OpenAI's. -1 with e set; r
 * then needs no deinit. */
int api_request_parse(api_request *r, bool chat, const char *body, size_t n, api_error *e);
int api_request_take(api_request *r, bool chat, json_t *input, const sampling_defaults *d, api_error *e);
void api_request_drop_input(api_request *r); /* prompts and messages are not needed any more */
void api_request_deinit(api_request *r);

#endif
