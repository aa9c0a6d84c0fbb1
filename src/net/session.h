/* session.h - one connection between two peers, from its first byte to its last
 *
 *   connecting side                              listening side
 *     GET ──────────────────────────────────────▶                      upgrade.h
 *     ◀────────────────────────────────────── 101
 *     Hello ───────────▶   ◀─────────────── Hello                      role, name, version, model
 *     Proof ────────────────────────────────────▶  up                  proof.h
 *     up  ◀──────────────────────────────── Proof
 *     ◀──── messages and pings, both ways ──────▶                      each message behind its seal (seal.h)
 *
 * On a private stream (stream.h) there is neither upgrade nor WebSocket nor seal: a frame is a length and its bytes.
 * The rest is the same.
 *
 * A session works on a stream that its owner opens and closes. When it ends other than by its owner's session_close()
 * or session_stop(), it calls `over` once and does nothing any more. */
#ifndef PUNICA_NET_SESSION_H
#define PUNICA_NET_SESSION_H

#include "net/link.h"
#include "net/proof.h"

#define NOT_READING "it does not read what is sent to it"

typedef struct session session;

/* How a session ended: we ended it and told the peer why; the peer ended it and told us; or the connection broke. */
typedef enum { OVER_BY_US, OVER_BY_PEER, OVER_BROKEN } session_over;

/* up: the peer has proved itself; on the listening side it does not know yet, so nothing can be sent from within the
 * call but a refusal, with session_close(). message: one has come. over: the session has ended; the callback must not
 * free it. */
typedef struct {
    void (*up)(void *ctx, const Hello *hello);
    void (*message)(void *ctx, const Message *m);
    void (*over)(void *ctx, session_over how, const char *why);
    void *ctx;
} session_events;

/* stream and o are borrowed. */
session *session_new(net_loop *on, net_stream *stream, const link_options *o, proof_side side,
                     const session_events *events);
void session_free(session *s); /* leaves the stream alone */

/* Begins the session, once the stream is open. host: for the connecting side's HTTP request. */
void session_begin(session *s, const char *host);

void session_read(session *s);                                /* reads what has come on the stream */
void session_send(session *s, const void *message, size_t n); /* sends a packed message; does nothing unless up */

/* Sends a ping and an empty message; does nothing unless up. Seals are numbered, so the empty message reveals a loss
 * before it: noise may have turned the frame of the last message into something else. */
void session_ping(session *s);

/* Ends the session, and tells the peer why if it is at a stage where it can be told. over is not called. */
void session_close(session *s, const char *why);
void session_stop(session *s); /* the same without telling the peer */

bool session_is_up(const session *s);

/* Returns whether the secret that the two sides, now up, proved themselves with is still accepted. */
bool session_secret_is_accepted(const session *s);

/* Returns when the last frame of any kind, ping or message, was complete; at first when the session was made. */
double session_framed_at(const session *s);

/* Returns "runner gpu3/812", as the peer names itself; "" before its Hello. */
const char *session_peer(const session *s);

#endif
