/* frontend.c - see frontend.h
 *
 * Puts the parts together: routes.c says what is answered by what, call.c follows a call, dispatch.c has the link. */
#include "frontend/frontend.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "frontend/answer.h"
#include "frontend/fetches.h"
#include "frontend/routes.h"
#include "net/secret.h"
#include "net/tls.h"
#include "registry/registry.h"
#include "text/token_bytes.h"

#define KEPT_FILES 256 /* file descriptors that clients do not get */
#define RESERVE 32     /* connections for operators when clients have all others */

struct frontend {
    atomic_int context; /* tokens of prompt and output together: the model's, or what the GPUs hold */
    event_loop *loop;   /* borrowed */
    http_server *http;
    shared_budget memory;
    metrics counts;
    access_log log;
    background *threads;
    tokenizer *t;
    templates *chat;
    versions *versions;
    adapter_checks *checks;
    disk_cache *cache;   /* NULL: there is none, */
    char *cache_dir;     /* nor its folder */
    held_versions *held; /* nor this */
    tiers *tiers;
    grammar_checks *grammars;
    sampling_defaults defaults;
    int *eos;
    char *tls_cert, *tls_key; /* files; NULL: no TLS */
    char *admin_key_file;     /* NULL: no operators */
    routes routes;
    struct event *drain; /* looks whether all calls are answered */
    double drain_seconds, drain_until;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* Half of the cores are left to the workers; more than 8 threads were no faster (docs/lab/token-delay.md). */
static int default_threads(void)
{
    int half = pool_cores() / 2;
    return half < 1 ? 1 : half > 8 ? 8 : half;
}

frontend_options frontend_options_default(void)
{
    return (frontend_options){.listen = "127.0.0.1:8000",
                              .generation_config = "auto",
                              .link = link_options_default(),
                              .max_body = 8u << 20,
                              .max_memory = 256u << 20,
                              .max_connections = 8192,
                              .max_unsent = 256u << 10,
                              .send_buffer = 256u << 10,
                              .client_timeout = 30,
                              .patience = 60,
                              .keep_alive = 10,
                              .drain_seconds = 60,
                              .max_live = 65536,
                              .threads = default_threads()};
}

/* Returns how many connections clients may have: of the files that the system allows, some are kept for links, workers
 * and adapters. */
static int room_for_clients(int wanted)
{
    struct rlimit files;
    int kept = KEPT_FILES + RESERVE;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY ||
        files.rlim_cur >= (rlim_t)(wanted + kept))
        return wanted;
    return files.rlim_cur > (rlim_t)(2 * kept) ? (int)files.rlim_cur - kept : (int)files.rlim_cur / 2;
}

/* Has malloc return large buffers to the system as they are freed. Without fixed thresholds it raises them as it sees
 * such buffers come and go, and keeps the memory. */
static void return_large_pieces(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
}

static int start_http(frontend *f, const frontend_options *o, err *e)
{
    const http_options h = {.listen = o->listen,
                            .timeout = o->client_timeout,
                            .max_unsent = o->max_unsent,
                            .send_buffer = o->send_buffer,
                            .max_connections = room_for_clients(o->max_connections),
                            .reserve = RESERVE,
                            .memory = &f->memory.whole};
    http_events events = routes_events(&f->routes);
    f->routes.calls.max_calls = h.max_connections;
    f->http = http_server_new(f->loop, &h, &events, e);
    f->routes.server = f->http;
    if (!f->http)
        return err_wrap(e, "--listen");
    f->tls_cert = o->tls_cert ? xstrdup(o->tls_cert) : NULL;
    f->tls_key = o->tls_key ? xstrdup(o->tls_key) : NULL;
    f->admin_key_file = o->admin_key_file ? xstrdup(o->admin_key_file) : NULL;
    return frontend_reload(f, e);
}

static int read_admin_keys(frontend *f, err *e)
{
    char *key[MAX_SECRETS] = {NULL};
    int n = 0;
    if (!f->admin_key_file)
        return 0;
    if (secrets_read(f->admin_key_file, key, e))
        return -1;
    while (n < MAX_SECRETS && key[n])
        n++;
    api_keys_deinit(&f->routes.admin);
    api_keys_init(&f->routes.admin, (const char *const *)key, n);
    for (int i = 0; i < n; i++)
        free(key[i]);
    return 0;
}

