/* session.c - see session.h */
#include "net/session.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/pack.h"
#include "net/seal.h"
#include "net/upgrade.h"

enum {
    MAX_STRANGER_MESSAGE = 4096,    /* bytes of a message before the peer has proved itself */
    MAX_STRANGER_UNSENT = 64 << 10, /* bytes that may wait to be sent to it until then */
    MAX_NAME = 200,
    UNPACKED_PER_BYTE = 16, /* bytes of memory that a received byte may take when unpacked */
    CLOSE_CODE = WSLAY_CODE_POLICY_VIOLATION,
    CLOSE_REASON_MAX = 122
};

typedef enum { STAGE_CONNECTING, STAGE_UPGRADING, STAGE_GREETING, STAGE_PROVING, STAGE_UP, STAGE_OVER } stage;

struct session {
    net_loop *on;            /* borrowed */
    net_stream *stream;      /* borrowed */
    const link_options *opt; /* borrowed */
    proof_side side;
    session_events events;
    stage stage;
    wslay_event_context_ptr ws; /* from STAGE_GREETING on; NULL on a private stream */
    char key[UPGRADE_KEY_SIZE];
    buf hello[2];      /* by side: packed, as sent and received */
    Message *greeting; /* the peer's Hello; NULL: not yet */
    char *secret;      /* shared by both sides: from the credentials, or the TLS channel's key; NULL: not known yet */
    char peer[MAX_NAME + 32];
    unpacker *in;     /* when up */
    seal *seals[2];   /* when up; by side: for the messages that it sends */
    double framed_at; /* when the last frame was complete */
    buf out, frames;  /* a message being sent; its frames */
    uint64_t mask_seed, n_masks;
};

static const char *const role_names[] = {"frontend", "runner", "scheduler"};
#define N_ROLES (sizeof role_names / sizeof *role_names)

session *session_new(net_loop *on, net_stream *stream, const link_options *o, proof_side side,
                     const session_events *events)
{
    session *s = XNEW(session);
    *s = (session){.on = on, .stream = stream, .opt = o, .side = side, .events = *events, .framed_at = loop_now(on)};
    return s;
}

static void forget_secret(session *s)
{
    if (s->secret)
        OPENSSL_cleanse(s->secret, strlen(s->secret));
    free(s->secret);
    s->secret = NULL;
}

void session_free(session *s)
{
    if (!s)
        return;
    if (s->ws)
        wslay_event_context_free(s->ws);
    message__free_unpacked(s->greeting, NULL);
    forget_secret(s);
    unpacker_free(s->in);
    seal_free(s->seals[0]);
    seal_free(s->seals[1]);
    buf_free(&s->hello[0]);
    buf_free(&s->hello[1]);
    buf_free(&s->out);
    buf_free(&s->frames);
    free(s);
}

/* The header of a frame on a private stream. */
typedef struct {
    size_t n;        /* bytes behind it */
    bool is_goodbye; /* they say why the session ends */
} private_head;

static void send_private(session *s, bool is_goodbye, const void *bytes, size_t n)
{
    buf_clear(&s->frames);
    buf_add(&s->frames, &(private_head){n, is_goodbye}, sizeof(private_head));
    buf_add(&s->frames, bytes, n);
    stream_write(s->stream, s->frames.data, s->frames.len);
}

/* Sends what wslay has queued. */
static int send_queued(session *s)
{
    buf_clear(&s->frames);
    int status = wslay_event_send(s->ws);
    if (s->frames.len)
        stream_write(s->stream, s->frames.data, s->frames.len);
    return status;
}

void session_stop(session *s)
{
    s->stage = STAGE_OVER;
    if (s->ws)
        wslay_event_shutdown_read(s->ws);
}

void session_close(session *s, const char *why)
{
    size_t n = strlen(why);
    if (s->stage == STAGE_OVER)
        return;
    if (s->stream->is_private) {
        send_private(s, true, why, n + 1);
    } else if (s->ws) {
        wslay_event_queue_close(s->ws, CLOSE_CODE, (const uint8_t *)why, n < CLOSE_REASON_MAX ? n : CLOSE_REASON_MAX);
        send_queued(s);
    } else if (s->stage == STAGE_UPGRADING && s->side == SIDE_LISTENING) {
        buf_clear(&s->out);
        upgrade_write_refusal(&s->out, why);
        stream_write(s->stream, s->out.data, s->out.len);
    }
    session_stop(s);
}

