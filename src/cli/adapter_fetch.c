/* adapter_fetch.c - see adapter_fetch.h */
#include "cli/adapter_fetch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/options.h"
#include "cli/source_args.h"
#include "registry/fetch.h"

static void print_fetched(const fetched *f, const char *dir, bool json)
{
    if (!json) {
        printf("%-12ssha256:%s\n%-12s%d\n%-12s%.3g MB\n", "digest", f->digest, "rank", f->rank, "files", (double)f->bytes / 1e6);
        if (f->revision[0])
            printf("%-12s%s\n", "revision", f->revision);
        printf("%-12s%s\n", "folder", dir);
        return;
    }
    json_t *o = json_pack("{s:s, s:s, s:i, s:I, s:s, s:s*}", "digest", f->digest, "id", f->id, "rank", f->rank, "bytes",
                          (json_int_t)f->bytes, "folder", dir, "revision", f->revision[0] ? f->revision : NULL);
    CHECK(o);
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

static int fetch_into(const source_args *a, const source *s, const model_config *base, bool json, err *e)
{
    fetched got;
    disk_pin pin;
    disk_cache *c = disk_cache_open(a->cache, a->cache_bytes, e);
    int status = c ? fetch_adapter(c, s, &a->fetch, base, &got, &pin, e) : -1;
    if (status == 0) {
        print_fetched(&got, pin.dir, json);
        disk_cache_unpin(&pin);
    }
    disk_cache_close(c);
    return status;
}

static int fetch(const source_args *a, const char *text, const char *model_dir, bool json, err *e)
{
    source s;
    model_config base;
    if (source_parse(&s, text, e))
        return -1;
    int status = model_config_read(&base, model_dir, e);
    if (status == 0) {
        status = fetch_into(a, &s, &base, json, e);
        model_config_deinit(&base);
    }
    source_deinit(&s);
    return status;
}

int adapter_fetch(int argc, char **argv)
{
    const char *text = NULL, *model_dir = NULL;
    bool json = false;
    source_args a;
    source_args_init(&a);
    a.fetch.files_under = "/";          /* whoever calls this may read what they may read */
    const option options[] = {
        {"model", OPT_STRING, &model_dir, "DIR", "the base model; only its config.json is read", 0, 0},
        SOURCE_OPTIONS(&a),
        {"json", OPT_FLAG, &json, NULL, "one JSON object instead of text", 0, 0},
        {0},
    };
    const command_line line = {
        .usage = "punica adapter fetch SOURCE --model DIR --cache DIR [options]",
        .about = "Fetch an adapter, check it against the base, and put it into the disk cache. What broke off before is continued.\n" SOURCE_HELP,
        .options = options, .n_positional = 1, .positional = &text,
    };
    err e;
    int status = options_parse(&line, argc, argv, &e), code = 0;
    if (status == 0 && !model_dir)
        status = err_set(&e, "which base? give --model DIR");
    if (status == 0 && source_args_check(&a, &e) == 0)
        code = fetch(&a, text, model_dir, json, &e) ? command_fail(e.msg) : 0;
    else if (status <= 0)
        code = command_fail(e.msg);
    source_args_deinit(&a);
    return code;
}
