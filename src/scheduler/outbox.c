/* outbox.c - see outbox.h */
#include "scheduler/outbox.h"

#include <stdlib.h>

#include "base/mem.h"
#include "net/pack.h"

enum { OUTBOX_FULL = 1 << 20 }; /* bytes of parts beyond which they are sent early */

static outbox *take_number(outbox_list *list, net_link *to)
{
    size_t i = 0;
    while (i < list->n && list->at[i]->to)
        i++;
    if (i == list->n) {
        list->at = xgrow(list->at, &list->cap, list->n + 1, sizeof *list->at);
        list->at[list->n++] = XNEW(outbox);
    }
    list->at[i]->number = (int)i;
    list->at[i]->to = to;
    return list->at[i];
}

static void outbox_list_deinit(outbox_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        buf_free(&list->at[i]->parts);
        free(list->at[i]);
    }
    free(list->at);
}

void outboxes_deinit(outboxes *x)
{
    outbox_list_deinit(&x->frontends);
    outbox_list_deinit(&x->gpus);
    free(x->dirty);
    buf_free(&x->body);
    buf_free(&x->message);
}

outbox *outboxes_add_frontend(outboxes *x, net_link *to)
{
    return take_number(&x->frontends, to);
}

outbox *outboxes_add_gpu(outboxes *x, net_link *to, uint32_t local, uint32_t start)
{
    outbox *o = take_number(&x->gpus, to);
    o->to_gpu = true;
    o->local = local;
    o->start = start;
    return o;
}

void outbox_release(outbox *o)
{
    o->to = NULL;
    buf_clear(&o->parts);
}

/* Sends the parts as one message: Results to a frontend, Commands to a GPU. */
static void send_parts(outboxes *x, outbox *o)
{
    if (!o->to || o->parts.len == 0)
        return;
    buf_clear(&x->body);
    if (o->to_gpu) {
        Commands c = COMMANDS__INIT;
        c.gpu = o->local;
        c.start = o->start;
        size_t n = commands__get_packed_size(&c);
        CHECK(commands__pack(&c, (uint8_t *)buf_extend(&x->body, n)) == n);
    }
    buf_add(&x->body, o->parts.data, o->parts.len);
    buf_clear(&o->parts);
    buf_clear(&x->message);
    pack_bytes(&x->message, o->to_gpu ? MESSAGE__WHAT_COMMANDS : MESSAGE__WHAT_RESULTS, x->body.data, x->body.len);
    link_send_packed(o->to, x->message.data, x->message.len);
}

void outboxes_pack(outboxes *x, outbox *o, unsigned field, const ProtobufCMessage *part)
{
    CHECK(o->to);
    pack_field(&o->parts, field, part);
    if (o->parts.len > OUTBOX_FULL)
        send_parts(x, o);
    if (o->dirty)
        return;
    x->dirty = xgrow(x->dirty, &x->dirty_cap, x->n_dirty + 1, sizeof *x->dirty);
    x->dirty[x->n_dirty++] = o;
    o->dirty = true;
}

void outboxes_flush(outboxes *x)
{
    for (size_t i = 0; i < x->n_dirty; i++) {
        x->dirty[i]->dirty = false;
        send_parts(x, x->dirty[i]);
    }
    x->n_dirty = 0;
}