static void end(session *s, session_over how, const char *why)
{
    if (how == OVER_BY_US)
        session_close(s, why);
    else
        session_stop(s);
    s->events.over(s->events.ctx, how, why);
}

/* Sends the bytes as one frame. */
static void send_bytes(session *s, const void *bytes, size_t n)
{
    if (s->stream->is_private) {
        send_private(s, false, bytes, n);
        return;
    }
    struct wslay_event_msg m = {.opcode = WSLAY_BINARY_FRAME, .msg = bytes, .msg_length = n};
    if (wslay_event_queue_msg(s->ws, &m) || send_queued(s))
        end(s, OVER_BROKEN, "the message cannot be sent");
}

static void send_sealed(session *s, const void *message, size_t n)
{
    if (s->stream->is_private) {
        send_private(s, false, message, n);
        return;
    }
    buf_clear(&s->out);
    seal_make(s->seals[s->side], message, n, (uint8_t *)buf_extend(&s->out, SEAL_BYTES));
    buf_add(&s->out, message, n);
    send_bytes(s, s->out.data, s->out.len);
}

static void send_message(session *s, buf *scratch, const Message *m)
{
    buf_clear(scratch);
    pack_message(scratch, m);
    send_bytes(s, scratch->data, scratch->len);
}

static void send_hello(session *s)
{
    const link_options *o = s->opt;
    uint8_t nonce[PROOF_NONCE_BYTES];
    loop_random(s->on, nonce, sizeof nonce);
    Hello h = HELLO__INIT;
    h.version = WIRE_VERSION;
    h.role = o->role;
    h.name = (char *)o->name;
    h.instance = o->instance;
    h.model = (char *)(o->model ? o->model : "");
    h.nonce = (ProtobufCBinaryData){sizeof nonce, nonce};
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_HELLO;
    m.hello = &h;
    send_message(s, &s->hello[s->side], &m);
}

static void send_proof(session *s)
{
    uint8_t mac[PROOF_BYTES];
    CHECK(s->secret);
    proof_make(s->secret, s->side, s->hello, mac);
    Proof p = PROOF__INIT;
    p.mac = (ProtobufCBinaryData){sizeof mac, mac};
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_PROOF;
    m.proof = &p;
    send_message(s, &s->out, &m);
}

/* Returns the role that the peer's certificate must name: the one in its Hello, but a listener must be a scheduler. */
static const char *role_it_needs(const session *s, const Hello *h)
{
    return role_names[s->side == SIDE_CONNECTING ? HELLO__ROLE__SCHEDULER : h->role];
}

/* Returns whether the peer is refused for its Hello, and why: in words that are true on both sides. */
static bool is_misfit(const session *s, const Hello *h, char *why, size_t n)
{
    const char *model = s->opt->model, *role;
    if (h->version != WIRE_VERSION)
        snprintf(why, n, "one side speaks version %u of the protocol, the other version %d; run the same release",
                 h->version, WIRE_VERSION);
    else if (model && *h->model && strcmp(model, h->model) != 0)
        snprintf(why, n, "one side has model %.50s, the other %.50s", model, h->model);
    else if (h->nonce.len != PROOF_NONCE_BYTES || strlen(h->name) > MAX_NAME || (size_t)h->role >= N_ROLES)
        snprintf(why, n, "its Hello is not what a Hello should be");
    else if (s->opt->own->mutual && !stream_peer_has_role(s->stream, role = role_it_needs(s, h)))
        snprintf(why, n, "a certificate does not say that its owner is a %s (URI:punica:%s)", role, role);
    else
        return false;
    return true;
}

/* Chooses the secret: the connecting side's first one, or the TLS channel's key where the credentials have none. The
 * listening side finds out by the peer's proof (check_proof()). */
