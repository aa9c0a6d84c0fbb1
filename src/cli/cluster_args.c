/* cluster_args.c - see cluster_args.h */
#include "cli/cluster_args.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/devices.h"
#include "base/child.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/sandbox.h"
#include "cli/arg_list.h"
#include "cli/engine_args.h"
#include "cli/local_engine.h"
#include "engine/engine.h"
#include "model/model.h"
#include "model/split.h"
#include "net/address.h"

int cluster_check_address(const char *text, err *e)
{
    address a;
    return address_parse(&a, text, e);
}

int cluster_log(const char *file, const char *name, err *e)
{
    log_level level = LOG_INFO;
    if (file && log_open_file(file, e))
        return -1;
    if (!name)
        return 0;
    if (log_parse_level(name, &level, e))
        return -1;
    log_set_level(level);
    return 0;
}

/* Returns the threads of each of n workers on the CPU: together no more than there are cores, but at least one. */
static int share_of_cores(int n)
{
    int cores = pool_cores();
    return cores / n > 1 ? cores / n : 1;
}

/* Checks that the GPUs of a device's name make up whole workers. */
static int check_device(const worker_args *a, const char *device, err *e)
{
    int n, tp = a->tp, first = backend_device_range(device, &n, e);
    if (first < -1)
        return -1;
    if (n > 1 && n % tp != 0)
        return err_set(e, "%s is %d GPUs, which do not make up workers of %d (--tp)", device, n, tp);
    return 0;
}

/* Checks that workers can load the model, and split it. */
static int check_model(const worker_args *a, err *e)
{
    model_config c;
    if (!a->model_dir)
        return 0;
    if (model_config_read(&c, a->model_dir, e))
        return -1;
    int status = split_check(&c, a->tp, e);
    model_config_deinit(&c);
    return status;
}

worker_args worker_args_default(void)
{
    const engine_options o = engine_options_default();
    return (worker_args){.weights = WEIGHTS_DEFAULT,
                         .kv = KV_DEFAULT,
                         .tp = 1,
                         .n_workers = 1,
                         .itl_target = default_itl_target(),
                         .adapter_host_bytes = o.image_bytes,
                         .host_bytes = KV_HOST_AUTO,
                         .memory_share = o.memory_share};
}

int worker_args_check(const worker_args *a, err *e)
{
    weights_form form;
    for (int i = 0; i < a->devices.n; i++)
        if (check_device(a, a->devices.items[i], e))
            return -1;
    if (a->memory_share / a->n_workers < MIN_MEMORY_SHARE)
        return err_set(e, "--memory-share %g is too little for %d workers (--workers) on a device", a->memory_share,
                       a->n_workers);
    kv_form kv;
    if (weights_form_find(a->weights, &form, e) || kv_form_find(a->kv, &kv, e))
        return -1;
    return check_model(a, e);
}

/* Adds a worker for every tp GPUs of a range, or one for any other device. */
static void add_workers(arg_list *to, const char *device, int tp)
{
    err unused;
    int n, first = backend_device_range(device, &n, &unused);
    if (n == 1)
        arg_list_add(to, device);
    for (int i = 0; n > 1 && i + tp <= n; i += tp) {
        char range[64];
        snprintf(range, sizeof range, tp == 1 ? "cuda:%d" : "cuda:%d-%d", first + i, first + i + tp - 1);
        arg_list_add(to, range);
    }
}

void worker_args_apply(const worker_args *a, runner_options *o)
{
    arg_list devices = {0}, args = {0};
    int copies = a->n_workers, n_cpu = 0;
    for (int i = 0; i < (a->devices.n ? a->devices.n : 1); i++)
        for (int k = 0; k < copies; k++)
            add_workers(&devices, a->devices.n ? a->devices.items[i] : "cpu", a->tp);
    for (size_t i = 0; i < devices.n; i++)
        n_cpu += strcmp(devices.at[i], "cpu") == 0;
    worker_args each = *a;
    each.memory_share /= copies;
    if (!each.threads && n_cpu > 1)
        each.threads = share_of_cores(n_cpu);
    const option told[] = {WORKER_OPTIONS(&each, &each.adapters), {NULL}};
    options_write(told, &args);
    o->device = devices.at;
    o->n_workers = (int)devices.n;
    o->worker_args = args.at;
    o->n_worker_args = (int)args.n;
}

