/* cmd_frontend.c - `punica frontend`: OpenAI's API for the clients of a cluster */
#include "base/log.h"
#include "base/sandbox.h"
#include "cli/commands.h"
#include "cli/served_model.h"
#include "cli/server_args.h"

static int parse(server_args *a, int argc, char **argv, err *e)
{
    const command_line c = {
        .usage = "punica frontend --scheduler ADDRESS --model DIR " LINK_USAGE " [options]",
        .about =
            "Speak OpenAI's API with clients and tokens with the scheduler. Lost links and restarted schedulers are\n"
            "not noticed by clients. After SIGTERM, SIGINT or SIGQUIT it takes no new calls, and exits when the last\n"
            "stream has ended, or after --drain-seconds. " SIGHUP_HELP};
    int status = server_args_parse(a, SERVER_FRONTEND, c, argc, argv, e);
    return status ? status : server_args_check(a, SERVER_FRONTEND, e);
}

static void drain(void *ctx, void (*done)(void *), void *done_ctx)
{
    frontend_drain(ctx, done, done_ctx);
}

static int reload(void *ctx, err *e)
{
    return frontend_reload(ctx, e);
}

static int run(server_args *a, err *e)
{
    event_loop *loop = NULL;
    frontend *f = NULL;
    served_model m;
    if (served_model_read(&m, a->workers.model_dir, a->model_name, e))
        return -1;
    cluster_raise_file_limit();
    sandbox_role(false);
    credentials own = {0};
    if (credentials_load(&own, &a->role.files, e) == 0 &&
        source_args_apply(&a->sources, a->front.cache, &m.config, &a->front, e) == 0) {
        served_model_apply(&m, a->workers.model_dir, &a->front);
        a->front.link.own = a->role.own = &own;
        loop = event_loop_new();
        f = frontend_new(loop, &a->front, e);
    }
    if (f) {
        log_info("frontend listens on %s://%s", frontend_scheme(f), frontend_address(f));
        a->role.drain = drain;
        a->role.reload = reload;
        a->role.ctx = f;
        cluster_run(loop->events, &a->role);
    }
    frontend_free(f);
    event_loop_free(loop);
    credentials_deinit(&own);
    served_model_deinit(&m);
    return f ? 0 : -1;
}

int cmd_frontend(int argc, char **argv)
{
    return server_args_command(argc, argv, parse, run);
}