static void choose_secret(session *s)
{
    const char *first = s->opt->own->secret[0];
    uint8_t key[PROOF_BYTES];
    if (first && s->side == SIDE_CONNECTING) {
        s->secret = xstrdup(first);
    } else if (!first) {
        CHECK(stream_channel_key(s->stream, key));
        s->secret = xmalloc(2 * sizeof key + 1);
        for (size_t i = 0; i < sizeof key; i++)
            snprintf(s->secret + 2 * i, 3, "%02x", key[i]);
    }
}

static void receive_hello(session *s, const uint8_t *bytes, size_t n)
{
    s->greeting = message__unpack(NULL, n, bytes);
    if (!s->greeting || s->greeting->what_case != MESSAGE__WHAT_HELLO) {
        end(s, OVER_BY_US, "it did not begin with a Hello");
        return;
    }
    const Hello *h = s->greeting->hello;
    char why[200];
    snprintf(s->peer, sizeof s->peer, "%s %.*s", (size_t)h->role < N_ROLES ? role_names[h->role] : "peer", MAX_NAME,
             h->name);
    if (is_misfit(s, h, why, sizeof why)) {
        end(s, OVER_BY_US, why);
        return;
    }
    buf_add(&s->hello[!s->side], bytes, n);
    s->stage = STAGE_PROVING;
    choose_secret(s);
    if (s->side == SIDE_CONNECTING)
        send_proof(s);
}

/* Checks the peer's proof, by the session's secret or, while there is none, by each that we accept: the one that fits
 * becomes the session's. */
static bool check_proof(session *s, const uint8_t *mac, size_t n)
{
    if (s->secret)
        return proof_is_right(s->secret, !s->side, s->hello, mac, n);
    for (int i = 0; i < MAX_SECRETS && s->opt->own->secret[i]; i++)
        if (proof_is_right(s->opt->own->secret[i], !s->side, s->hello, mac, n)) {
            s->secret = xstrdup(s->opt->own->secret[i]);
            return true;
        }
    return false;
}

static void start_sealing(session *s)
{
    uint8_t key[PROOF_BYTES];
    for (int side = 0; side < 2; side++) {
        proof_make_key(s->secret, (proof_side)side, s->hello, key);
        s->seals[side] = seal_new(key, sizeof key);
    }
}

/* Handles the peer's proof. The connecting side proves itself first: a listener gives its proof only to a peer that has
 * proved itself, and that its owner has not refused in `up`. */
static void receive_proof(session *s, const uint8_t *bytes, size_t n)
{
    Message *m = message__unpack(NULL, n, bytes);
    bool right = m && m->what_case == MESSAGE__WHAT_PROOF && check_proof(s, m->proof->mac.data, m->proof->mac.len);
    message__free_unpacked(m, NULL);
    if (!right) {
        end(s, OVER_BY_US, "wrong secret");
        return;
    }
    if (s->side == SIDE_LISTENING) {
        s->events.up(s->events.ctx, s->greeting->hello);
        if (s->stage == STAGE_PROVING)
            send_proof(s);
    }
    if (s->stage != STAGE_PROVING)
        return;
    s->stage = STAGE_UP;
    s->in = unpacker_new(s->opt->max_message * UNPACKED_PER_BYTE);
    if (!s->stream->is_private) {
        start_sealing(s);
        wslay_event_config_set_max_recv_msg_length(s->ws, s->opt->max_message + SEAL_BYTES);
    }
    if (s->side == SIDE_CONNECTING)
        s->events.up(s->events.ctx, s->greeting->hello);
}

/* Returns whether bytes begin with the right seal for the message behind it. */
static bool is_sealed(session *s, const uint8_t *bytes, size_t n)
{
    uint8_t mac[SEAL_BYTES];
    if (n < SEAL_BYTES)
        return false;
    seal_make(s->seals[!s->side], bytes + SEAL_BYTES, n - SEAL_BYTES, mac);
    return CRYPTO_memcmp(mac, bytes, SEAL_BYTES) == 0;
}

