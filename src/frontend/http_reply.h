/* http_reply.h - answers to calls over HTTP */
#ifndef PUNICA_FRONTEND_HTTP_REPLY_H
#define PUNICA_FRONTEND_HTTP_REPLY_H

#include "frontend/reply.h"
#include "net/http_server.h"

/* A reply to x, which is the reply's from now on. */
reply *http_reply_new(http_exchange *x);

#endif