static int read_certificate(frontend *f, err *e)
{
    SSL_CTX *tls = f->tls_cert ? tls_serving(f->tls_cert, f->tls_key, e) : NULL;
    if (tls)
        http_server_set_tls(f->http, tls);
    return f->tls_cert && !tls ? -1 : 0;
}

int frontend_reload(frontend *f, err *e)
{
    err other;
    int status = read_admin_keys(f, e);
    return read_certificate(f, status ? &other : e) || status ? -1 : 0;
}

static void on_residents(void *ctx, const Residents *r)
{
    tiers_update(((frontend *)ctx)->tiers, r);
}

static int start_dispatch(frontend *f, const frontend_options *o, err *e)
{
    const dispatch_options d = {.scheduler = o->scheduler,
                                .link = o->link,
                                .max_live = o->max_live,
                                .threads = o->threads,
                                .patience = o->patience,
                                .context = &f->context,
                                .held = f->held,
                                .residents = on_residents,
                                .residents_ctx = f};
    f->routes.calls.at_scheduler = dispatch_new(&f->loop->base, &d, e);
    return f->routes.calls.at_scheduler ? 0 : -1;
}

static int read_defaults(frontend *f, const frontend_options *o, err *e)
{
    buf said = {0};
    if (sampling_defaults_read(&f->defaults, o->generation_config, o->model_dir, e))
        return -1;
    sampling_defaults_write(&f->defaults, &said);
    if (said.len)
        log_info("frontend: sampling defaults of generation_config.json: %s", said.data);
    buf_free(&said);
    return 0;
}

/* Opens the disk cache. Its names are served, unless the registry is the store's. */
static int open_cache(frontend *f, const frontend_options *o, err *e)
{
    if (!o->cache)
        return 0;
    f->cache_dir = xstrdup(o->cache);
    if (!(f->held = held_versions_new(o->cache, e)) || !(f->cache = disk_cache_open(o->cache, o->cache_bytes, e)))
        return err_wrap(e, "--cache");
    if (o->store) {
        f->routes.calls.fetches =
            fetches_new(f->loop->events, &(fetches_options){.cache = f->cache, .fetch = o->fetch, .base = o->base});
        return 0;
    }
    char *names = registry_names_dir(o->cache);
    catalog_add_dir(f->routes.calls.models, names);
    free(names);
    return 0;
}

/* Takes over what the store says of adapters, now and whenever that has changed. */
static void take_registry(void *ctx, const store_directory *d)
{
    frontend *f = ctx;
    catalog_register(f->routes.calls.models, f->cache_dir ? f->cache_dir : "", d->adapter, d->n_adapters);
}

static int open_adapter_api(frontend *f, const frontend_options *o, err *e)
{
    if (!o->adapter_updates)
        return 0;
    const adapter_api_options a = {.cache = f->cache,
                                   .dir = f->cache_dir,
                                   .tiers = f->tiers,
                                   .fetch = o->fetch,
                                   .base = o->base,
                                   .accounts = f->routes.calls.accounts};
    f->routes.adapters = adapter_api_new(f->loop->events, &a, f->routes.calls.models, e);
    return f->routes.adapters ? 0 : -1;
}

static int load(frontend *f, const frontend_options *o, err *e)
{
    service *s = &f->routes.calls;
    if (!(f->t = tokenizer_load(o->model_dir, e)) ||
        !(s->models = catalog_new(o->model_name, o->adapters_dir, o->adapter, o->n_adapters, e)))
        return -1;
    if (open_cache(f, o, e))
        return -1;
    if (!(f->chat = templates_new(s->models, o->model_dir, o->chat_template, e)))
        return -1;
    if (read_defaults(f, o, e))
        return -1;
    f->versions = versions_new(s->models);
    f->checks = adapter_checks_new(s->models, o->checker);
    atomic_init(&f->context, o->context);
    s->tools = (prepare_tools){.t = f->t,
                               .chat = f->chat,
                               .models = s->models,
                               .adapters = f->versions,
                               .checks = f->checks,
                               .grammars = f->grammars = grammar_checks_new(),
                               .context = &f->context,
                               .vocab = o->vocab,
                               .defaults = &f->defaults};
    f->threads = background_new(f->loop->events, o->threads / 2 + 1);
    s->preparer = preparer_new(f->threads, &s->tools);
    f->routes.list = model_list_new(f->threads, s->models, f->checks, f->routes.created, &f->context);
    s->plain_id = token_plain_id(f->t);
    return 0;
}