static void receive_message(session *s, const uint8_t *bytes, size_t n)
{
    size_t head = s->stream->is_private ? 0 : SEAL_BYTES;
    if (head && !is_sealed(s, bytes, n)) {
        end(s, OVER_BY_US, "a message was changed on its way");
        return;
    }
    const Message *m = unpacker_read(s->in, bytes + head, n - head);
    if (!m)
        end(s, OVER_BY_US, "it sent what is no message");
    else if (m->what_case != MESSAGE__WHAT__NOT_SET)
        s->events.message(s->events.ctx, m);
}

/* Handles a close frame: a code and perhaps a reason. wslay sends no reason where it found a protocol error. */
static void receive_close(session *s, const struct wslay_event_on_msg_recv_arg *m)
{
    char why[CLOSE_REASON_MAX + 8];
    const char *of_code = m->status_code == WSLAY_CODE_MESSAGE_TOO_BIG  ? "it found a message too large"
                          : m->status_code == WSLAY_CODE_PROTOCOL_ERROR ? "it found an error in the WebSocket protocol"
                                                                        : "it closed the link";
    if (m->msg_length > 2)
        snprintf(why, sizeof why, "%.*s", (int)m->msg_length - 2, (const char *)m->msg + 2);
    end(s, OVER_BY_PEER, m->msg_length > 2 ? why : of_code);
}

static void receive(session *s, const uint8_t *bytes, size_t n)
{
    if (s->stage == STAGE_GREETING)
        receive_hello(s, bytes, n);
    else if (s->stage == STAGE_PROVING)
        receive_proof(s, bytes, n);
    else
        receive_message(s, bytes, n);
}

static void on_message(wslay_event_context_ptr ws, const struct wslay_event_on_msg_recv_arg *m, void *ctx)
{
    (void)ws;
    session *s = ctx;
    s->framed_at = loop_now(s->on);
    if (s->stage == STAGE_OVER || m->opcode == WSLAY_PING || m->opcode == WSLAY_PONG)
        return;
    if (m->opcode == WSLAY_CONNECTION_CLOSE)
        receive_close(s, m);
    else if (m->opcode != WSLAY_BINARY_FRAME)
        end(s, OVER_BY_US, "it sent text where messages were expected");
    else
        receive(s, m->msg, m->msg_length);
}

/* For wslay, which reads what has come and writes frames. */
static ssize_t read_stream(wslay_event_context_ptr ws, uint8_t *to, size_t n, int flags, void *ctx)
{
    (void)flags;
    session *s = ctx;
    size_t got = stream_read(s->stream, to, n);
    if (got > 0)
        return (ssize_t)got;
    wslay_event_set_error(ws, WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t append_frames(wslay_event_context_ptr ws, const uint8_t *from, size_t n, int flags, void *ctx)
{
    (void)ws;
    (void)flags;
    session *s = ctx;
    buf_add(&s->frames, from, n);
    return (ssize_t)n;
}

/* Makes a mask. Masks protect proxies from chosen bytes, so they need only be unpredictable to outsiders, not secret
 * for ever. */
static int make_mask(wslay_event_context_ptr ws, uint8_t *to, size_t n, void *ctx)
{
    (void)ws;
    session *s = ctx;
    uint64_t mask = rng_u64(s->mask_seed, s->n_masks++);
    CHECK(n <= sizeof mask);
    memcpy(to, &mask, n);
    return 0;
}

/* Goes over to WebSocket frames: the HTTP exchange is done. */
static void start_frames(session *s)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = read_stream,
                                                           .send_callback = append_frames,
                                                           .genmask_callback = make_mask,
                                                           .on_msg_recv_callback = on_message};
    int status = s->side == SIDE_LISTENING ? wslay_event_context_server_init(&s->ws, &callbacks, s)
                                           : wslay_event_context_client_init(&s->ws, &callbacks, s);
    CHECK(status == 0);
    s->mask_seed = loop_random_id(s->on);
    wslay_event_config_set_max_recv_msg_length(s->ws, MAX_STRANGER_MESSAGE);
    s->stage = STAGE_GREETING;
    send_hello(s);
}

void session_begin(session *s, const char *host)
{
    if (s->stream->is_private) {
        s->stage = STAGE_GREETING;
        send_hello(s);
        return;
    }
    s->stage = STAGE_UPGRADING;
    if (s->side == SIDE_LISTENING)
        return;
    uint8_t random[UPGRADE_KEY_BYTES];
    loop_random(s->on, random, sizeof random);
    upgrade_make_key(s->key, random);
    buf_clear(&s->out);
    upgrade_write_request(&s->out, host, s->key);
    stream_write(s->stream, s->out.data, s->out.len);
}

