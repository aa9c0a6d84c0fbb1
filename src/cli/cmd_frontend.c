/* cmd_frontend.c - `punica frontend`: OpenAI's API for the clients of a cluster */
#include <stdlib.h>

#include "base/log.h"
#include "base/sandbox.h"
#include "cli/cluster_args.h"
#include "cli/commands.h"
#include "cli/listen_args.h"
#include "cli/options.h"
#include "cli/served_model.h"
#include "cli/source_args.h"

typedef struct {
    frontend_options front;
    cluster_role role;
    const char *model_dir, *name, *log_level;
    option_list adapters;
    listen_args at;
    source_args sources;
} arguments;

static int parse(arguments *a, int argc, char **argv, err *e)
{
    *a = (arguments){.at.port = -1, .front = frontend_options_default()};
    source_args_init(&a->sources);
    frontend_options *f = &a->front;
    credential_files *c = &a->role.files;
    const option options[] = {
        {"listen", OPT_STRING, &f->listen, "HOST:PORT", "where clients come in (127.0.0.1:8000)"},
        LISTEN_OPTIONS(&a->at),
        {"scheduler", OPT_STRING, &f->scheduler, "ADDRESS", "HOST:PORT or unix:PATH of the scheduler"},
        {"secret-file", OPT_STRING, &c->secret_file, "FILE", SECRET_HELP},
        TLS_OPTIONS(c),
        {"log-file", OPT_STRING, &a->role.log_file, "FILE", LOG_FILE_HELP},
        {"log-level", OPT_STRING, &a->log_level, "LEVEL", LOG_LEVEL_HELP},
        {"Models"},
        {"model", OPT_STRING, &a->model_dir, "DIR", "the base model's directory; its weights are not needed here"},
        {"name", OPT_STRING, &a->name, "NAME", "what clients call the base model (its directory's name)"},
        {"served-model-name", OPT_STRING, &a->name, "NAME", "the same"},
        {"generation-config", OPT_STRING, &f->generation_config, "FROM", GENERATION_CONFIG_HELP},
        {"chat-template", OPT_STRING, &f->chat_template, "FILE",
         "a Jinja program for conversations, instead of the model's own"},
        {"adapters", OPT_STRING, &f->adapters_dir, "DIR", "a directory of adapters, each in a folder of its name"},
        {"cache", OPT_STRING, &f->cache, "DIR", CACHE_HELP},
        {"adapter", OPT_LIST, &a->adapters, "NAME=DIR", "a PEFT LoRA adapter; repeat for more"},
        UPDATE_OPTIONS(&a->sources),
        {"Limits"},
        {"max-live", OPT_INT, &f->max_live, "N", "requests at once; more are refused (65536)", 1, 1 << 20},
        {"max-body", OPT_SIZE, &f->max_body, "BYTES", "of a request (8388608)", 1024, 1e9},
        {"max-memory", OPT_SIZE, &f->max_memory, "BYTES",
         "of all large requests and answers together; more are refused (268435456)", 1 << 20, 1e12},
        {"max-connections", OPT_INT, &f->max_connections, "N", "of clients (8192, or as many as the system allows)", 1,
         1 << 20},
        {"max-unsent", OPT_SIZE, &f->max_unsent, "BYTES", "kept for a client that does not read (262144)", 1024, 1e9},
        {"client-timeout", OPT_DOUBLE, &f->client_timeout, "SECONDS", "a client may keep us waiting (30)", 0.1, 1e6},
        {"patience", OPT_DOUBLE, &f->patience, "SECONDS", "requests wait for a scheduler that is gone (60)", 0, 1e6},
        {"drain-seconds", OPT_DOUBLE, &f->drain_seconds, "SECONDS", "SIGTERM waits so long for streams to end (60)", 0,
         1e6},
        {NULL}};
    const command_line line = {
        .usage = "punica frontend --scheduler ADDRESS --secret-file FILE --model DIR [--adapters DIR] [options]",
        .about =
            "Speak OpenAI's API with clients and tokens with the scheduler. Lost links and restarted schedulers are\n"
            "not noticed by clients. SIGTERM or SIGQUIT takes no new calls and exits when the last stream has ended, "
            "or\n"
            "after --drain-seconds. " SIGHUP_HELP,
        .options = options};
    int status = options_parse(&line, argc, argv, e);
    if (status)
        return status;
    if (!f->scheduler || !a->model_dir)
        return err_set(e, "--scheduler ADDRESS and --model DIR are needed; see punica frontend --help");
    f->adapter = a->adapters.items;
    f->n_adapters = a->adapters.n;
    if (cluster_check_address(f->scheduler, e) || listen_args_apply(&a->at, f, e))
        return -1;
    return cluster_log(a->role.log_file, a->log_level, e);
}

static void drain(void *ctx, void (*done)(void *), void *done_ctx)
{
    frontend_drain(ctx, done, done_ctx);
}

static int reload(void *ctx, err *e)
{
    return frontend_reload(ctx, e);
}

static int run(arguments *a, err *e)
{
    event_loop *loop = NULL;
    frontend *f = NULL;
    served_model m;
    if (served_model_read(&m, a->model_dir, a->name, e))
        return -1;
    cluster_raise_file_limit();
    sandbox_role(false);
    credentials own = {0};
    if (credentials_load(&own, &a->role.files, e) == 0 &&
        source_args_apply(&a->sources, a->front.cache, &m.config, &a->front, e) == 0) {
        served_model_apply(&m, a->model_dir, &a->front);
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
    arguments a;
    err e;
    int status = parse(&a, argc, argv, &e);
    if (status == 0)
        status = run(&a, &e);
    free(a.adapters.items);
    listen_args_release(&a.at);
    source_args_deinit(&a.sources);
    return status < 0 ? command_fail(e.msg) : 0;
}