static int open_accounts(frontend *f, const frontend_options *o, err *e)
{
    if (!o->store)
        return 0;
    f->routes.calls.accounts =
        accounts_new(&f->loop->base, o->store, o->model_name, (accounts_news){take_registry, f}, e);
    return f->routes.calls.accounts ? 0 : err_wrap(e, "--store");
}

frontend *frontend_new(event_loop *l, const frontend_options *o, err *e)
{
    CHECK(o->n_eos + MAX_STOPS <= MAX_END_IDS);
    frontend *f = XNEW(frontend);
    f->loop = l;
    f->drain_seconds = o->drain_seconds;
    shared_budget_init(&f->memory, o->max_memory);
    f->tiers = tiers_new();
    return_large_pieces();
    f->eos = XNEW_ARRAY(int, (size_t)o->n_eos + 1);
    memcpy(f->eos, o->eos, (size_t)o->n_eos * sizeof *f->eos);
    f->routes = (routes){.calls = {.on = &l->base,
                                   .counts = &f->counts,
                                   .log = &f->log,
                                   .memory = &f->memory,
                                   .eos = f->eos,
                                   .n_eos = o->n_eos,
                                   .keep_alive = o->keep_alive},
                         .tiers = f->tiers,
                         .max_body = o->max_body,
                         .created = (int64_t)loop_wall(&l->base),
                         .more_metrics = o->more_metrics,
                         .metrics_ctx = o->metrics_ctx};
    api_keys_init(&f->routes.keys, o->key, o->n_keys);
    api_keys_init(&f->routes.admin, NULL, 0);
    cors_init(&f->routes.cors, o->origin, o->n_origins);
    if (load(f, o, e) == 0 && open_accounts(f, o, e) == 0 && open_adapter_api(f, o, e) == 0 &&
        start_dispatch(f, o, e) == 0 && start_http(f, o, e) == 0) {
        model_list_look(f->routes.list);
        return f;
    }
    frontend_free(f);
    return NULL;
}

/* Connections first: with them go the calls, which use everything else. */
void frontend_free(frontend *f)
{
    if (!f)
        return;
    http_server_free(f->http);
    if (f->drain)
        event_free(f->drain);
    dispatch_free(f->routes.calls.at_scheduler);
    adapter_api_free(f->routes.adapters);
    fetches_free(f->routes.calls.fetches);
    background_free(f->threads);
    model_list_free(f->routes.list);
    preparer_free(f->routes.calls.preparer);
    templates_free(f->chat);
    held_versions_free(f->held);
    versions_free(f->versions);
    adapter_checks_free(f->checks);
    grammar_checks_free(f->grammars);
    accounts_free(f->routes.calls.accounts);
    tiers_free(f->tiers);
    disk_cache_close(f->cache);
    free(f->cache_dir);
    catalog_free(f->routes.calls.models);
    tokenizer_free(f->t);
    metrics_deinit(&f->counts);
    api_keys_deinit(&f->routes.keys);
    cors_deinit(&f->routes.cors);
    free(f->tls_cert);
    free(f->tls_key);
    free(f->admin_key_file);
    api_keys_deinit(&f->routes.admin);
    free(f->eos);
    free(f);
}

const char *frontend_address(const frontend *f)
{
    return http_server_address(f->http);
}

const char *frontend_scheme(const frontend *f)
{
    return f->tls_cert ? "https" : "http";
}

int frontend_context(const frontend *f)
{
    return dispatch_n_gpus(f->routes.calls.at_scheduler) > 0 ? atomic_load(&f->context) : 0;
}

char **frontend_adapters(const frontend *f, int *n_good, int *n)
{
    char **names = catalog_list(f->routes.calls.models, n);
    *n_good = adapter_checks_sort(f->checks, names, *n);
    return names;
}

int frontend_n_tenants(const frontend *f)
{
    accounts *a = f->routes.calls.accounts;
    return a ? tenants_count(accounts_tenants(a)) : -1;
}

void frontend_wake(frontend *f)
{
    dispatch_wake(f->routes.calls.at_scheduler);
}

int frontend_n_open(const frontend *f)
{
    return f->counts.live_calls + http_server_n_leaving(f->http);
}

static void on_drain(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    frontend *f = ctx;
    int left = frontend_n_open(f);
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
    log_info("frontend: %d calls are to be answered to their end, for up to %g s", frontend_n_open(f),
             f->drain_seconds);
    http_server_stop(f->http);
    f->drain = event_new(f->loop->events, -1, EV_PERSIST, on_drain, f);
    event_add(f->drain, &(struct timeval){.tv_usec = 20000});
}