static int receive_head(session *s, const char *head, size_t n, err *e)
{
    if (s->side == SIDE_CONNECTING)
        return upgrade_check_response(head, n, s->key, e);
    if (upgrade_read_request(head, n, s->key, e))
        return -1;
    buf_clear(&s->out);
    upgrade_write_response(&s->out, s->key);
    stream_write(s->stream, s->out.data, s->out.len);
    return 0;
}

static void read_head(session *s)
{
    size_t n;
    const char *data = stream_peek(s->stream, UPGRADE_MAX_HEAD, &n);
    err e;
    int length = upgrade_head_length(data, n, &e);
    if (length == 0)
        return;
    if (length < 0 || receive_head(s, data, (size_t)length, &e)) {
        end(s, OVER_BY_US, e.msg);
        return;
    }
    stream_read(s->stream, NULL, (size_t)length);
    start_frames(s);
}

/* Sends pongs. Ends the session with a stranger that asks for many and reads none, to bound its memory. */
static void send_answers(session *s)
{
    send_queued(s);
    if (s->stage < STAGE_UP && stream_unsent(s->stream) > MAX_STRANGER_UNSENT)
        end(s, OVER_BROKEN, NOT_READING);
}

static void refuse_frame(session *s)
{
    char why[100];
    snprintf(why, sizeof why, "it broke the WebSocket protocol, or sent a message of more than %zu bytes",
             s->stage == STAGE_UP ? s->opt->max_message : MAX_STRANGER_MESSAGE);
    end(s, OVER_BY_US, why);
}

/* Reads frames of a private stream. They are always complete: the peer writes each in one call. */
static void read_private(session *s)
{
    size_t have;
    private_head head;
    for (const char *frame; s->stage != STAGE_OVER && (frame = stream_peek(s->stream, SIZE_MAX, &have));) {
        memcpy(&head, frame, sizeof head);
        CHECK(have >= sizeof head && have - sizeof head >= head.n);
        frame += sizeof head;
        s->framed_at = loop_now(s->on);
        if (head.is_goodbye)
            end(s, OVER_BY_PEER, frame);
        else if (head.n > s->opt->max_message)
            refuse_frame(s);
        else
            receive(s, (const uint8_t *)frame, head.n);
        stream_read(s->stream, NULL, sizeof head + head.n);
    }
}

static void read_frames(session *s)
{
    if (s->stream->is_private) {
        read_private(s);
        return;
    }
    int status = wslay_event_recv(s->ws);
    if (s->stage == STAGE_OVER)
        return;
    if (status || !wslay_event_get_read_enabled(s->ws))
        refuse_frame(s);
    else if (wslay_event_want_write(s->ws))
        send_answers(s);
}

void session_read(session *s)
{
    if (s->stage == STAGE_UPGRADING)
        read_head(s);
    if (s->stage >= STAGE_GREETING && s->stage <= STAGE_UP)
        read_frames(s);
}

void session_send(session *s, const void *message, size_t n)
{
    if (s->stage == STAGE_UP)
        send_sealed(s, message, n);
}

void session_ping(session *s)
{
    struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    if (s->stage != STAGE_UP)
        return;
    send_sealed(s, "", 0);
    if (s->stage != STAGE_UP || s->stream->is_private)
        return;
    wslay_event_queue_msg(s->ws, &ping);
    send_queued(s);
}

bool session_secret_is_accepted(const session *s)
{
    const credentials *own = s->opt->own;
    bool is_one = !own->secret[0] && own->mutual;
    for (int i = 0; i < MAX_SECRETS && own->secret[i]; i++)
        is_one |= strcmp(own->secret[i], s->secret) == 0;
    return is_one;
}

double session_framed_at(const session *s)
{
    return s->framed_at;
}

bool session_is_up(const session *s)
{
    return s->stage == STAGE_UP;
}

const char *session_peer(const session *s)
{
    return s->peer;
}
