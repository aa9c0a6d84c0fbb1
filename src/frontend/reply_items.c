/* reply_items.c - see reply_items.h */
#include "frontend/reply_items.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void reply_items_close(reply_items *r, const item_events *events, void *ctx)
{
    if (r->open && events)
        events->end(ctx, r->n - 1);
    r->open = false;
}

static void begin(reply_items *r, item_kind kind, const api_call *call, const item_events *events, void *ctx)
{
    reply_items_close(r, events, ctx);
    r->at = xgrow(r->at, &r->cap, (size_t)r->n + 1, sizeof *r->at);
    reply_item *x = &r->at[r->n++];
    *x = (reply_item){.kind = kind, .name = call ? xstrdup(call->name) : NULL};
    if (call)
        memcpy(x->id, call->id, sizeof x->id);
    buf_add_str(&x->text, "");
    r->open = true;
    if (events)
        events->begin(ctx, r->n - 1);
}

static void add_text(reply_items *r, const char *text, size_t n, const item_events *events, void *ctx)
{
    buf_add(&r->at[r->n - 1].text, text, n);
    if (events && n)
        events->more(ctx, r->n - 1, text, n);
}

static void add_kind(reply_items *r, item_kind kind, const char *text, size_t n, const item_events *events, void *ctx)
{
    if (n == 0)
        return;
    if (!r->open || r->at[r->n - 1].kind != kind)
        begin(r, kind, NULL, events, ctx);
    add_text(r, text, n, events, ctx);
}

void reply_items_add(reply_items *r, const api_choice *news, const item_events *events, void *ctx)
{
    int k = 0;
    add_kind(r, ITEM_REASONING, news->reasoning, news->n_reasoning, events, ctx);
    if (news->n_calls && news->call[0].goes_on && r->open && r->at[r->n - 1].kind == ITEM_CALL) {
        add_text(r, news->call[0].arguments, news->call[0].n, events, ctx);
        k = 1;
    }
    add_kind(r, ITEM_TEXT, news->text, news->n, events, ctx);
    for (; k < news->n_calls; k++) {
        begin(r, ITEM_CALL, &news->call[k], events, ctx);
        add_text(r, news->call[k].arguments, news->call[k].n, events, ctx);
    }
}

void reply_items_free(reply_items *r)
{
    for (int i = 0; i < r->n; i++) {
        buf_free(&r->at[i].text);
        free(r->at[i].name);
    }
    free(r->at);
    *r = (reply_items){0};
}
