/* server_args.c - see server_args.h */
#include "cli/server_args.h"

#include <stdlib.h>

#include "cli/engine_args.h"
#include "cli/served_model.h"
#include "scheduler/sched_http.h"

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
                       .http = SCHED_HTTP_LISTEN,
                       .hook_every = SCALE_HOOK_EVERY};
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
        {CLIENTS, {"listen", OPT_STRING, &f->listen, "HOST:PORT", "listen for clients there (%)"}},
        {CLIENTS, {"host", OPT_STRING, &at->host, "HOST", "the host of --listen, by itself"}},
        {CLIENTS, {"port", OPT_INT, &at->port, "PORT", "the port of --listen, by itself", 0, 65535}},
        {CLIENTS,
         {"api-key", OPT_LIST, &at->keys, "KEY",
          "clients must send this key as a bearer token; repeat for more (environment PUNICA_API_KEY)"}},
        {CLIENTS, {"store", OPT_STRING, &at->store, "URL", STORE_HELP}},
        {CLIENTS,
         {"admin-key-file", OPT_STRING, &at->admin_key_file, "FILE",
          "the operators' key, which opens /admin/v1/ and the tenants' part of /metrics; SIGHUP reads it again"}},
        {CLIENTS,
         {"open", OPT_FLAG, &at->open, NULL,
          "let everybody in: listen on addresses that other hosts reach, though no key is needed"}},
        {CLIENTS,
         {"ssl-certfile", OPT_STRING, &at->tls_cert, "FILE",
          "use TLS for clients: this server's certificate and its chain, PEM"}},
        {CLIENTS,
         {"ssl-keyfile", OPT_STRING, &at->tls_key, "FILE",
          "private key of --ssl-certfile, PEM; SIGHUP reads both files again"}},
        {CLIENTS,
         {"cors", OPT_LIST, &at->origins, "ORIGIN",
          "allow browsers to call from web pages of this origin (https://HOST[:PORT], or '*' for any); repeat for "
          "more"}},
        {SERVER_SCHEDULER,
         {"listen", OPT_STRING, &a->sched.listen, "ADDRESS", "HOST:PORT or unix:PATH for frontends and runners (%)"}},
        {SERVER_SCHEDULER,
         {"http", OPT_STRING, &a->http, "HOST:PORT", "serve /health, /metrics and /v1/signals there (%)"}},
        {PEERS, {"scheduler", OPT_STRING, &a->scheduler, "ADDRESS", "HOST:PORT or unix:PATH of the scheduler"}},
        {LINKS,
         {"secret-file", OPT_STRING, &c->secret_file, "FILE",
          "the cluster's shared secret, one line, or two while it is changed (environment PUNICA_SECRET)"}},
        {PEERS,
         {"tls-ca", OPT_STRING, &c->tls_ca, "FILE",
          "use TLS to the scheduler, whose certificate one of these must have signed, PEM"}},
        {PEERS,
         {"tls-cert", OPT_STRING, &c->tls_cert, "FILE",
          "certificate of this process for its role, PEM, instead of a secret"}},
        {SERVER_SCHEDULER,
         {"tls-cert", OPT_STRING, &c->tls_cert, "FILE",
          "use TLS on links: the scheduler's certificate and its chain, PEM"}},
        {LINKS, {"tls-key", OPT_STRING, &c->tls_key, "FILE", "private key of --tls-cert, PEM"}},
        {SERVER_SCHEDULER,
         {"tls-ca", OPT_STRING, &c->tls_ca, "FILE",
          "frontends and runners must have certificates for their roles that one of these has signed, PEM"}},
        {EVERYONE, {"log-level", OPT_STRING, &a->log_level, "LEVEL", "error, warn, info or debug (%)"}},
        {EVERYONE,
         {"log-file", OPT_STRING, &a->role.log_file, "FILE",
          "write the log there instead of to standard error; SIGHUP opens it anew"}},

        {0, {"Models"}},
        {SERVER_ALL, {"model", OPT_STRING, &w->model_dir, "DIR", MODEL_HELP " (the demo)"}},
        {SERVER_FRONTEND,
         {"model", OPT_STRING, &w->model_dir, "DIR", "the base model's directory; its weights are not needed here"}},
        {SERVER_RUNNER, MODEL_OPTION(w)},
        {CLIENTS,
         {"name", OPT_STRING, &a->model_name, "NAME", "what clients call the base model (its directory's name)"}},
        {CLIENTS, {"served-model-name", OPT_STRING, &a->model_name, "NAME", "the same as --name"}},
        {CLIENTS,
         {"generation-config", OPT_STRING, &f->generation_config, "FROM",
          "sampling defaults: auto (the model's generation_config.json), vllm or none (OpenAI's), or a DIR with such a "
          "file (%)"}},
        {CLIENTS,
         {"chat-template", OPT_STRING, &f->chat_template, "FILE",
          "a chat template (Jinja) instead of the model's own"}},
        {MODELS, ADAPTERS_OPTION(w)},
        {MODELS, ADAPTER_OPTION(&w->adapters)},
        {MODELS, CACHED_OPTION(w)},

        {0, {"Adapters of the registry"}},
        {CLIENTS,
         {"adapter-updates", OPT_FLAG, &s->updates, NULL,
          "let clients add, replace, roll back and remove adapters by HTTP; with tenants, operators all and tenants "
          "their own"}},
        {MODELS, ADAPTER_FILES_OPTION(s)},
        {MODELS, CACHE_BYTES_OPTION(s)},
        {MODELS, MAX_ADAPTER_BYTES_OPTION(s)},
        {MODELS, FETCH_SECONDS_OPTION(s)},
        {MODELS, STALL_SECONDS_OPTION(s)},
        {MODELS, ALLOW_NETWORK_OPTION(s)},

        {0, {"Workers"}},
        {WORKERS,
         {"device", OPT_LIST, &w->devices, "NAME",
          "cpu, cuda, cuda:N or cuda:N-M; repeat for more, a worker each (cpu)"}},
        {WORKERS, TP_OPTION(w)},
        {WORKERS, {"workers", OPT_INT, &w->n_workers, "N", "workers on each device (%)", 1, 256}},
        {WORKERS, WEIGHTS_OPTION(w)},
        {WORKERS, KV_OPTION(w)},
        {WORKERS, MAX_BATCH_OPTION(w)},
        {WORKERS, ITL_TARGET_OPTION(w)},
        {WORKERS, THREADS_OPTION(w)},
        {WORKERS, MAX_LEN_OPTION(w)},
        {WORKERS, MEMORY_SHARE_OPTION(w)},
        {WORKERS, KV_PAGES_OPTION(w)},
        {WORKERS, NO_PREFIX_CACHE_OPTION(w)},
        {WORKERS, KV_HOST_OPTION(w)},
        {WORKERS, SLOTS_OPTION(w)},
        {WORKERS, ADAPTER_HOST_OPTION(w)},
        {SERVER_RUNNER,
         {"hang-seconds", OPT_DOUBLE, &a->runner.hang_seconds, "SECONDS",
          "a worker that says nothing for so long is killed and started again (" AS_TEXT(
              HANG_SECONDS) ", on the CPU " AS_TEXT(HANG_SECONDS_CPU) ")",
          3, 1e9}},
        {SERVER_RUNNER,
         {"start-seconds", OPT_DOUBLE, &a->runner.start_seconds, "SECONDS",
          "a worker that has not loaded its model after so long is killed and started again (%)", 1, 1e9}},
        {SERVER_RUNNER,
         {"drain-seconds", OPT_DOUBLE, &a->runner.drain_seconds, "SECONDS",
          "after SIGTERM, wait at most so long for requests to move to other runners (%)", 0, 1e9}},

        {0, {"Limits"}},
        {QUEUE,
         {"max-queue", OPT_INT, &q->max_queue, "N", "requests that may wait for a GPU; more get a 429 (%)", 0, 1e9}},
        {QUEUE,
         {"max-wait", OPT_DOUBLE, &q->max_wait, "SECONDS",
          "a request that has waited so long for its first GPU gets a 503; 0: it waits for ever (%)", 0, 1e9}},
        {SERVER_FRONTEND,
         {"max-live", OPT_INT, &f->max_live, "N", "requests of this frontend that may wait or run; more get a 429 (%)",
          1, 1 << 20}},
        {CLIENTS, {"max-body", OPT_SIZE, &f->max_body, "BYTES", "size of a request's body (%)", 1024, 1e9}},
        {CLIENTS,
         {"max-memory", OPT_SIZE, &f->max_memory, "BYTES",
          "memory for large requests and answers, all together; more are refused (%)", 1 << 20, 1e12}},
        {CLIENTS,
         {"max-connections", OPT_INT, &f->max_connections, "N",
          "open connections of clients (%, or as many as the system allows)", 1, 1 << 20}},
        {CLIENTS,
         {"max-unsent", OPT_SIZE, &f->max_unsent, "BYTES",
          "output kept for a client that does not read it; with more, it is disconnected (%)", 1024, 1e9}},
        {CLIENTS,
         {"client-timeout", OPT_DOUBLE, &f->client_timeout, "SECONDS",
          "a client that sends or reads nothing for so long, where it should, is disconnected (%)", 0.1, 1e6}},
        {SERVER_FRONTEND,
         {"patience", OPT_DOUBLE, &f->patience, "SECONDS",
          "while the scheduler cannot be reached, requests wait so long for it (%)", 0, 1e6}},
        {CLIENTS,
         {"drain-seconds", OPT_DOUBLE, &f->drain_seconds, "SECONDS",
          "after SIGTERM, wait at most so long for running streams to end (%)", 0, 1e6}},

        {0, {"Scaling"}},
        {SERVER_SCHEDULER,
         {"consolidate", OPT_DOUBLE, &q->consolidate_every, "SECONDS",
          "how often to move requests away from lightly loaded GPUs, so that they become idle; 0: never (%)", 0, 1e9}},
        {SERVER_SCHEDULER,
         {"scale-hook", OPT_STRING, &a->scale_hook, "CMD",
          "run `CMD up` when more GPUs are wanted, and `CMD down UUID...` when the listed ones are not needed"}},
        {SERVER_SCHEDULER,
         {"hook-every", OPT_DOUBLE, &a->hook_every, "SECONDS", "run --scale-hook at most once in so long (%)", 1, 1e9}},
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
