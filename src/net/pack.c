/* pack.c - see pack.h */
#include "net/pack.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

void pack_message(buf *out, const Message *m)
{
    size_t n = message__get_packed_size(m);
    CHECK(message__pack(m, (uint8_t *)buf_extend(out, n)) == n);
}

static void add_varint(buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buf_add_char(out, (char)(value | 0x80));
    buf_add_char(out, (char)value);
}

enum { WIRE_TYPE_VARINT = 0, WIRE_TYPE_BYTES = 2 };

static void add_head(buf *out, unsigned field, size_t n)
{
    add_varint(out, field << 3 | WIRE_TYPE_BYTES);
    add_varint(out, n);
}

void pack_field(buf *out, unsigned field, const ProtobufCMessage *part)
{
    size_t n = protobuf_c_message_get_packed_size(part);
    add_head(out, field, n);
    CHECK(protobuf_c_message_pack(part, (uint8_t *)buf_extend(out, n)) == n);
}

void pack_bytes(buf *out, unsigned field, const void *bytes, size_t n)
{
    add_head(out, field, n);
    buf_add(out, bytes, n);
}

/* Packed bytes that are still to be read. */
typedef struct { const uint8_t *at, *end; } packed;

static bool read_varint(packed *p, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && p->at < p->end; shift += 7) {
        uint8_t byte = *p->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Reads the next field: its number and its value; for bytes the value is their count, and they are skipped. Only the
 * two wire types that a Step consists of; false for others, or when the bytes are malformed. */
static bool read_field(packed *p, uint64_t *field, bool *is_bytes, uint64_t *value)
{
    if (!read_varint(p, field) || !read_varint(p, value))
        return false;
    *is_bytes = (*field & 7) == WIRE_TYPE_BYTES;
    if (!*is_bytes && (*field & 7) != WIRE_TYPE_VARINT)
        return false;
    *field >>= 3;
    if (*is_bytes && *value > (uint64_t)(p->end - p->at))
        return false;
    p->at += *is_bytes ? *value : 0;
    return true;
}

bool pack_peek_step(const void *bytes, size_t n, step_numbers *out)
{
    packed p = {bytes, (const uint8_t *)bytes + n};
    uint64_t field, value;
    bool is_bytes;
    if (n == 0 || !read_field(&p, &field, &is_bytes, &value) || field != MESSAGE__WHAT_STEP || !is_bytes ||
        p.at != p.end)
        return false;
    p.at -= value;
    *out = (step_numbers){0};
    while (p.at < p.end) {
        if (!read_field(&p, &field, &is_bytes, &value))
            return false;
        if (field == STEP_N_SEEN)
            out->n_seen = value;
        else if (field == STEP_RESET)
            out->reset = (uint32_t)value;
        else if (field == STEP_N_REQUESTS)
            out->n_requests = (uint32_t)value;
    }
    return true;
}

/* An arena for one message at a time. A message that needs more than the arena's block gets further blocks of its own;
 * for the next one the block is made larger, up to USUAL. */
typedef struct block {
    struct block *next;
    _Alignas(16) char data[];
} block;

struct unpacker {
    ProtobufCAllocator allocator;
    char *data;       /* [cap] */
    size_t cap, used; /* used: by this message in all, may be more than cap */
    block *extra;     /* blocks for what did not fit into data */
    size_t limit;
};

static void *take(void *ctx, size_t n)
{
    unpacker *u = ctx;
    n = (n + 15) & ~(size_t)15;
    if (n > u->limit || u->used > u->limit - n)
        return NULL;
    u->used += n;
    if (u->used <= u->cap)
        return u->data + u->used - n;
    block *b = xmalloc(sizeof *b + n);
    b->next = u->extra;
    u->extra = b;
    return b->data;
}

static void give_nothing_back(void *ctx, void *p)
{
    (void)ctx;
    (void)p;
}

unpacker *unpacker_new(size_t limit)
{
    unpacker *u = XNEW(unpacker);
    *u = (unpacker){.allocator = {take, give_nothing_back, u}, .limit = limit};
    return u;
}

static void drop_extra(unpacker *u)
{
    while (u->extra) {
        block *b = u->extra;
        u->extra = b->next;
        free(b);
    }
}

/* Frees the last message, and makes the block large enough for one like it, up to USUAL. */
static void start_over(unpacker *u)
{
    enum { USUAL = 1 << 20 };
    drop_extra(u);
    if (u->used > u->cap && u->cap < USUAL) {
        u->cap = u->used < USUAL ? 2 * u->used : USUAL;
        free(u->data);
        u->data = xmalloc(u->cap);
    }
    u->used = 0;
}

void unpacker_free(unpacker *u)
{
    if (!u)
        return;
    drop_extra(u);
    free(u->data);
    free(u);
}

const Message *unpacker_read(unpacker *u, const void *bytes, size_t n)
{
    start_over(u);
    return message__unpack(&u->allocator, n, bytes);
}
