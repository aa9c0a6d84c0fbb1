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
#include "cli/store_args.h"
#include "frontend/adapter_names.h"

/* Where the registry is: a store, or beside a cache. */
typedef struct {
    const char *cache, *store;
    bool json;
} place;

/* A cache, and the registry. */
typedef struct {
    disk_cache *cache;
    adapter_names names;
} shelf;

/* make: a store that is not there is made. */
static int shelf_open(shelf *s, const place *at, size_t max_bytes, bool make, err *e)
{
    *s = (shelf){0};
    if (!at->cache && !at->store)
        return err_set(e, "which cache? give --cache DIR, or --store URL where the registry is in a store");
    if (at->cache && !(s->cache = disk_cache_open(at->cache, max_bytes, e)))
        return -1;
    if (at->store)
        s->names.store = (make ? store_open : store_open_existing)(at->store, e);
    else
        s->names.disk = registry_open(at->cache, s->cache, e);
    return s->names.store || s->names.disk ? 0 : -1;
}

static void shelf_close(shelf *s)
{
    registry_close(s->names.disk);
    store_close(s->names.store);
    disk_cache_close(s->cache);
}

/* Prints o on a line of its own; takes o. */
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
        print_json(json_pack("{s:s, s:s, s:i, s:I, s:s, s:s*}", "digest", f->digest, "id", f->id, "rank", f->rank,
                             "bytes", (json_int_t)f->bytes, "folder", dir, "revision",
                             f->revision[0] ? f->revision : NULL));
        return;
    }
    printf("%-12ssha256:%s\n%-12s%d\n%-12s%.3g MB\n", "digest", f->digest, "rank", f->rank, "files",
           (double)f->bytes / 1e6);
    if (f->revision[0])
        printf("%-12s%s\n", "revision", f->revision);
    printf("%-12s%s\n", "folder", dir);
}

/* The arguments of fetch and add. name NULL: the adapter gets none. */
typedef struct {
    source_args a;
    const char *model_dir, *name, *source, *store;
    bool replace, json;
} fetch_args;

static int register_name(const fetch_args *f, const adapter_names *names, const source *s, const fetched *got, err *e)
{
    char who[STORE_USER];
    adapter_version v = adapter_names_version(s, f->source, got, store_args_name_user(who), true);
    store_result r = adapter_names_add(names, who, f->name, &v, f->replace, e);
    free(v.url);
    return r == STORE_OK ? 0 : -1;
}

/* Checks that the name can be given, before anything is fetched for it. */
static int check_name(const fetch_args *f, const adapter_names *names, err *e)
{
    int64_t room;
    store_result r = f->name ? adapter_names_may_add(names, f->name, f->replace, true, &room, e) : STORE_OK;
    if (r == STORE_TAKEN)
        err_set(e, "there is an adapter \"%s\" already; --replace makes this its next version", f->name);
    return r == STORE_OK ? 0 : -1;
}

