/* http_reply.c - see http_reply.h */
#include "frontend/http_reply.h"

#include <stdlib.h>

#include "base/mem.h"

typedef struct {
    reply base; /* first */
    http_exchange *x;
} http_reply;

static void on_gone(void *ctx, client_loss why)
{
    http_reply *r = ctx;
    void (*gone)(void *, client_loss) = r->base.gone;
    void *owner = r->base.ctx;
    free(r);
    gone(owner, why);
}

static http_exchange *exchange_of(reply *base)
{
    return ((http_reply *)base)->x;
}

static void add_header(reply *base, const char *name, const char *value)
{
    http_exchange_add_header(exchange_of(base), name, value);
}

static void send_whole(reply *base, int status, const char *type, const buf *body, bool close)
{
    http_exchange_send(exchange_of(base), status, type, body, close);
    free(base);
}

static void begin(reply *base, const char *type)
{
    http_exchange_begin(exchange_of(base), type);
}

static void add(reply *base, const buf *bytes)
{
    http_exchange_add(exchange_of(base), bytes);
}

static void flush(reply *base)
{
    http_exchange_flush(exchange_of(base));
}

static bool end(reply *base)
{
    bool whole = http_exchange_end(exchange_of(base));
    free(base);
    return whole;
}

reply *http_reply_new(http_exchange *x)
{
    static const reply_ops ops = {
        .add_header = add_header, .send = send_whole, .begin = begin, .add = add, .flush = flush, .end = end};
    http_reply *r = XNEW(http_reply);
    *r = (http_reply){.base = {.ops = &ops, .client = http_exchange_client(x)}, .x = x};
    http_exchange_set_gone(x, on_gone, r);
    return &r->base;
}
