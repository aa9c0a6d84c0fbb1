/* http_reply.h - answers to calls over HTTP */
#ifndef PUNICA_FRONTEND_HTTP_REPLY_H
#define PUNICA_FRONTEND_HTTP_REPLY_H

#include "frontend/reply.h"
#include "net/http_server.h"

/* Returns a reply that answers x, and takes x. It frees itself (reply.h). */
reply *http_reply_new(http_exchange *x);

#endif
