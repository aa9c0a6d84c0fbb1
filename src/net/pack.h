/* pack.h - messages to bytes and back
 *
 * A message can be packed whole, or piece by piece as its parts become known: a packed message is the concatenation
 * of its packed fields, so parts of a repeated field are simply appended. */
#ifndef PUNICA_NET_PACK_H
#define PUNICA_NET_PACK_H

#include <stdbool.h>

#include "base/buf.h"
#include "net/wire.pb-c.h"

/* Numbers of fields in wire.proto that are packed or read piece by piece. Those of Message are MESSAGE__WHAT_*. */
enum {
    COMMANDS_COMMANDS = 2,
    STEP_N_SEEN = 2,
    STEP_TOKENS = 4,
    STEP_ENDS = 5,
    STEP_RESET = 6,
    STEP_N_REQUESTS = 7,
    STEP_RESIDENTS = 11,
    RESULTS_TOKENS = 1,
    RESULTS_ENDS = 2
};

/* Appends a whole message. */
void pack_message(buf *out, const Message *m);

/* Appends part as a field of this number to a message that is being packed piece by piece. */
void pack_field(buf *out, unsigned field, const ProtobufCMessage *part);

/* Appends bytes, already packed, as a field of this number. */
void pack_bytes(buf *out, unsigned field, const void *bytes, size_t n);

/* Some fields of a Step. */
typedef struct {
    uint64_t n_seen;
    uint32_t reset, n_requests;
} step_numbers;

/* Reads some fields of a packed message without unpacking it. False: it is not a well-formed Step. */
bool pack_peek_step(const void *bytes, size_t n, step_numbers *out);

/* Unpacks messages one at a time, all in the same memory. */
typedef struct unpacker unpacker;

/* limit: the most bytes that one unpacked message may take. */
unpacker *unpacker_new(size_t limit);
void unpacker_free(unpacker *u);

/* Returns the message, valid until the next call; NULL: it is not a Message, or too large. */
const Message *unpacker_read(unpacker *u, const void *bytes, size_t n);

#endif
