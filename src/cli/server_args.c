/* server_args.c - see server_args.h */
#include "cli/server_args.h"

#include <stdlib.h>

#include "cli/served_model.h"

enum {
    CLIENTS = SERVER_ALL | SERVER_FRONTEND, /* kinds that speak with clients */
    QUEUE = SERVER_ALL | SERVER_SCHEDULER,  /* that have the queue */
    WORKERS = SERVER_ALL | SERVER_RUNNER,   /* that have workers */
    MODELS = CLIENTS | WORKERS,             /* that know models */
    PEERS = SERVER_FRONTEND | SERVER_RUNNER,
    LINKS = PEERS | SERVER_SCHEDULER, /* that have links to other processes */
    EVERYONE = MODELS | QUEUE
};

/* A row of the table: an option, and the kinds that have it. */
typedef struct {
    unsigned of; /* server_kind, or several */
    option o;
} row;

enum { MAX_ROWS = 96 };

void server_args_init(server_args *a)
{
    *a = (server_args){.front = frontend_options_default(),
                       .sched = sched_server_options_default(),
                       .runner = runner_options_default(),
                       .workers = worker_args_default(),
                       .at.port = -1,
                       .log_level = "info",
                       .http = "127.0.0.1:7001",
                       .hook_every = 30};
    source_args_init(&a->sources);
}

void server_args_deinit(server_args *a)
{
    free(a->workers.adapters.items);
    free(a->workers.devices.items);
    listen_args_release(&a->at);
    source_args_deinit(&a->sources);
}

static bool is_heading(const row *r)
{
    return r->o.name && !r->o.out;
}

/* Copies the rows of a kind, headings only where something stands below them. */
static void choose_rows(const row *all, unsigned kind, option *chosen)
{
    int n = 0;
    const option *heading = NULL;
    for (; all->o.name; all++) {
        if (is_heading(all)) {
            heading = &all->o;
            continue;
        }
        if (!(all->of & kind))
            continue;
        if (heading)
            chosen[n++] = *heading;
        heading = NULL;
        chosen[n++] = all->o;
        CHECK(n < MAX_ROWS);
    }
    chosen[n] = (option){0};
}

