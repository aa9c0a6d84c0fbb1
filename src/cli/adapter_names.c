/* adapter_names.c - see adapter_names.h */
#include "cli/adapter_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/options.h"
#include "cli/source_args.h"
#include "registry/registry.h"

/* A cache and the names beside it. */
typedef struct { disk_cache *cache; registry *names; } shelf;

static int shelf_open(shelf *s, const char *dir, size_t max_bytes, err *e)
{
    *s = (shelf){0};
    if (!dir)
        return err_set(e, "which cache? give --cache DIR");
    s->cache = disk_cache_open(dir, max_bytes, e);
    s->names = s->cache ? registry_open(dir, s->cache, e) : NULL;
    return s->names ? 0 : -1;
}

static void shelf_close(shelf *s)
{
    registry_close(s->names);
    disk_cache_close(s->cache);
}

/* To standard output, on a line; o is taken. */
static void print_json(json_t *o)
{
    CHECK(o);
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

static void print_fetched(const fetched *f, const char *dir, bool json)
{
    if (json) {
        print_json(json_pack("{s:s, s:s, s:i, s:I, s:s, s:s*}", "digest", f->digest, "id", f->id, "rank", f->rank, "bytes",
                             (json_int_t)f->bytes, "folder", dir, "revision", f->revision[0] ? f->revision : NULL));
        return;
    }
    printf("%-12ssha256:%s\n%-12s%d\n%-12s%.3g MB\n", "digest", f->digest, "rank", f->rank, "files", (double)f->bytes / 1e6);
    if (f->revision[0])
        printf("%-12s%s\n", "revision", f->revision);
    printf("%-12s%s\n", "folder", dir);
}

/* What fetch and add are told. name NULL: it gets none. */
typedef struct {
    source_args a;
    const char *model_dir, *name, *source;
    bool replace, json;
} fetch_args;

static int register_name(const fetch_args *f, registry *names, const source *s, const fetched *got, err *e)
{
    const char *user = getenv("USER");
    adapter_version v = {.source = s->shown, .revision = (char *)got->revision, .by = (char *)(user && *user ? user : "punica adapter"),
                         .at = time(NULL), .bytes = (int64_t)got->bytes, .rank = got->rank};
    memcpy(v.id, got->id, sizeof v.id);
    return registry_add(names, f->name, &v, f->replace, e);
}

/* A name that could not be given is no reason to fetch. */
static int check_name(const fetch_args *f, const registry *names, err *e)
{
    adapter_record record;
    err none;
    if (!f->name)
        return 0;
    if (adapter_name_check(f->name, e))
        return -1;
    if (f->replace || registry_read(names, f->name, &record, &none))
        return 0;
    adapter_record_deinit(&record);
    return err_set(e, "there is an adapter \"%s\" already; --replace makes this its next version", f->name);
}

static int fetch_into(const fetch_args *f, const shelf *to, const source *s, const model_config *base, err *e)
{
    fetched got;
    disk_pin pin;
    if (check_name(f, to->names, e) || fetch_adapter(to->cache, s, &f->a.fetch, base, &got, &pin, e))
        return -1;
    int status = f->name ? register_name(f, to->names, s, &got, e) : 0;
    if (status == 0)
        print_fetched(&got, pin.dir, f->json);
    disk_cache_unpin(&pin);
    return status;
}

static int fetch(const fetch_args *f, err *e)
{
    source s;
    shelf to;
    model_config base;
    if (source_parse(&s, f->source, e))
        return -1;
    int status = model_config_read(&base, f->model_dir, e);
    if (status == 0) {
        status = shelf_open(&to, f->a.cache, f->a.cache_bytes, e);
        if (status == 0)
            status = fetch_into(f, &to, &s, &base, e);
        shelf_close(&to);
        model_config_deinit(&base);
    }
    source_deinit(&s);
    return status;
}

static int run_fetch(fetch_args *f, const command_line *line, const char **word, int argc, char **argv)
{
    err e;
    int status = options_parse(line, argc, argv, &e), code = 0;
    f->source = word[line->n_positional - 1];
    f->name = line->n_positional > 1 ? word[0] : NULL;
    if (status == 0 && !f->model_dir)
        status = err_set(&e, "which base? give --model DIR");
    if (status == 0)
        status = source_args_check(&f->a, &e);
    if (status == 0)
        status = fetch(f, &e);
    if (status < 0)
        code = command_fail(e.msg);
    source_args_deinit(&f->a);
    return code;
}

#define BASE_OPTION(f) {"model", OPT_STRING, &(f)->model_dir, "DIR", "the base model; only its config.json is read"}
#define JSON_OPTION(out) {"json", OPT_FLAG, out, NULL, "JSON instead of text"}
#define CACHE_OPTION(out) {"cache", OPT_STRING, out, "DIR", "the host's disk cache of adapters"}

static void init_fetch(fetch_args *f)
{
    *f = (fetch_args){0};
    source_args_init(&f->a);
    f->a.fetch.files_under = "/";       /* who calls this may read what they may read */
    log_set_level(LOG_WARN);
}

int adapter_fetch(int argc, char **argv)
{
    fetch_args f;
    const char *word[1] = {NULL};
    init_fetch(&f);
    const option options[] = {BASE_OPTION(&f), SOURCE_OPTIONS(&f.a), JSON_OPTION(&f.json), {0}};
    const command_line line = {
        .usage = "punica adapter fetch SOURCE --model DIR --cache DIR [options]",
        .about = "Fetch an adapter, check it against the base, and put it into the disk cache. What broke off before is continued.\n" SOURCE_HELP,
        .options = options, .n_positional = 1, .positional = word,
    };
    return run_fetch(&f, &line, word, argc, argv);
}

int adapter_add(int argc, char **argv)
{
    fetch_args f;
    const char *word[2] = {NULL};
    init_fetch(&f);
    const option options[] = {
        BASE_OPTION(&f), SOURCE_OPTIONS(&f.a),
        {"replace", OPT_FLAG, &f.replace, NULL, "a name that is there gets a new version; what runs goes on with the old one"},
        JSON_OPTION(&f.json), {0}};
    const command_line line = {
        .usage = "punica adapter add NAME SOURCE --model DIR --cache DIR [--replace] [options]",
        .about = "Fetch an adapter, check it against the base, put it into the disk cache and give it a name: servers with this --cache\n"
                 "serve it from then on.\n" SOURCE_HELP,
        .options = options, .n_positional = 2, .positional = word,
    };
    return run_fetch(&f, &line, word, argc, argv);
}

static void print_time(int64_t at)
{
    char text[32];
    time_t t = (time_t)at;
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    printf("%s", text);
}

static void print_version(const adapter_version *v)
{
    printf("%.12s  rank %-4d%8.3g MB  ", v->id, v->rank, (double)v->bytes / 1e6);
    print_time(v->at);
    printf("  %s%s%s\n", v->source, v->revision[0] ? " at " : "", v->revision);
}

/* With the name, for lists and by itself. */
static json_t *named_json(const char *name, const adapter_record *r)
{
    json_t *o = adapter_record_to_json(r);
    json_object_set_new(o, "name", json_string(name));
    return o;
}

static int print_names(const registry *names, bool json, err *e)
{
    int n, status = 0;
    char **name = registry_list(names, &n);
    for (int i = 0; i < n; i++) {
        adapter_record r;
        if (status == 0 && (status = registry_read(names, name[i], &r, e)) == 0) {
            if (json)
                print_json(named_json(name[i], &r));
            else {
                printf("%-24s%3d  ", name[i], r.version[r.current].number);
                print_version(&r.version[r.current]);
            }
            adapter_record_deinit(&r);
        }
        free(name[i]);
    }
    free(name);
    return status;
}

static int print_record(const registry *names, const char *name, bool json, err *e)
{
    adapter_record r;
    if (registry_read(names, name, &r, e))
        return -1;
    if (json)
        print_json(named_json(name, &r));
    for (size_t i = r.n; i-- > 0 && !json;) {
        printf("%s %3d  ", i == r.current ? "*" : " ", r.version[i].number);
        print_version(&r.version[i]);
    }
    adapter_record_deinit(&r);
    return 0;
}

/* What a command on names does; word: its words. */
typedef int (*names_action)(registry *names, const char *const *word, bool json, err *e);

static int run_on_names(const command_line *line, names_action act, const char **cache, const bool *json, int argc, char **argv)
{
    shelf s = {0};
    err e;
    int status = options_parse(line, argc, argv, &e);
    if (status > 0)
        return 0;
    if (status == 0)
        status = shelf_open(&s, *cache, 0, &e);
    if (status == 0)
        status = act(s.names, line->positional, *json, &e);
    shelf_close(&s);
    return status < 0 ? command_fail(e.msg) : 0;
}

static int do_list(registry *names, const char *const *word, bool json, err *e)
{
    (void)word;
    return print_names(names, json, e);
}

static int do_show(registry *names, const char *const *word, bool json, err *e)
{
    return print_record(names, word[0], json, e);
}

static int do_rollback(registry *names, const char *const *word, bool json, err *e)
{
    char *end = NULL;
    long number = word[1] ? strtol(word[1], &end, 10) : 0;
    if (word[1] && (*end || number < 1 || number > 1000000000))
        return err_set(e, "\"%s\" is not the number of a version", word[1]);
    return registry_rollback(names, word[0], (int)number, e) ? -1 : print_record(names, word[0], json, e);
}

static int do_remove(registry *names, const char *const *word, bool json, err *e)
{
    (void)json;
    return registry_remove(names, word[0], e);
}

int adapter_list(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    const option options[] = {CACHE_OPTION(&cache), JSON_OPTION(&json), {0}};
    const command_line line = {.usage = "punica adapter list --cache DIR [--json]",
                               .about = "The names of a cache: which version is served, its digest, rank, size, when it came and from where.",
                               .options = options};
    return run_on_names(&line, do_list, &cache, &json, argc, argv);
}

int adapter_show(int argc, char **argv)
{
    const char *cache = NULL, *word[1] = {NULL};
    bool json = false;
    const option options[] = {CACHE_OPTION(&cache), JSON_OPTION(&json), {0}};
    const command_line line = {.usage = "punica adapter show NAME --cache DIR [--json]",
                               .about = "A name's versions, the newest first; * is served.", .options = options, .n_positional = 1, .positional = word};
    return run_on_names(&line, do_show, &cache, &json, argc, argv);
}

int adapter_rollback(int argc, char **argv)
{
    const char *cache = NULL, *word[2] = {NULL};
    bool json = false;
    const option options[] = {CACHE_OPTION(&cache), JSON_OPTION(&json), {0}};
    const command_line line = {.usage = "punica adapter rollback NAME [VERSION] --cache DIR",
                               .about = "Serve an earlier version of a name from now on, or a later one again; without VERSION the one before. What runs\n"
                                        "goes on with what it began.",
                               .options = options, .n_positional = 2, .n_optional = 1, .positional = word};
    return run_on_names(&line, do_rollback, &cache, &json, argc, argv);
}

int adapter_remove(int argc, char **argv)
{
    const char *cache = NULL, *word[1] = {NULL};
    bool json = false;
    const option options[] = {CACHE_OPTION(&cache), {0}};
    const command_line line = {.usage = "punica adapter remove NAME --cache DIR",
                               .about = "Serve a name no more. Its files stay in the cache until their room is needed; what runs goes on.",
                               .options = options, .n_positional = 1, .positional = word};
    return run_on_names(&line, do_remove, &cache, &json, argc, argv);
}
