/* reply_items.h - an output as a list of items: reasoning, texts, calls
 *
 * Responses and Messages have this form. One item is open at a time, and is closed when the next begins. */
#ifndef PUNICA_FRONTEND_REPLY_ITEMS_H
#define PUNICA_FRONTEND_REPLY_ITEMS_H

#include "frontend/api_reply.h"

typedef enum { ITEM_REASONING, ITEM_TEXT, ITEM_CALL } item_kind;

typedef struct {
    item_kind kind;
    buf text;           /* of a call: its arguments */
    char *name, id[24]; /* of a call */
} reply_item;

typedef struct {
    reply_item *at;
    int n;
    size_t cap;
    bool open;
} reply_items;

/* Callbacks for item number i. A NULL pointer to them: none are wanted. */
typedef struct {
    void (*begin)(void *ctx, int i);
    void (*more)(void *ctx, int i, const char *text, size_t n);
    void (*end)(void *ctx, int i);
} item_events;

/* Adds what is new of a choice. */
void reply_items_add(reply_items *r, const api_choice *news, const item_events *events, void *ctx);

/* Closes the last item: the output has ended. */
void reply_items_close(reply_items *r, const item_events *events, void *ctx);
void reply_items_free(reply_items *r);

#endif