int server_args_parse(server_args *a, server_kind kind, command_line line, int argc, char **argv, err *e)
{
    frontend_options *f = &a->front;
    scheduler_options *q = &a->sched.policy;
    worker_args *w = &a->workers;
    listen_args *at = &a->at;
    source_args *s = &a->sources;
    credential_files *c = &a->role.files;
    const row all[] = {
        {CLIENTS, {"listen", OPT_STRING, &f->listen, "HOST:PORT", "where clients come in (%)"}},
        {CLIENTS, {"host", OPT_STRING, &at->host, "HOST", "the same in two: its host"}},
        {CLIENTS, {"port", OPT_INT, &at->port, "PORT", "and its port", 0, 65535}},
        {CLIENTS,
         {"api-key", OPT_LIST, &at->keys, "KEY",
          "clients must show it, as a bearer's token; repeat for more (environment PUNICA_API_KEY)"}},
        {CLIENTS, {"store", OPT_STRING, &at->store, "URL", STORE_HELP}},
        {CLIENTS,
         {"admin-key-file", OPT_STRING, &at->admin_key_file, "FILE",
          "the operators' key: with it, /metrics tells of tenants and /admin/v1/ is open; SIGHUP reads it again"}},
        {CLIENTS,
         {"open", OPT_FLAG, &at->open, NULL,
          "listen also where others than this host reach it, though nobody needs a key"}},
        {CLIENTS,
         {"ssl-certfile", OPT_STRING, &at->tls_cert, "FILE",
          "clients speak TLS: our certificate and those that lead to its root, PEM"}},
        {CLIENTS, {"ssl-keyfile", OPT_STRING, &at->tls_key, "FILE", "its private key, PEM; SIGHUP reads both again"}},
        {CLIENTS,
         {"cors", OPT_LIST, &at->origins, "ORIGIN",
          "browsers may ask from pages of https://HOST[:PORT], or of any: '*'; repeat for more"}},
        {SERVER_SCHEDULER,
         {"listen", OPT_STRING, &a->sched.listen, "ADDRESS", "HOST:PORT or unix:PATH for frontends and runners (%)"}},
        {SERVER_SCHEDULER, {"http", OPT_STRING, &a->http, "HOST:PORT", "for /health, /metrics and /v1/signals (%)"}},
        {PEERS, {"scheduler", OPT_STRING, &a->scheduler, "ADDRESS", "HOST:PORT or unix:PATH of the scheduler"}},
        {LINKS,
         {"secret-file", OPT_STRING, &c->secret_file, "FILE",
          "the cluster's shared secret, one line, or two while it is changed (or environment PUNICA_SECRET)"}},
        {PEERS, {"tls-ca", OPT_STRING, &c->tls_ca, "FILE", "whom to trust, PEM: the link to the scheduler uses TLS"}},
        {PEERS,
         {"tls-cert", OPT_STRING, &c->tls_cert, "FILE", "our own certificate for this role, PEM: no secret is needed"}},
        {SERVER_SCHEDULER, {"tls-cert", OPT_STRING, &c->tls_cert, "FILE", "certificate chain, PEM: links use TLS"}},
        {LINKS, {"tls-key", OPT_STRING, &c->tls_key, "FILE", "its private key, PEM"}},
        {SERVER_SCHEDULER,
         {"tls-ca", OPT_STRING, &c->tls_ca, "FILE",
          "whose certificates frontends and runners must show, each for its role"}},
        {EVERYONE, {"log-level", OPT_STRING, &a->log_level, "LEVEL", "error, warn, info or debug (%)"}},
        {EVERYONE,
         {"log-file", OPT_STRING, &a->role.log_file, "FILE",
          "where to log instead of standard error; SIGHUP opens it anew"}},

        {0, {"Models"}},
        {SERVER_ALL,
         {"model", OPT_STRING, &w->model_dir, "DIR", "the base model: a Hugging Face model directory (the demo)"}},
        {SERVER_FRONTEND,
         {"model", OPT_STRING, &w->model_dir, "DIR", "the base model's directory; its weights are not needed here"}},
        {SERVER_RUNNER, {"model", OPT_STRING, &w->model_dir, "DIR", "the base model: a Hugging Face model directory"}},
        {CLIENTS,
         {"name", OPT_STRING, &a->model_name, "NAME", "what clients call the base model (its directory's name)"}},
        {CLIENTS, {"served-model-name", OPT_STRING, &a->model_name, "NAME", "the same"}},
        {CLIENTS,
         {"generation-config", OPT_STRING, &f->generation_config, "FROM",
          "sampling defaults: auto (the model's generation_config.json), none (OpenAI's), or a DIR with such a file "
          "(%)"}},
        {CLIENTS,
         {"chat-template", OPT_STRING, &f->chat_template, "FILE",
          "a Jinja program for conversations, instead of the model's own"}},
        {MODELS,
         {"adapters", OPT_STRING, &w->adapters_dir, "DIR", "a directory of adapters, each in a folder of its name"}},
        {MODELS, {"cache", OPT_STRING, &w->cache, "DIR", CACHE_HELP}},
        {MODELS, {"adapter", OPT_LIST, &w->adapters, "NAME=DIR", "a PEFT LoRA adapter; repeat for more"}},

        {0, {"Adapters of the registry"}},
        {CLIENTS,
         {"adapter-updates", OPT_FLAG, &s->updates, NULL,
          "adapters may be added, replaced, rolled back and removed: by operators, and by tenants their own; by all "
          "where there are no tenants"}},
        {CLIENTS,
         {"adapter-files", OPT_STRING, &s->fetch.files_under, "DIR",
          "then file: sources may lie in this folder (none may)"}},
        {SERVER_RUNNER,
         {"adapter-files", OPT_STRING, &s->fetch.files_under, "DIR",
          "file: sources of operators may lie in this folder (none may)"}},
        {MODELS, CACHE_BYTES_OPTION(s)},
        {MODELS, MAX_ADAPTER_BYTES_OPTION(s)},
        {MODELS, FETCH_SECONDS_OPTION(s)},
        {MODELS, STALL_SECONDS_OPTION(s)},
        {MODELS, ALLOW_NETWORK_OPTION(s)},

        {0, {"Workers"}},
        {WORKERS,
         {"device", OPT_LIST, &w->devices, "NAME",
          "cpu, cuda, cuda:N or cuda:N-M; repeat for more, a worker each (cpu)"}},
        {WORKERS,
         {"tp", OPT_INT, &w->tp, "N", "split the model over N GPUs, which are then one worker (%)", 1, MAX_RANKS}},
        {WORKERS, {"workers", OPT_INT, &w->n_workers, "N", "workers on each device (%)", 1, 256}},
        {WORKERS, {"weights", OPT_STRING, &w->weights, "FORM", WEIGHTS_HELP}},
        {WORKERS, {"kv", OPT_STRING, &w->kv, "FORM", KV_HELP}},
        {WORKERS, {"max-batch", OPT_INT, &w->max_batch, "N", MAX_BATCH_HELP, 1, 4096}},
        {WORKERS, {"itl-target", OPT_INT, &w->itl_target, "MS", ITL_TARGET_HELP, 1, 60000}},
        {WORKERS, {"threads", OPT_INT, &w->threads, "N", "CPU threads of each (the cores, shared out)", 1, 1024}},
        {WORKERS, {"max-model-len", OPT_INT, &w->max_len, "N", MAX_LEN_HELP, 1, 1e9}},
        {WORKERS, {"memory-share", OPT_DOUBLE, &w->memory_share, "SHARE", MEMORY_SHARE_HELP, 0.01, 0.99}},
        {WORKERS, {"kv-pages", OPT_INT, &w->kv_pages, "N", KV_PAGES_HELP, 1, 1e8}},
        {WORKERS, {"no-prefix-cache", OPT_FLAG, &w->no_prefix_cache, NULL, NO_PREFIX_CACHE_HELP}},
        {WORKERS, {"kv-host-bytes", OPT_SIZE, &w->host_bytes, "N", KV_HOST_HELP, 0, 1e15}},
        {WORKERS, {"adapter-slots", OPT_INT, &w->adapter_slots, "N", ADAPTER_SLOTS_HELP, 1, 65536}},
        {WORKERS, {"adapter-host-bytes", OPT_SIZE, &w->adapter_host_bytes, "N", ADAPTER_HOST_BYTES_HELP, 4096, 1e12}},
        {SERVER_RUNNER,
         {"hang-seconds", OPT_DOUBLE, &a->runner.hang_seconds, "SECONDS",
          "a worker silent for so long is killed (10; cpu: 60)", 3, 1e9}},
        {SERVER_RUNNER,
         {"start-seconds", OPT_DOUBLE, &a->runner.start_seconds, "SECONDS", "the same while it loads its model (%)", 1,
          1e9}},
        {SERVER_RUNNER,
         {"drain-seconds", OPT_DOUBLE, &a->runner.drain_seconds, "SECONDS",
          "SIGTERM waits so long for requests to move away (%)", 0, 1e9}},

        {0, {"Limits"}},
        {QUEUE, {"max-queue", OPT_INT, &q->max_queue, "N", "requests that may wait; more are refused (%)", 0, 1e9}},
        {QUEUE,
         {"max-wait", OPT_DOUBLE, &q->max_wait, "SECONDS", "a request may wait for its first GPU; 0: for ever (%)", 0,
          1e9}},
        {SERVER_FRONTEND,
         {"max-live", OPT_INT, &f->max_live, "N", "requests at once; more are refused (%)", 1, 1 << 20}},
        {CLIENTS, {"max-body", OPT_SIZE, &f->max_body, "BYTES", "of a request (%)", 1024, 1e9}},
        {CLIENTS,
         {"max-memory", OPT_SIZE, &f->max_memory, "BYTES",
          "of all large requests and answers together; more are refused (%)", 1 << 20, 1e12}},
        {CLIENTS,
         {"max-connections", OPT_INT, &f->max_connections, "N", "of clients (%, or as many as the system allows)", 1,
          1 << 20}},
        {CLIENTS,
         {"max-unsent", OPT_SIZE, &f->max_unsent, "BYTES", "kept for a client that does not read (%)", 1024, 1e9}},
        {CLIENTS,
         {"client-timeout", OPT_DOUBLE, &f->client_timeout, "SECONDS", "a client may keep us waiting (%)", 0.1, 1e6}},
        {SERVER_FRONTEND,
         {"patience", OPT_DOUBLE, &f->patience, "SECONDS", "requests wait for a scheduler that is gone (%)", 0, 1e6}},
        {CLIENTS,
         {"drain-seconds", OPT_DOUBLE, &f->drain_seconds, "SECONDS", "SIGTERM waits so long for streams to end (%)", 0,
          1e6}},

        {0, {"Scaling"}},
        {SERVER_SCHEDULER,
         {"consolidate", OPT_DOUBLE, &q->consolidate_every, "SECONDS",
          "between looks at lightly loaded GPUs; 0: never (%)", 0, 1e9}},
        {SERVER_SCHEDULER,
         {"scale-hook", OPT_STRING, &a->scale_hook, "CMD", "run CMD up, or CMD down UUID..., while that is wanted"}},
        {SERVER_SCHEDULER,
         {"hook-every", OPT_DOUBLE, &a->hook_every, "SECONDS", "between two runs of it at least (%)", 1, 1e9}},
        {0, {0}}};
    option chosen[MAX_ROWS];
    choose_rows(all, kind, chosen);
    line.options = chosen;
    return options_parse(&line, argc, argv, e);
}

