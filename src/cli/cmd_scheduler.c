/* cmd_scheduler.c - `punica scheduler`: the scheduler of a cluster */
#include <stdlib.h>

#include "base/log.h"
#include "base/sandbox.h"
#include "cli/cluster_args.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "net/event_loop.h"
#include "scheduler/sched_http.h"

typedef struct {
    sched_server_options server;
    cluster_role role;
    const char *http, *scale_hook, *log_level;
    double hook_every;
} arguments;

static int parse(arguments *a, int argc, char **argv, err *e)
{
    *a = (arguments){.server = sched_server_options_default(),
                     .http = "127.0.0.1:7001",
                     .hook_every = 30,
                     .role.files.listens = true};
    sched_server_options *v = &a->server;
    credential_files *f = &a->role.files;
    const option options[] = {
        {"listen", OPT_STRING, &v->listen, "ADDRESS",
         "HOST:PORT or unix:PATH for frontends and runners (127.0.0.1:7000)"},
        {"http", OPT_STRING, &a->http, "HOST:PORT", "for /health, /metrics and /v1/signals (127.0.0.1:7001)"},
        {"secret-file", OPT_STRING, &f->secret_file, "FILE", SECRET_HELP},
        {"tls-cert", OPT_STRING, &f->tls_cert, "FILE", "certificate chain, PEM: links use TLS"},
        {"tls-key", OPT_STRING, &f->tls_key, "FILE", "its private key, PEM"},
        {"tls-ca", OPT_STRING, &f->tls_ca, "FILE",
         "whose certificates frontends and runners must show, each for its role"},
        {"log-file", OPT_STRING, &a->role.log_file, "FILE", LOG_FILE_HELP},
        {"log-level", OPT_STRING, &a->log_level, "LEVEL", LOG_LEVEL_HELP},
        {"Policy"},
        {"max-queue", OPT_INT, &v->policy.max_queue, "N", "requests that may wait; more are refused (10000)", 0, 1e9},
        {"max-wait", OPT_DOUBLE, &v->policy.max_wait, "SECONDS", "a request may wait for its first GPU (0: for ever)",
         0, 1e9},
        {"consolidate", OPT_DOUBLE, &v->policy.consolidate_every, "SECONDS",
         "between looks at lightly loaded GPUs (1; 0: never)", 0, 1e9},
        {"Scaling"},
        {"scale-hook", OPT_STRING, &a->scale_hook, "CMD", "run CMD up, or CMD down UUID..., while that is wanted"},
        {"hook-every", OPT_DOUBLE, &a->hook_every, "SECONDS", "between two runs of it at least (30)", 1, 1e9},
        {NULL}};
    const command_line c = {
        .usage = "punica scheduler --listen ADDRESS --secret-file FILE [options]",
        .about = "Give requests of frontends to GPUs of runners. Frontends and runners connect to it, with the same\n"
                 "secret or certificates for their roles; it keeps nothing on disk: restarted, it gets its requests "
                 "back from\n"
                 "the frontends. " SIGHUP_HELP,
        .options = options};
    int status = options_parse(&c, argc, argv, e);
    if (status)
        return status;
    if (cluster_check_address(v->listen, e))
        return -1;
    return cluster_log(a->role.log_file, a->log_level, e);
}

static int serve(arguments *a, err *e)
{
    credentials own = {0};
    if (credentials_load(&own, &a->role.files, e))
        return -1;
    a->server.link.own = a->role.own = &own;
    cluster_raise_file_limit();
    if (!a->scale_hook) /* the hook may need whatever its author has thought of */
        sandbox_role(false);
    event_loop *loop = event_loop_new();
    if (a->scale_hook)
        a->server.hook = scale_hook_new(loop->events, a->scale_hook, a->hook_every);
    sched_server *v = sched_server_new(&loop->base, &a->server, e);
    sched_http *http = v ? sched_http_new(loop, v, a->http, e) : NULL;
    if (http) {
        log_info("scheduler listens on %s, HTTP on %s", sched_server_address(v), sched_http_address(http));
        cluster_run(loop->events, &a->role);
    }
    sched_http_free(http);
    sched_server_free(v);
    scale_hook_free(a->server.hook);
    event_loop_free(loop);
    credentials_deinit(&own);
    return http ? 0 : -1;
}

int cmd_scheduler(int argc, char **argv)
{
    arguments a;
    err e;
    int status = parse(&a, argc, argv, &e);
    if (status == 0)
        status = serve(&a, &e);
    return status < 0 ? command_fail(e.msg) : 0;
}
