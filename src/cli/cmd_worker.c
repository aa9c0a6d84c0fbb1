/* cmd_worker.c - `punica worker`: what a runner starts for each of its devices; not for people */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/file.h"
#include "base/log.h"
#include "base/sandbox.h"
#include "cli/cluster_args.h"
#include "cli/commands.h"
#include "cli/engine_args.h"
#include "net/frames.h"
#include "worker/worker_process.h"

static int parse(worker_options *w, option_list *adapters, int argc, char **argv, err *e)
{
    const worker_args d = worker_args_default();
    *w = (worker_options){.device = "cpu",
                          .weights = d.weights,
                          .kv = d.kv,
                          .tp = d.tp,
                          .itl_target = d.itl_target,
                          .adapter_host_bytes = d.adapter_host_bytes,
                          .host_bytes = d.host_bytes,
                          .memory_share = d.memory_share,
                          .in = WORKER_IN_FD,
                          .out = WORKER_OUT_FD};
    const option options[] = {WORKER_OPTIONS(w, adapters),
                              DEVICE_OPTION(w),
                              {"gpu", OPT_INT, &w->gpu, "N", "its number at its runner", 0, 65535},
                              {NULL}};
    const command_line c = {.usage = "punica worker --model DIR [options] 3<COMMANDS 4>STEPS",
                            .about = "One device behind two pipes. A runner starts this; see punica runner --help.",
                            .options = options};
    int status = options_parse(&c, argc, argv, e);
    w->adapter = adapters->items;
    w->n_adapters = adapters->n;
    if (status == 0 && !w->model_dir)
        return err_set(e, "--model DIR is needed; see punica worker --help");
    return status;
}

/* Returns whether the runner was gone before prctl(): its signal would then never come. */
static bool is_orphan(void)
{
    struct pollfd commands = {.fd = WORKER_IN_FD};
    return poll(&commands, 1, 0) > 0 && commands.revents & POLLHUP;
}

/* Gives up writing files, but for CUDA's cache of what it compiles for a GPU that is newer than this program. */
static void give_up_writing(const worker_options *w)
{
    const char *cache = getenv("CUDA_CACHE_PATH"), *home = getenv("HOME");
    char *folder = cache || !home ? NULL : path_join(home, ".nv");
    bool has_cache = strncmp(w->device, "cuda", 4) == 0;
    sandbox_worker_files(has_cache ? cache ? cache : folder : NULL);
    free(folder);
}

int cmd_worker(int argc, char **argv)
{
    worker_options w;
    option_list adapters = {0};
    err e;
    prctl(PR_SET_PDEATHSIG, SIGKILL);    /* without its runner a worker is of no use */
    prctl(PR_SET_NAME, "punica-worker"); /* not "exe", by which the runner started it */
    signal(SIGINT, SIG_IGN);             /* a terminal's or a service's goes to all processes: the runner handles it */
    signal(SIGTERM, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    file_map_guard();
    log_catch_crashes();
    int status = parse(&w, &adapters, argc, argv, &e), code = 0;
    if (status == 0 && !is_orphan()) {
        give_up_writing(&w);
        status = worker_run(&w, &e);
    }
    if (status < 0)
        code = command_fail(e.msg);
    free(adapters.items);
    return code;
}
