/* accept.c - see accept.h
 *
 * The error callback gets the listener's own context, which is its owner's: it cannot reach a timer of ours. So a
 * periodic timer enables the listener, whether it was paused or not. */
#include "net/accept.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "net/timer.h"

static const double BACKOFF = 1; /* seconds */

static void on_error(struct evconnlistener *l, void *ctx)
{
    (void)ctx;
    log_warn("cannot take a connection: %s", strerror(errno));
    evconnlistener_disable(l);
}

static void resume(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    evconnlistener_enable(ctx);
}

struct event *accept_add_backoff(struct evconnlistener *l)
{
    struct timeval every = timer_seconds(BACKOFF);
    struct event *timer = event_new(evconnlistener_get_base(l), -1, EV_PERSIST, resume, l);
    CHECK(timer);
    event_add(timer, &every);
    evconnlistener_set_error_cb(l, on_error);
    return timer;
}
