/* frontend.c - see frontend.h
 *
 * Puts the parts together: routes.c says what is answered by what, call.c follows a call, dispatch.c has the link. */
#include "frontend/frontend.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "frontend/answer.h"
#include "frontend/routes.h"
#include "net/accept.h"
#include "net/address.h"
#include "net/timer.h"
#include "text/token_bytes.h"

#define MAX_HEADERS (64u << 10)
#define BACKLOG 1024                    /* connections not yet accepted */

struct frontend {
    event_loop *loop;                   /* borrowed */
    struct evhttp *http;
    struct evhttp_bound_socket *socket; /* NULL once it drains */
    struct event *rest;                 /* see accept_rest(); NULL when no more clients are taken */
    char *address;
    metrics counts;
    tokenizer *t;
    templates *chat;
    versions *versions;
    grammar_checks *grammars;
    int *eos;
    int n_leaving;                      /* reply.h */
    routes routes;
    struct event *drain;                /* looks whether all calls are answered */
    double drain_seconds, drain_until;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* Half of the cores are left to the workers; more than 8 threads were no faster (docs/results/cluster.md). */
static int default_threads(void)
{
    int half = pool_cores() / 2;
    return half < 1 ? 1 : half > 8 ? 8 : half;
}

frontend_options frontend_options_default(void)
{
    return (frontend_options){.listen = "127.0.0.1:8000", .link = link_options_default(), .max_body = 8u << 20,
                              .max_unsent = 256u << 10, .send_buffer = 256u << 10, .client_timeout = 30, .patience = 60,
                              .keep_alive = 10, .drain_seconds = 60, .max_live = 65536, .threads = default_threads()};
}

/* A listening socket on which answers leave at once and the kernel keeps a bounded part of them; connections inherit
 * both. */
static struct evconnlistener *open_socket(struct event_base *loop, const char *listen, size_t send_buffer, err *e)
{
    address a;
    struct sockaddr_storage where;
    socklen_t len;
    if (address_parse(&a, listen, e) || address_resolve(&a, &where, &len, e)) {
        err_wrap(e, "--listen %s", listen);
        return NULL;
    }
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    struct evconnlistener *l = evconnlistener_new_bind(loop, NULL, NULL, flags, BACKLOG, (struct sockaddr *)&where, (int)len);
    if (!l) {
        err_set(e, "cannot listen on %s: %s%s", listen, strerror(errno),
                errno == EADDRINUSE ? "; stop what is there or choose another port with --listen HOST:PORT" : "");
        return NULL;
    }
    int one = 1, size = (int)send_buffer;
    setsockopt(evconnlistener_get_fd(l), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(evconnlistener_get_fd(l), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return l;
}

static char *address_of(evutil_socket_t fd)
{
    struct sockaddr_storage where;
    socklen_t len = sizeof where;
    char text[128];
    CHECK(getsockname(fd, (struct sockaddr *)&where, &len) == 0);
    address_print((struct sockaddr *)&where, len, text, sizeof text);
    return xstrdup(text);
}

/* Take no more connections. */
static void close_socket(frontend *f)
{
    if (f->rest)
        event_free(f->rest);
    f->rest = NULL;
    if (f->socket)
        evhttp_del_accept_socket(f->http, f->socket);
    f->socket = NULL;
}

static int start_http(frontend *f, const frontend_options *o, err *e)
{
    struct evconnlistener *l = open_socket(f->loop->events, o->listen, o->send_buffer, e);
    if (!l)
        return -1;
    f->address = address_of(evconnlistener_get_fd(l));
    f->http = evhttp_new(f->loop->events);
    f->socket = evhttp_bind_listener(f->http, l);
    CHECK(f->http && f->socket);
    f->rest = accept_rest(l);
    struct timeval timeout = timer_seconds(o->client_timeout);
    evhttp_set_timeout_tv(f->http, &timeout);
    evhttp_set_max_headers_size(f->http, MAX_HEADERS);
    /* A body somewhat too large is taken in, so that we can refuse it in our own words. */
    evhttp_set_max_body_size(f->http, (ev_ssize_t)(2 * o->max_body));
    evhttp_set_flags(f->http, EVHTTP_SERVER_LINGERING_CLOSE);
    /* routes.c says no to those that do not fit; to CONNECT evhttp would let it answer without a length */
    evhttp_set_allowed_methods(f->http, UINT16_MAX & ~EVHTTP_REQ_CONNECT);
    evhttp_set_default_content_type(f->http, NULL);
    evhttp_set_gencb(f->http, routes_answer, &f->routes);
    return 0;
}

static int start_dispatch(frontend *f, const frontend_options *o, err *e)
{
    const dispatch_options d = {.scheduler = o->scheduler, .link = o->link, .max_live = o->max_live, .threads = o->threads,
                                .patience = o->patience};
    f->routes.calls.at_scheduler = dispatch_new(&f->loop->base, &d, e);
    return f->routes.calls.at_scheduler ? 0 : -1;
}

static int load(frontend *f, const frontend_options *o, err *e)
{
    service *s = &f->routes.calls;
    if (!(f->t = tokenizer_load(o->model_dir, e)) ||
        !(s->models = catalog_new(o->model_name, o->adapters_dir, o->adapter, o->n_adapters, e)) ||
        !(f->chat = templates_new(s->models, o->model_dir, o->chat_template, e)))
        return -1;
    f->versions = versions_new(s->models);
    s->tools = (prepare_tools){.t = f->t, .chat = f->chat, .adapters = f->versions,
                                 .grammars = f->grammars = grammar_checks_new(), .context = o->context, .vocab = o->vocab};
    s->preparer = preparer_new(f->loop->events, &s->tools);
    s->plain_id = token_plain_id(f->t);
    return 0;
}

frontend *frontend_new(event_loop *l, const frontend_options *o, err *e)
{
    CHECK(o->n_eos + MAX_STOPS <= MAX_END_IDS);
    frontend *f = XNEW(frontend);
    f->loop = l;
    f->drain_seconds = o->drain_seconds;
    f->eos = XNEW_ARRAY(int, (size_t)o->n_eos + 1);
    memcpy(f->eos, o->eos, (size_t)o->n_eos * sizeof *f->eos);
    f->routes = (routes){
        .calls = {.on = &l->base, .counts = &f->counts, .max_body = o->max_body, .eos = f->eos, .n_eos = o->n_eos,
                  .keep_alive = o->keep_alive},
        .limits = {.max_unsent = o->max_unsent, .timeout = o->client_timeout, .n_leaving = &f->n_leaving},
        .created = time(NULL), .more_metrics = o->more_metrics, .metrics_ctx = o->metrics_ctx};
    if (load(f, o, e) == 0 && start_dispatch(f, o, e) == 0 && start_http(f, o, e) == 0)
        return f;
    frontend_free(f);
    return NULL;
}

/* Connections first: with them go the calls, which use everything else. */
void frontend_free(frontend *f)
{
    if (!f)
        return;
    close_socket(f);
    if (f->http)
        evhttp_free(f->http);
    if (f->drain)
        event_free(f->drain);
    dispatch_free(f->routes.calls.at_scheduler);
    preparer_free(f->routes.calls.preparer);
    templates_free(f->chat);
    versions_free(f->versions);
    grammar_checks_free(f->grammars);
    catalog_free(f->routes.calls.models);
    tokenizer_free(f->t);
    metrics_deinit(&f->counts);
    free(f->eos);
    free(f->address);
    free(f);
}

const char *frontend_address(const frontend *f)
{
    return f->address;
}

bool frontend_is_up(const frontend *f)
{
    return dispatch_is_up(f->routes.calls.at_scheduler);
}

char **frontend_adapters(const frontend *f, int *n)
{
    return catalog_list(f->routes.calls.models, n);
}

static void on_drain(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    frontend *f = ctx;
    int left = f->counts.live_calls + f->n_leaving;
    if (left > 0 && clock_now() < f->drain_until)
        return;
    if (left > 0)
        log_warn("frontend: %d calls are not answered to their end", left);
    event_del(f->drain);
    f->drained(f->drained_ctx);
}

void frontend_drain(frontend *f, void (*done)(void *ctx), void *ctx)
{
    CHECK(!f->drain);
    f->routes.calls.draining = true;
    f->drained = done;
    f->drained_ctx = ctx;
    f->drain_until = clock_now() + f->drain_seconds;
    close_socket(f);
    f->drain = event_new(f->loop->events, -1, EV_PERSIST, on_drain, f);
    event_add(f->drain, &(struct timeval){.tv_usec = 20000});
}