/* Tells the frontend of the scheduler, and of the adapters that workers are told of. */
static void tell_frontend(server_args *a)
{
    frontend_options *f = &a->front;
    f->scheduler = a->scheduler;
    f->adapters_dir = a->workers.adapters_dir;
    f->cache = a->workers.cache;
    f->adapter = a->workers.adapters.items;
    f->n_adapters = a->workers.adapters.n;
}

int server_args_check(server_args *a, server_kind kind, err *e)
{
    if (kind & PEERS && (!a->scheduler || !a->workers.model_dir))
        return err_set(e, "--scheduler ADDRESS and --model DIR are needed; see punica %s --help",
                       kind == SERVER_RUNNER ? "runner" : "frontend");
    const char *address = kind & PEERS ? a->scheduler : kind == SERVER_SCHEDULER ? a->sched.listen : NULL;
    if (address && cluster_check_address(address, e))
        return -1;
    tell_frontend(a);
    a->runner.scheduler = a->scheduler;
    if ((kind & WORKERS && worker_args_check(&a->workers, e)) ||
        (kind & CLIENTS && listen_args_apply(&a->at, &a->front, e)))
        return -1;
    return cluster_log(a->role.log_file, a->log_level, e);
}

int server_args_command(int argc, char **argv, int (*parse)(server_args *a, int argc, char **argv, err *e),
                        int (*run)(server_args *a, err *e))
{
    server_args a;
    err e;
    server_args_init(&a);
    int status = parse(&a, argc, argv, &e);
    if (status == 0)
        status = run(&a, &e);
    server_args_deinit(&a);
    return status < 0 ? command_fail(e.msg) : 0;
}
