/* cmd_runner.c - `punica runner`: the devices of one host, for a cluster */
#include <stdlib.h>

#include "cli/arg_list.h"
#include "cli/commands.h"
#include "cli/server_args.h"
#include "model/model_id.h"
#include "net/event_loop.h"
#include "runner/subprocess.h"

static int parse(server_args *a, int argc, char **argv, err *e)
{
    const command_line c = {
        .usage = "punica runner --scheduler ADDRESS --model DIR " LINK_USAGE " [options]",
        .about = "Serve with the devices of this host: one worker process for each, started again when it dies.\n"
                 "SIGTERM, SIGINT or SIGQUIT moves its requests to other runners and then exits; a second one exits "
                 "at once.\n" SIGHUP_HELP};
    int status = server_args_parse(a, SERVER_RUNNER, c, argc, argv, e);
    if (status)
        return status;
    a->sources.cache = a->workers.cache;
    if (a->workers.cache && source_args_check(&a->sources, e))
        return -1;
    return server_args_check(a, SERVER_RUNNER, e);
}

static void drain(void *ctx, void (*done)(void *), void *done_ctx)
{
    runner_drain(ctx, done, done_ctx);
}

static int run(server_args *a, err *e)
{
    event_loop *loop = NULL;
    runner *r = NULL;
    credentials own = {0};
    char *model = credentials_load(&own, &a->role.files, e) ? NULL : model_id_of(a->workers.model_dir, e);
    if (model) {
        a->runner.link.own = a->role.own = &own;
        a->runner.link.model = model;
        worker_args_apply(&a->workers, &a->runner);
        const char **list =
            source_args_list(&a->sources, a->workers.cache, a->workers.model_dir, &a->runner.n_fetcher_args);
        a->runner.fetcher_args = list;
        worker_args_sandbox(&a->workers);
        loop = event_loop_new();
        a->runner.processes = subprocess_starter(loop->events);
        r = runner_new(&loop->base, &a->runner, e);
        worker_args_release(&a->runner);
        arg_list_free(list, a->runner.n_fetcher_args);
    }
    free(model);
    a->role.drain = drain;
    a->role.ctx = r;
    if (r)
        cluster_run(loop->events, &a->role);
    runner_free(r);
    event_loop_free(loop);
    credentials_deinit(&own);
    return r ? 0 : -1;
}

int cmd_runner(int argc, char **argv)
{
    return server_args_command(argc, argv, parse, run);
}
