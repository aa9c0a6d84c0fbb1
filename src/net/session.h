/* session.h - one connection between two peers, from its first byte to its last
 *
 *   connecting side                              listening side
 *     GET ──────────────────────────────────────▶                      upgrade.h
 *     ◀────────────────────────────────────── 101
 *     Hello ───────────▶   ◀─────────────── Hello                      who, which version, which model
 *     Proof ────────────────────────────────────▶  up                  proof.h
 *     up  ◀──────────────────────────────── Proof
 *     ◀──── messages and pings, both ways ──────▶                      each message behind its seal (seal.h)
 *
 * On a private stream (stream.h) there is neither upgrade nor WebSocket nor seal: a frame is a length and its bytes.
 * The rest is the same.
 *
 * It works on a stream that its owner has opened and closes. When the session is over, for
 * whatever reason, it says so once and does nothing any more. */
#ifndef PUNICA_NET_SESSION_H
#define PUNICA_NET_SESSION_H

#include "net/link.h"
#include "net/proof.h"

#define NOT_READING "it does not read what is sent to it"

typedef struct session session;

/* Who ended it: we did, and the peer has been told why; the peer, which told us; or it just broke. */
typedef enum { OVER_BY_US, OVER_BY_PEER, OVER_BROKEN } session_over;

/* up: the peer has proved itself; on the listening side it does not know yet, and nothing can be sent from within the
 * call but a refusal, with session_close(). message: one has come. over: must not free the session. */
typedef struct {
    void (*up)(void *ctx, const Hello *hello);
    void (*message)(void *ctx, const Message *m);
    void (*over)(void *ctx, session_over how, const char *why);
    void *ctx;
} session_events;

/* way and o are borrowed. */
session *session_new(net_loop *on, net_stream *way, const link_options *o, proof_side side,
                     const session_events *events);
void session_free(session *s); /* leaves way alone */

/* The connection is there; host: what the connecting side asks for. */
void session_begin(session *s, const char *host);

void session_read(session *s);                                /* way has bytes */
void session_send(session *s, const void *message, size_t n); /* packed; when up */

/* When up: a ping, and an empty message with it. Seals are numbered, so a message before it that did not come, since
 * noise made something else of its frame, is missed then at the latest, also where no other would follow. */
void session_ping(session *s);

/* End it: tell the peer why if it is far enough for that, and say nothing more. over is not called. */
void session_close(session *s, const char *why);
void session_stop(session *s); /* the same, but the peer is not told */

bool session_is_up(const session *s);

/* When up: whether what the two sides proved themselves by is still what peers are believed by. */
bool session_is_believed(const session *s);

/* When the last frame of any kind, ping or message, had come to its end; or it was made. */
double session_framed_at(const session *s);

/* "runner gpu3/812", as the peer said itself; "" before its Hello. */
const char *session_peer(const session *s);

#endif
