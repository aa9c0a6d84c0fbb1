/* cmd_scheduler.c - `punica scheduler`: the scheduler of a cluster */
#include "base/log.h"
#include "base/sandbox.h"
#include "cli/commands.h"
#include "cli/server_args.h"
#include "net/event_loop.h"
#include "scheduler/sched_http.h"

static int parse(server_args *a, int argc, char **argv, err *e)
{
    const command_line c = {
        .usage = "punica scheduler " LINK_USAGE " [options]",
        .about = "Give requests of frontends to GPUs of runners. Frontends and runners connect to it, with the same\n"
                 "secret or certificates for their roles; it keeps nothing on disk: restarted, it gets its requests "
                 "back from\n"
                 "the frontends. " SIGHUP_HELP};
    a->role.files.listens = true;
    int status = server_args_parse(a, SERVER_SCHEDULER, c, argc, argv, e);
    return status ? status : server_args_check(a, SERVER_SCHEDULER, e);
}

static int serve(server_args *a, err *e)
{
    credentials own = {0};
    if (credentials_load(&own, &a->role.files, e))
        return -1;
    a->sched.link.own = a->role.own = &own;
    cluster_raise_file_limit();
    if (!a->scale_hook) /* the hook may need whatever its author has thought of */
        sandbox_role(false);
    event_loop *loop = event_loop_new();
    if (a->scale_hook)
        a->sched.hook = scale_hook_new(loop->events, a->scale_hook, a->hook_every);
    sched_server *v = sched_server_new(&loop->base, &a->sched, e);
    sched_http *http = v ? sched_http_new(loop, v, a->http, e) : NULL;
    if (http) {
        log_info("scheduler listens on %s, HTTP on %s", sched_server_address(v), sched_http_address(http));
        cluster_run(loop->events, &a->role);
    }
    sched_http_free(http);
    sched_server_free(v);
    scale_hook_free(a->sched.hook);
    event_loop_free(loop);
    credentials_deinit(&own);
    return http ? 0 : -1;
}

int cmd_scheduler(int argc, char **argv)
{
    return server_args_command(argc, argv, parse, serve);
}
