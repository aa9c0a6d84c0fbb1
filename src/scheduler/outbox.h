/* outbox.h - messages to frontends and GPUs, gathered for the time of one event
 *
 * Every frontend and every GPU has an outbox; its number is what the scheduler knows the frontend or GPU by. While an
 * event is handled, commands are packed as they come, each as a part of the message that its outbox is to send;
 * outboxes_flush() sends one message from every outbox that has parts. So whatever one event causes reaches a peer
 * together. */
#ifndef PUNICA_SCHEDULER_OUTBOX_H
#define PUNICA_SCHEDULER_OUTBOX_H

#include "base/buf.h"
#include "net/link.h"

typedef struct {
    net_link *to; /* borrowed: until outbox_release(); NULL: the number is free */
    int number;
    bool to_gpu;           /* its message is Commands, else Results */
    uint32_t local, start; /* of a GPU: its runner's number for it; `start` of its GpuUp */
    buf parts;             /* packed */
    bool dirty;            /* it is in outboxes.dirty */
} outbox;

typedef struct {
    outbox **at; /* [n] by number, owned */
    size_t n, cap;
} outbox_list;

/* All outboxes of a scheduler. Zero-initialise. */
typedef struct {
    outbox_list frontends, gpus;
    outbox **dirty; /* [n_dirty] those that got parts since the last flush, in order of the first; borrowed */
    size_t n_dirty, dirty_cap;
    buf body, message; /* scratch */
} outboxes;

void outboxes_deinit(outboxes *x);

/* Hands out an outbox under the lowest number that is free, for a frontend's link, or for one of the GPUs behind a
 * runner's. Give it back with outbox_release(). */
outbox *outboxes_add_frontend(outboxes *x, net_link *to);
outbox *outboxes_add_gpu(outboxes *x, net_link *to, uint32_t local, uint32_t start);

/* Gives an outbox back: its number is free for another. Parts that have not been sent are dropped. */
void outbox_release(outbox *o);

/* Packs a part of the message: a field of Results or Commands. Sends the message early when it has become large. */
void outboxes_pack(outboxes *x, outbox *o, unsigned field, const ProtobufCMessage *part);

/* Sends what has been packed, one message from each outbox. To be called at the end of each event. */
void outboxes_flush(outboxes *x);

#endif
