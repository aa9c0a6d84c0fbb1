/* cmd_serve.c - `punica serve`: everything on one host
 *
 * Scheduler, frontend and runner in one process, on one event loop, talking over links within the process; workers are
 * subprocesses. The same code as in a cluster, so what works here works there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/prometheus.h"
#include "cli/arg_list.h"
#include "cli/commands.h"
#include "cli/served_model.h"
#include "cli/server_args.h"
#include "cli/tree.h"
#include "frontend/catalog.h"
#include "model/model.h"
#include "runner/subprocess.h"

typedef struct {
    server_args server;
    char *demo_model, *demo_adapters; /* owned; NULL: not the demo */
} serve_args;

static int choose_demo(serve_args *a, err *e)
{
    worker_args *w = &a->server.workers;
    if (w->adapters_dir || w->cache || w->adapters.n)
        return err_set(e, "--model DIR is needed: the base model of these adapters");
    w->model_dir = a->demo_model = tree_find("demo/model");
    w->adapters_dir = a->demo_adapters = tree_find("demo/adapters");
    if (!a->demo_model || !a->demo_adapters)
        return err_set(e, "the demo model is not there; give --model DIR");
    if (!a->server.model_name)
        a->server.model_name = "demo";
    return 0;
}

static int parse(serve_args *a, int argc, char **argv, err *e)
{
    worker_args *w = &a->server.workers;
    const char *model_dir = NULL;
    const command_line c = {
        .usage = "punica serve [DIR [--adapters DIR] [--adapter NAME=DIR]...] [--device NAME]... [options]",
        .about =
            "Serve a base model and its adapters by OpenAI's API. \"model\" in a request names an adapter or the "
            "base;\n"
            "requests for different ones share each step. Without a model: the demo with its adapters, on the CPU.\n"
            "Ctrl-C takes no new requests and waits for those in hand, once more ends at once.",
        .n_positional = 1,
        .n_optional = 1,
        .positional = &model_dir};
    int status = server_args_parse(&a->server, SERVER_ALL, c, argc, argv, e);
    if (status)
        return status;
    if (model_dir && w->model_dir)
        return err_set(e, "the model is given twice: %s, and --model %s", model_dir, w->model_dir);
    w->model_dir = model_dir ? model_dir : w->model_dir;
    if (!w->model_dir && choose_demo(a, e))
        return -1;
    return server_args_check(&a->server, SERVER_ALL, e);
}

typedef struct {
    event_loop *loop;
    credentials own; /* a secret that nobody else knows */
    sched_server *sched;
    frontend *front;
    runner *run;
    struct event *ready;    /* timer: looks whether all are there */
    struct event *progress; /* timer: tells how many requests are left; NULL: not draining */
    double drain_seconds;
    int n_left;          /* as last told */
    const char *failure; /* why there will be no worker, borrowed from the runner; or NULL */
    bool is_demo, needs_key;
    const served_model *model; /* borrowed */
    const char *weights;       /* what the base's layers are held as, "FP8" */
} serving;

/* Prints a call to try: with a prompt that the demo was trained for, or for another model with any words. */
static void print_try(const serving *s, const char *name)
{
    const char *prompt = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them.";
    printf("\nTry:\n  curl -s %s://%s/v1/completions -H 'Content-Type: application/json' %s\\\n"
           "    -d '{\"model\": \"%s\", \"prompt\": \"%s\", \"max_tokens\": 120, \"temperature\": 0}'\n",
           frontend_scheme(s->front), frontend_address(s->front),
           s->needs_key ? "-H \"Authorization: Bearer $KEY\" " : "", name, s->is_demo ? prompt : "Once upon a time");
}

static void print_names(const char *title, char **names, int n)
{
    printf("  %-10s", title);
    for (int i = 0; i < n; i++)
        printf("%s%s", i == 0 ? "" : i % 12 == 0 ? "\n            " : " ", names[i]);
    puts(n ? "" : "none");
}

static void print_ready(const serving *s)
{
    int n, all;
    char **names = frontend_adapters(s->front, &n, &all);
    printf("punica serves on %s://%s\n", frontend_scheme(s->front), frontend_address(s->front));
    printf("  base      %s (%s, %d tokens of context)\n", s->model->name, s->model->config.family,
           frontend_context(s->front));
    print_names("adapters", names, n);
    if (all > n)
        print_names("failed", names + n, all - n); /* the log has said why */
    int tenants = frontend_n_tenants(s->front);
    if (tenants >= 0)
        printf("  tenants   %d%s\n", tenants,
               tenants ? "" : "; make one: punica tenant add NAME, punica tenant key add NAME KEY");
    const char *sql = n ? names[n / 2] : s->model->name;
    for (int i = 0; i < n && s->is_demo; i++)
        if (strcmp(names[i], "sql") == 0)
            sql = names[i];
    print_try(s, sql);
    fflush(stdout);
    catalog_list_free(names, all);
}

static void look(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    serving *s = ctx;
    s->failure = runner_failure(s->run);
    if (s->failure)
        event_base_loopbreak(s->loop->events);
    if (frontend_context(s->front) == 0)
        return;
    event_del(s->ready);
    print_ready(s);
}

