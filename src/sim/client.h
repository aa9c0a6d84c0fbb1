/* client.h - a client of a simulated frontend: asks, receives, and checks what it got
 *
 * It sends a body to call.c and takes the answer as the bytes that a socket would carry: one JSON object, or a stream
 * of events. The toy model's output is known, so every character of the answer is, whatever went wrong behind it. */
#ifndef PUNICA_SIM_CLIENT_H
#define PUNICA_SIM_CLIENT_H

#include "frontend/call.h"
#include "sim/sim_worker.h"
#include "sim/toy.h"

enum { MOST_CHOICES = 2 };

typedef enum { CLIENT_TO_COME, CLIENT_LIVE, CLIENT_ANSWERED, CLIENT_CANCELLED, CLIENT_LOST } client_state;

/* What it asks for. */
typedef struct {
    int prompt[TOY_CONTEXT], n_prompt;
    int max_tokens, n_choices;
    uint64_t seed;
    int adapter;     /* -1: the base model */
    char stop[4];    /* "": none */
    bool penalized;  /* with a presence_penalty */
    bool alternates; /* with the grammar TOY_ALTERNATING */
    int min_tokens;  /* only without a stop string */
    bool stream;
    bool scored; /* with prompt_logprobs; no stream */
    bool is_killer;
    int tenant;   /* its number; -1: there are none */
    int priority; /* among its tenant's requests */
} client_request;

typedef struct {
    reply base; /* first */
    world *in;  /* borrowed */
    int number, frontend;
    client_request request;
    bool comes_late; /* it asks when everything is in order again */
    client_state state;
    double asked_at, ended_at;
    uint64_t content; /* of its adapter when it asked; 0: the base model */
    int status;       /* HTTP; 0: nothing came */
    char error[48];   /* code of an error, in place of an answer or in the middle of a stream */
    bool done;        /* the stream's last event has come */
    buf text[MOST_CHOICES];
    char reason[MOST_CHOICES][16]; /* finish_reason; "": none came */
    bool has_scores[MOST_CHOICES]; /* logprobs of its prompt came, and were right */
    buf bytes;                     /* of a stream: an event that is not complete yet */
} client;

/* Returns how many tokens a choice may have: max_tokens, or as many as the context has room for. */
int client_most_output(const client_request *w);

void client_deinit(client *c);

/* Asks frontend s as a client of tenant `who` (NULL: there are none); content: what its adapter is at present. The
 * answer comes through the reply. */
void client_ask(client *c, service *s, tenant *who, uint64_t content);

/* Has the client leave: it closes the connection, or stops reading. */
void client_leave(client *c, client_loss how);

/* Compares an answer with what it should be; a difference is a violation. may_be_short: it may have ended before its
 * length. */
void client_check_answer(client *c, bool may_be_short);
void client_check_part(client *c); /* the same of an answer that broke off */

#endif
