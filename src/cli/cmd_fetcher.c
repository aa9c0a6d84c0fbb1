/* cmd_fetcher.c - `punica fetcher`: what a runner starts to fetch one adapter to this host; not for people
 *
 * What to fetch comes through a pipe: a source may contain secrets, and everybody can read command lines. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/source_args.h"
#include "net/frames.h"
#include "net/pack.h"

typedef struct {
    source_args sources;
    const char *model_dir;
} fetcher_args;

static int parse(fetcher_args *a, int argc, char **argv, err *e)
{
    const option options[] = {FETCHER_OPTIONS(&a->sources, a->model_dir), {NULL}};
    const command_line c = {.usage = "punica fetcher --model DIR --cache DIR [options] 3<WANT 4>FETCHED",
                            .about = "Fetch one adapter. A runner starts this; see punica runner --help.",
                            .options = options};
    int status = options_parse(&c, argc, argv, e);
    if (status == 0 && !a->model_dir)
        return err_set(e, "--model DIR is needed; see punica fetcher --help");
    return status ? status : source_args_check(&a->sources, e);
}

/* Reads the one message that comes; the caller frees it. NULL with e set when there is none. */
static Message *read_want(err *e)
{
    frame_reader in = {.fd = WORKER_IN_FD};
    size_t n = 0;
    const void *bytes = NULL;
    while (!bytes && frame_reader_fill(&in, e) >= 0)
        bytes = frame_reader_next(&in, &n);
    Message *m = bytes ? message__unpack(NULL, n, bytes) : NULL;
    frame_reader_deinit(&in);
    if (m && m->what_case == MESSAGE__WHAT_WANT)
        return m;
    message__free_unpacked(m, NULL);
    err_set(e, "the runner did not say what is to be fetched");
    return NULL;
}

static int fetch(const fetcher_args *a, const Want *want, err *e)
{
    model_config base;
    disk_pin pin;
    if (!adapter_id_is_valid(want->id))
        return err_set(e, "\"%.100s\" is not the id of an adapter", want->id);
    if (model_config_read(&base, a->model_dir, e))
        return -1;
    disk_cache *cache = disk_cache_open(a->sources.cache, a->sources.cache_bytes, e);
    int status =
        cache ? fetch_registered(cache, want->source, want->id, want->trusted, &a->sources.fetch, &base, &pin, e) : -1;
    if (status == 0)
        disk_cache_unpin(&pin);
    disk_cache_close(cache);
    model_config_deinit(&base);
    return status;
}

static void answer(const Want *want, const char *error)
{
    Fetched f = FETCHED__INIT;
    Message m = MESSAGE__INIT;
    buf packed = {0}, frame = {0};
    f.id = want->id;
    f.error = (char *)error;
    m.what_case = MESSAGE__WHAT_FETCHED;
    m.fetched = &f;
    pack_message(&packed, &m);
    frame_add(&frame, packed.data, packed.len);
    file_write_all(WORKER_OUT_FD, frame.data, frame.len);
    buf_free(&packed);
    buf_free(&frame);
}

int cmd_fetcher(int argc, char **argv)
{
    fetcher_args a = {0};
    err e;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the next one continues what it has fetched */
    prctl(PR_SET_NAME, "punica-fetcher");
    signal(SIGPIPE, SIG_IGN);
    file_map_guard();
    log_catch_crashes();
    source_args_init(&a.sources);
    int status = parse(&a, argc, argv, &e);
    Message *m = status == 0 ? read_want(&e) : NULL;
    if (m)
        answer(m->want, fetch(&a, m->want, &e) ? e.msg : "");
    message__free_unpacked(m, NULL);
    source_args_deinit(&a.sources);
    return m || status > 0 ? 0 : command_fail(e.msg);
}