void worker_args_release(runner_options *o)
{
    arg_list_free(o->device, o->n_workers);
    arg_list_free(o->worker_args, o->n_worker_args);
    o->device = o->worker_args = NULL;
    o->n_workers = o->n_worker_args = 0;
}

/* Makes a GPU's device nodes with nvidia-modprobe, which has the rights to, as libcuda does when it starts. If that is
 * missing or fails, CUDA reports it. */
static void make_cuda_device(int number)
{
    char node[32], text[12], how[32];
    snprintf(node, sizeof node, "/dev/nvidia%d", number);
    if (file_exists(node) && file_exists("/dev/nvidia-uvm"))
        return;
    snprintf(text, sizeof text, "%d", number);
    const char *argv[] = {"nvidia-modprobe", "-c", text, "-u", NULL};
    child c;
    err e;
    if (child_start(&c, "/usr/bin/nvidia-modprobe", (char *const *)argv, NULL, 0, &e)) {
        log_debug("%s", e.msg);
        return;
    }
    child_wait(&c, how);
    child_forget(&c);
}

void worker_args_sandbox(const worker_args *a)
{
    for (int i = 0; i < a->devices.n; i++) {
        err e;
        int n, first = backend_device_range(a->devices.items[i], &n, &e);
        for (int k = 0; first >= 0 && k < n; k++)
            make_cuda_device(first + k);
    }
    sandbox_role(true);
}

void cluster_raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

typedef struct {
    struct event_base *loop;
    const cluster_role *role;
    bool draining, has_terminal;
} signals;

static void end_loop(void *loop)
{
    event_base_loopbreak(loop);
}

static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    (void)number;
    (void)what;
    signals *s = ctx;
    if (!s->role->drain || s->draining) {
        log_info("exiting");
        event_base_loopbreak(s->loop);
        return;
    }
    log_info("draining; once more to exit at once");
    s->draining = true;
    s->role->drain(s->role->ctx, end_loop, s->loop);
}

/* Reads the files again; what cannot be read is left as it was. */
static void reload(const cluster_role *r)
{
    err e;
    if (r->log_file && log_open_file(r->log_file, &e))
        log_error("%s; the log goes on where it was", e.msg);
    if (r->reload && r->reload(r->ctx, &e))
        log_error("%s; it stays as it was", e.msg);
    if (r->own && credentials_load(r->own, &r->files, &e))
        log_error("%s; secret and certificates stay as they were", e.msg);
    else if (r->own)
        log_info("secret and certificates have been read again");
}

static void on_hangup(evutil_socket_t number, short what, void *ctx)
{
    signals *s = ctx;
    if (s->has_terminal && !isatty(STDERR_FILENO))
        on_signal(number, what, ctx);
    else
        reload(s->role);
}

void cluster_run(struct event_base *loop, const cluster_role *role)
{
    static const int number[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
    enum { N = sizeof number / sizeof *number };
    signals s = {.loop = loop, .role = role, .has_terminal = isatty(STDERR_FILENO)};
    struct event *signal_event[N];
    log_catch_crashes();
    for (int i = 0; i < N; i++) {
        signal(number[i], SIG_IGN); /* libevent restores this in the end: a late signal must not spoil the exit code */
        signal_event[i] = evsignal_new(loop, number[i], number[i] == SIGHUP ? on_hangup : on_signal, &s);
        CHECK(signal_event[i]);
        event_add(signal_event[i], NULL);
    }
    event_base_dispatch(loop);
    for (int i = 0; i < N; i++)
        event_free(signal_event[i]);
}