static void write_metrics(void *ctx, buf *out)
{
    const serving *s = ctx;
    sched_server_write_metrics(s->sched, out);
    prometheus_add_family(out, "base_info", "gauge", "The base model, and what its layers' weights are held as.");
    const prometheus_label label[] = {{"family", s->model->config.family}, {"weights", s->weights}};
    prometheus_add_sample(out, "base_info", label, 2, 1);
}

static int start_scheduler(serving *s, server_args *a, err *e)
{
    a->sched.listen = LOOP_SELF;
    a->sched.link.own = &s->own;
    a->sched.link.within = true;
    s->sched = sched_server_new(&s->loop->base, &a->sched, e);
    return s->sched ? 0 : -1;
}

static int start_frontend(serving *s, server_args *a, err *e)
{
    frontend_options *f = &a->front;
    served_model_apply(s->model, a->workers.model_dir, f);
    f->scheduler = sched_server_address(s->sched);
    f->link.own = &s->own;
    f->link.within = true;
    if (source_args_apply(&a->sources, f->cache, &s->model->config, f, e))
        return -1;
    f->more_metrics = write_metrics;
    f->metrics_ctx = s;
    s->front = frontend_new(s->loop, f, e);
    return s->front ? 0 : -1;
}

static void on_notice(void *ctx)
{
    frontend_wake(((serving *)ctx)->front);
}

static int start_runner(serving *s, const server_args *a, err *e)
{
    runner_options r = a->runner;
    r.scheduler = sched_server_address(s->sched);
    r.link.own = &s->own;
    r.link.within = true;
    r.link.model = s->model->id;
    r.processes = subprocess_starter(s->loop->events);
    r.on_notice = on_notice;
    r.notice_ctx = s;
    worker_args_apply(&a->workers, &r);
    const char **list = source_args_list(&a->sources, a->workers.cache, a->workers.model_dir, &r.n_fetcher_args);
    r.fetcher_args = list;
    s->run = runner_new(&s->loop->base, &r, e);
    worker_args_release(&r);
    arg_list_free(list, r.n_fetcher_args);
    return s->run ? 0 : -1;
}

static int start(serving *s, server_args *a, err *e)
{
    unsigned long long half[] = {loop_random_id(&s->loop->base), loop_random_id(&s->loop->base)};
    s->own.secret[0] = xasprintf("%016llx%016llx", half[0], half[1]);
    if (start_scheduler(s, a, e) || start_frontend(s, a, e) || start_runner(s, a, e))
        return -1;
    s->ready = event_new(s->loop->events, -1, EV_PERSIST, look, s);
    event_add(s->ready, &(struct timeval){.tv_usec = 20000});
    return 0;
}

static void tell_progress(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    serving *s = ctx;
    int left = frontend_n_open(s->front);
    if (left != s->n_left && left > 0)
        fprintf(stderr, "punica: %d request%s left\n", left, left == 1 ? "" : "s");
    s->n_left = left;
}

/* Drains, and tells whoever pressed Ctrl-C why it takes a while. */
static void drain(void *ctx, void (*done)(void *), void *done_ctx)
{
    serving *s = ctx;
    s->n_left = frontend_n_open(s->front);
    if (s->n_left > 0) {
        fprintf(stderr, "punica: waiting for %d request%s to end, up to %g s; once more (Ctrl-C) ends at once\n",
                s->n_left, s->n_left == 1 ? "" : "s", s->drain_seconds);
        s->progress = event_new(s->loop->events, -1, EV_PERSIST, tell_progress, s);
        event_add(s->progress, &(struct timeval){.tv_usec = 500000});
    }
    frontend_drain(s->front, done, done_ctx);
}

static int reload(void *ctx, err *e)
{
    return frontend_reload(((serving *)ctx)->front, e);
}

static int serve(server_args *a, bool is_demo, err *e)
{
    served_model m;
    if (served_model_read(&m, a->workers.model_dir, a->model_name, e))
        return -1;
    cluster_raise_file_limit();
    worker_args_sandbox(&a->workers);
    weights_form form = WEIGHTS_STORED;
    weights_form_find(a->workers.weights, &form, e); /* known: it was checked */
    serving s = {.drain_seconds = a->front.drain_seconds,
                 .loop = event_loop_new(),
                 .model = &m,
                 .is_demo = is_demo,
                 .needs_key = a->front.store || a->front.n_keys,
                 .weights = weights_name(form, m.config.quant, m.config.type)};
    int status = start(&s, a, e);
    if (status == 0)
        cluster_run(s.loop->events,
                    &(cluster_role){.drain = drain, .reload = reload, .ctx = &s, .log_file = a->role.log_file});
    if (s.failure)
        status = err_set(e, "no worker could start: %s", s.failure);
    if (s.ready)
        event_free(s.ready);
    if (s.progress)
        event_free(s.progress);
    frontend_free(s.front);
    runner_free(s.run);
    sched_server_free(s.sched);
    event_loop_free(s.loop);
    credentials_deinit(&s.own);
    served_model_deinit(&m);
    return status;
}

int cmd_serve(int argc, char **argv)
{
    serve_args a = {0};
    err e;
    server_args_init(&a.server);
    int status = parse(&a, argc, argv, &e);
    if (status == 0)
        status = serve(&a.server, a.demo_model, &e);
    free(a.demo_model);
    free(a.demo_adapters);
    server_args_deinit(&a.server);
    return status < 0 ? command_fail(e.msg) : 0;
}