static int fetch_into(const fetch_args *f, const shelf *to, const source *s, const model_config *base, err *e)
{
    fetched got;
    disk_pin pin;
    if (check_name(f, &to->names, e) || fetch_adapter(to->cache, s, &f->a.fetch, base, &got, &pin, e))
        return -1;
    int status = f->name ? register_name(f, &to->names, s, &got, e) : 0;
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
    int status = adapter_names_check_source(f->name && f->store, &s, e);
    if (status == 0)
        status = model_config_read(&base, f->model_dir, e);
    if (status == 0) {
        status = shelf_open(&to, &(place){.cache = f->a.cache, .store = f->name ? f->store : NULL}, f->a.cache_bytes,
                            true, e);
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
#define STORE_OPTION(out)                                                                \
    {"store", OPT_STRING, out, "URL",                                                    \
     "where the registry is, if it is not the cache's: FILE (SQLite) or postgres://... " \
     "(environment " STORE_ENVIRONMENT ")"}
#define PLACE_OPTIONS(at) CACHE_OPTION(&(at)->cache), STORE_OPTION(&(at)->store)

static const char *store_of_environment(void)
{
    const char *url = getenv(STORE_ENVIRONMENT);
    return url && *url ? url : NULL;
}

static void init_fetch(fetch_args *f)
{
    *f = (fetch_args){0};
    source_args_init(&f->a);
    f->a.fetch.files_under = "/"; /* any file that this process may read */
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
        .about = "Fetch an adapter, check it against the base, and put it into the disk cache. What broke off before "
                 "is continued.\n" SOURCE_HELP,
        .options = options,
        .n_positional = 1,
        .positional = word,
    };
    return run_fetch(&f, &line, word, argc, argv);
}

int adapter_add(int argc, char **argv)
{
    fetch_args f;
    const char *word[2] = {NULL};
    init_fetch(&f);
    f.store = store_of_environment();
    const option options[] = {BASE_OPTION(&f),
                              SOURCE_OPTIONS(&f.a),
                              STORE_OPTION(&f.store),
                              {"replace", OPT_FLAG, &f.replace, NULL,
                               "a name that is there gets a new version; what runs goes on with the old one"},
                              JSON_OPTION(&f.json),
                              {0}};
    const command_line line = {
        .usage = "punica adapter add NAME SOURCE --model DIR --cache DIR [--replace] [options]",
        .about = "Fetch an adapter, check it against the base, put it into the disk cache and give it a name: servers "
                 "with this --cache\n"
                 "serve it from then on, or with --store all servers with this store; there TENANT/NAME is a tenant's "
                 "own.\n" SOURCE_HELP,
        .options = options,
        .n_positional = 2,
        .positional = word,
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

/* Returns a record as JSON, with its name; the caller owns it. */
static json_t *named_json(const char *name, const adapter_record *r)
{
    json_t *o = adapter_record_to_json(r, false);
    json_object_set_new(o, "name", json_string(name));
    return o;
}

typedef struct { bool json; } printing;

static void print_name(void *ctx, const char *name, const adapter_record *r)
{
    const printing *p = ctx;
    if (p->json) {
        print_json(named_json(name, r));
        return;
    }
    printf("%-24s%3d  ", name, r->version[r->current].number);
    print_version(&r->version[r->current]);
}

static int print_record(const adapter_names *names, const char *name, bool json, err *e)
{
    adapter_record r;
    if (adapter_names_read(names, name, &r, e) != STORE_OK)
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

/* A command on names; word: its positional arguments. */
typedef int (*names_action)(const adapter_names *names, const char *const *word, bool json, err *e);

static int run_on_names(const command_line *line, names_action act, const place *at, int argc, char **argv)
{
    shelf s = {0};
    err e;
    int status = options_parse(line, argc, argv, &e);
    if (status > 0)
        return 0;
    if (status == 0)
        status = shelf_open(&s, at, 0, false, &e);
    if (status == 0)
        status = act(&s.names, line->positional, at->json, &e);
    shelf_close(&s);
    return status < 0 ? command_fail(e.msg) : 0;
}

static int do_list(const adapter_names *names, const char *const *word, bool json, err *e)
{
    printing p = {json};
    (void)word;
    return adapter_names_list(names, NULL, print_name, &p, e);
}

static int do_show(const adapter_names *names, const char *const *word, bool json, err *e)
{
    return print_record(names, word[0], json, e);
}

static int do_rollback(const adapter_names *names, const char *const *word, bool json, err *e)
{
    char *end = NULL, who[STORE_USER];
    long number = word[1] ? strtol(word[1], &end, 10) : 0;
    if (word[1] && (*end || number < 1 || number > 1000000000))
        return err_set(e, "\"%s\" is not the number of a version", word[1]);
    return adapter_names_rollback(names, store_args_name_user(who), word[0], (int)number, e) == STORE_OK
               ? print_record(names, word[0], json, e)
               : -1;
}

static int do_remove(const adapter_names *names, const char *const *word, bool json, err *e)
{
    char who[STORE_USER];
    (void)json;
    return adapter_names_remove(names, store_args_name_user(who), word[0], e) == STORE_OK ? 0 : -1;
}

int adapter_list(int argc, char **argv)
{
    place at = {.store = store_of_environment()};
    const option options[] = {PLACE_OPTIONS(&at), JSON_OPTION(&at.json), {0}};
    const command_line line = {
        .usage = "punica adapter list (--cache DIR | --store URL) [--json]",
        .about = "The names of a cache: which version is served, its digest, rank, size, when it came and from where.",
        .options = options};
    return run_on_names(&line, do_list, &at, argc, argv);
}

int adapter_show(int argc, char **argv)
{
    const char *word[1] = {NULL};
    place at = {.store = store_of_environment()};
    const option options[] = {PLACE_OPTIONS(&at), JSON_OPTION(&at.json), {0}};
    const command_line line = {.usage = "punica adapter show NAME (--cache DIR | --store URL) [--json]",
                               .about = "A name's versions, the newest first; * is served.",
                               .options = options,
                               .n_positional = 1,
                               .positional = word};
    return run_on_names(&line, do_show, &at, argc, argv);
}

int adapter_rollback(int argc, char **argv)
{
    const char *word[2] = {NULL};
    place at = {.store = store_of_environment()};
    const option options[] = {PLACE_OPTIONS(&at), JSON_OPTION(&at.json), {0}};
    const command_line line = {.usage = "punica adapter rollback NAME [VERSION] (--cache DIR | --store URL)",
                               .about = "Serve an earlier version of a name from now on, or a later one again; without "
                                        "VERSION the one before. What runs\n"
                                        "goes on with what it began.",
                               .options = options,
                               .n_positional = 2,
                               .n_optional = 1,
                               .positional = word};
    return run_on_names(&line, do_rollback, &at, argc, argv);
}

int adapter_remove(int argc, char **argv)
{
    const char *word[1] = {NULL};
    place at = {.store = store_of_environment()};
    const option options[] = {PLACE_OPTIONS(&at), {0}};
    const command_line line = {
        .usage = "punica adapter remove NAME (--cache DIR | --store URL)",
        .about = "Serve a name no more. Its files stay in the cache until their room is needed; what runs goes on.",
        .options = options,
        .n_positional = 1,
        .positional = word};
    return run_on_names(&line, do_remove, &at, argc, argv);
}
