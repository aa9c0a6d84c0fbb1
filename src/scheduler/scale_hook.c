/* scale_hook.c - see scale_hook.h */
#include "scheduler/scale_hook.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/log.h"
#include "base/mem.h"

static const double HOLDS_FOR = 2; /* seconds that advice must last before it is acted on (debounce) */

struct scale_hook {
    struct event_base *loop; /* borrowed */
    char *command;
    double every;
    char *advice;      /* the last */
    double advised_at; /* when it was first given */
    double ran_at;
    bool has_run;
    child c;             /* the command while it runs */
    struct event *ended; /* fires when it ends; NULL: it does not run */
};

scale_hook *scale_hook_new(struct event_base *loop, const char *command, double every)
{
    scale_hook *h = XNEW(scale_hook);
    *h = (scale_hook){.loop = loop, .command = xstrdup(command), .every = every, .advice = xstrdup("")};
    return h;
}

static void forget_process(scale_hook *h)
{
    if (!h->ended)
        return;
    event_free(h->ended);
    h->ended = NULL;
    child_forget(&h->c);
}

void scale_hook_free(scale_hook *h)
{
    if (!h)
        return;
    forget_process(h);
    free(h->command);
    free(h->advice);
    free(h);
}

static void process_ended(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    scale_hook *h = ctx;
    char how[32];
    if (child_wait(&h->c, how))
        log_warn("scale hook \"%s\": %s", h->command, how);
    forget_process(h);
}

/* Starts the command in a shell; the words of the advice are its arguments, so that none is taken for shell syntax. */
static int start(child *c, const char *command, const char *advice, err *e)
{
    enum { MAX_ARGS = 4096 };
    char *line = xasprintf("%s \"$@\"", command), *words = xstrdup(advice), *rest = NULL;
    const char *argv[MAX_ARGS + 5] = {"sh", "-c", line, "punica-scale-hook"};
    int n = 4;
    for (char *word = strtok_r(words, " ", &rest); word && n < MAX_ARGS + 4; word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    int status = child_start(c, "/bin/sh", (char *const *)argv, NULL, 0, e);
    free(line);
    free(words);
    return status;
}

static void run_command(scale_hook *h)
{
    err e;
    if (start(&h->c, h->command, h->advice, &e)) {
        log_error("scale hook \"%s\": %s", h->command, e.msg);
        return;
    }
    log_info("scale hook: %s %s", h->command, h->advice);
    h->ended = event_new(h->loop, h->c.fd, EV_READ, process_ended, h);
    CHECK(h->ended);
    event_add(h->ended, NULL);
}

void scale_hook_advise(scale_hook *h, double now, const char *advice)
{
    if (strcmp(advice, h->advice) != 0) {
        free(h->advice);
        h->advice = xstrdup(advice);
        h->advised_at = now;
    }
    if (!*advice || now - h->advised_at < HOLDS_FOR || h->ended || (h->has_run && now - h->ran_at < h->every))
        return;
    run_command(h);
    h->has_run = true;
    h->ran_at = now;
}
