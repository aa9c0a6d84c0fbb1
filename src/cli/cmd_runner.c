/* cmd_runner.c - `punica runner`: the devices of one host, for a cluster */
#include <stdlib.h>

#include "cli/cluster_args.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/source_args.h"
#include "net/event_loop.h"
#include "model/model_id.h"
#include "runner/runner.h"
#include "runner/subprocess.h"

typedef struct {
    runner_options runner;
    worker_args workers;
    cluster_role role;
    const char *log_level;
    source_args sources;
} arguments;

static int parse(arguments *a, int argc, char **argv, err *e)
{
    *a = (arguments){.runner = runner_options_default(), .workers = worker_args_default()};
    source_args_init(&a->sources);
    worker_args *w = &a->workers;
    credential_files *f = &a->role.files;
    const option options[] = {
        {"scheduler", OPT_STRING, &a->runner.scheduler, "ADDRESS", "HOST:PORT or unix:PATH of the scheduler"},
        {"secret-file", OPT_STRING, &f->secret_file, "FILE", SECRET_HELP},
        TLS_OPTIONS(f),
        {"log-file", OPT_STRING, &a->role.log_file, "FILE", LOG_FILE_HELP},
        {"log-level", OPT_STRING, &a->log_level, "LEVEL", LOG_LEVEL_HELP},
        {"Models"},
        {"model", OPT_STRING, &w->model_dir, "DIR", "the base model: a Hugging Face model directory"},
        {"adapters", OPT_STRING, &w->adapters_dir, "DIR", "a directory of adapters, each in a folder of its name"},
        {"cache", OPT_STRING, &w->cache, "DIR", CACHE_HELP},
        {"adapter", OPT_LIST, &w->adapters, "NAME=DIR", "a PEFT LoRA adapter; repeat for more"},
        RUNNER_SOURCE_OPTIONS(&a->sources),
        {"Workers"},
        WORKER_OPTIONS(w),
        {"hang-seconds", OPT_DOUBLE, &a->runner.hang_seconds, "SECONDS",
         "a worker silent for so long is killed (10; cpu: 60)", 3, 1e9},
        {"start-seconds", OPT_DOUBLE, &a->runner.start_seconds, "SECONDS", "the same while it loads its model (600)", 1,
         1e9},
        {"drain-seconds", OPT_DOUBLE, &a->runner.drain_seconds, "SECONDS",
         "SIGTERM waits so long for requests to move away (60)", 0, 1e9},
        {NULL}};
    const command_line c = {
        .usage = "punica runner --scheduler ADDRESS --secret-file FILE --model DIR [--adapters DIR] [--device NAME]...",
        .about = "Serve with the devices of this host: one worker process for each, started again when it dies.\n"
                 "SIGTERM or SIGQUIT moves its requests to other runners and then exits; a second one exits at "
                 "once.\n" SIGHUP_HELP,
        .options = options};
    int status = options_parse(&c, argc, argv, e);
    if (status)
        return status;
    if (!a->runner.scheduler || !w->model_dir)
        return err_set(e, "--scheduler ADDRESS and --model DIR are needed; see punica runner --help");
    a->sources.cache = w->cache;
    if (cluster_check_address(a->runner.scheduler, e) || worker_args_check(w, e) ||
        (w->cache && source_args_check(&a->sources, e)))
        return -1;
    return cluster_log(a->role.log_file, a->log_level, e);
}

static void drain(void *ctx, void (*done)(void *), void *done_ctx)
{
    runner_drain(ctx, done, done_ctx);
}

static int run(arguments *a, err *e)
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
        worker_args_settle(&a->workers);
        loop = event_loop_new();
        a->runner.processes = subprocess_starter(loop->events);
        r = runner_new(&loop->base, &a->runner, e);
        worker_args_release(&a->runner);
        source_args_list_free(list, a->runner.n_fetcher_args);
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
    arguments a;
    err e;
    int status = parse(&a, argc, argv, &e);
    if (status == 0)
        status = run(&a, &e);
    free(a.workers.adapters.items);
    free(a.workers.devices.items);
    source_args_deinit(&a.sources);
    return status < 0 ? command_fail(e.msg) : 0;
}
