/* cmd_tenant.c - `punica tenant`: tenants, their keys, limits and usage, directly in the store
 *
 * Works beside running frontends, which know of a change within a second, and without any. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/store_args.h"
#include "store/store_json.h"

enum { AS_IT_IS = -1 };

/* The arguments of all commands. */
typedef struct {
    const char *store;
    const char *word[3]; /* words without dashes */
    const char *base, *expires, *from, *to;
    int in_flight, waiting, weight, last;
    double requests, tokens, adapters, adapter_bytes;
    bool json, by_hour;
    char who[STORE_USER];
} tenant_args;

#define STORE_OPTION(a) {"store", OPT_STRING, &(a)->store, "URL", STORE_HELP}
#define JSON_OPTION(a) {"json", OPT_FLAG, &(a)->json, NULL, "as JSON"}
#define WEIGHT_HELP "its share of a full cluster, relative to those of other tenants (" AS_TEXT(STORE_WEIGHT) ")"
#define SETTINGS(a)                                                                                                     \
    {"base", OPT_STRING, &(a)->base, "yes|no", "whether the tenant may use the base model, too (no)"},                  \
        {"in-flight",                                                                                                   \
         OPT_INT,                                                                                                       \
         &(a)->in_flight,                                                                                               \
         "N",                                                                                                           \
         "requests that may run or wait at once; each choice of a call counts (0: any number)",                         \
         0,                                                                                                             \
         1e9},                                                                                                          \
        {"waiting", OPT_INT, &(a)->waiting, "N", "those of them that have no token yet (0: any number)", 0, 1e9},       \
        {"requests-per-minute", OPT_DOUBLE, &(a)->requests, "N", "requests accepted (0: any number)", 0, 1e12},         \
        {"tokens-per-minute", OPT_DOUBLE, &(a)->tokens, "N", "tokens of prompts and outputs (0: any number)", 0, 1e12}, \
        {"max-adapters", OPT_DOUBLE, &(a)->adapters, "N", "adapters that it may add itself (0: none)", 0, 1e12},        \
        {"max-adapter-bytes",                                                                                           \
         OPT_DOUBLE,                                                                                                    \
         &(a)->adapter_bytes,                                                                                           \
         "N",                                                                                                           \
         "size of these, with all versions that are kept (0: any size)",                                                \
         0,                                                                                                             \
         1e12},                                                                                                         \
    {                                                                                                                   \
        "weight", OPT_INT, &(a)->weight, "N", WEIGHT_HELP, 1, STORE_MAX_WEIGHT                                          \
    }

/* Reads a time: "90", "15m", "12h" or "30d" from now, or "now"; "never" is 0. */
static int parse_expiry(const char *text, int64_t *at, err *e)
{
    static const char units[] = "smhd";
    static const int64_t seconds[] = {1, 60, 3600, 86400};
    char *end;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : units;
    *at = strcmp(text, "never") == 0 ? 0 : (time_t)clock_wall();
    if (strcmp(text, "never") == 0 || strcmp(text, "now") == 0)
        return 0;
    if (end == text || !unit || (*end && end[1]) || !(x >= 0 && x < 1e9))
        return err_set(
            e, "a time is a number of seconds, or of m, h or d, as \"30d\", or \"now\" or \"never\"; not \"%s\"", text);
    *at += (int64_t)(x * (double)seconds[unit - units]);
    return 0;
}

/* Reads "2026-03-01" or "2026-03-01T12", in UTC, as hours since 1970. */
static int parse_hour(const char *text, int64_t *hour, err *e)
{
    struct tm t = {0};
    const char *end = strptime(text, "%Y-%m-%d", &t);
    if (end && *end == 'T')
        end = strptime(end + 1, "%H", &t);
    if (!end || *end)
        return err_set(e, "a time is written as 2026-03-01 or 2026-03-01T12 (UTC), not \"%s\"", text);
    *hour = timegm(&t) / 3600;
    return 0;
}

static int parse_base(const char *text, bool *base, err *e)
{
    *base = text && strcmp(text, "yes") == 0;
    return !text || *base || strcmp(text, "no") == 0 ? 0 : err_set(e, "--base is yes or no, not \"%s\"", text);
}

/* Sets a limit if one was given, which may be written as 1e9. Fractions are refused: 0.5 would become 0, no limit. */
static int apply_limit(const char *name, double given, int64_t *limit, err *e)
{
    if (given == AS_IT_IS)
        return 0;
    if (given != floor(given))
        return err_set(e, "--%s is a whole number, not %g", name, given);
    *limit = (int64_t)given;
    return 0;
}

/* Sets those settings of t that were given. */
static int apply_settings(const tenant_args *a, store_tenant *t, err *e)
{
    if (a->base && parse_base(a->base, &t->base, e))
        return -1;
    t->in_flight = a->in_flight == AS_IT_IS ? t->in_flight : a->in_flight;
    t->waiting = a->waiting == AS_IT_IS ? t->waiting : a->waiting;
    t->weight = a->weight == AS_IT_IS ? t->weight : a->weight;
    return apply_limit("requests-per-minute", a->requests, &t->requests_per_minute, e) ||
                   apply_limit("tokens-per-minute", a->tokens, &t->tokens_per_minute, e) ||
                   apply_limit("max-adapters", a->adapters, &t->max_adapters, e) ||
                   apply_limit("max-adapter-bytes", a->adapter_bytes, &t->max_adapter_bytes, e)
               ? -1
               : 0;
}

static int ended(store_result r)
{
    return r == STORE_OK ? 0 : -1;
}

/* Each command, on an open store. */

static int add(store *s, const tenant_args *a, err *e)
{
    store_tenant t = {.name = a->word[0], .weight = STORE_WEIGHT};
    return apply_settings(a, &t, e) ? -1 : ended(store_add_tenant(s, a->who, &t, e));
}

static int edit_tenant(void *ctx, store_tenant *t, err *e)
{
    return apply_settings(ctx, t, e);
}

static int limit(store *s, const tenant_args *a, err *e)
{
    return ended(store_change_tenant(s, a->who, a->word[0], edit_tenant, (void *)a, e));
}

static int remove_one(store *s, const tenant_args *a, err *e)
{
    return ended(store_remove_tenant(s, a->who, a->word[0], e));
}

static int grant(store *s, const tenant_args *a, err *e)
{
    return ended(store_add_grant(s, a->who, &(store_grant){a->word[0], a->word[1]}, e));
}

static int ungrant(store *s, const tenant_args *a, err *e)
{
    return ended(store_remove_grant(s, a->who, &(store_grant){a->word[0], a->word[1]}, e));
}

static void print_json(json_t *o)
{
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

static void print_time(int64_t at)
{
    char text[32];
    time_t t = (time_t)at;
    struct tm parts;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &parts));
    printf("%s", at ? text : "never");
}

static void print_tenant(const store_directory *d, const store_tenant *t)
{
    printf("%s\n  base model           %s\n  weight               %lld\n", t->name, t->base ? "yes" : "no",
           (long long)t->weight);
    printf("  in flight, waiting   %lld, %lld\n  requests per minute  %lld\n  tokens per minute    %lld\n",
           (long long)t->in_flight, (long long)t->waiting, (long long)t->requests_per_minute,
           (long long)t->tokens_per_minute);
    printf("  own adapters, bytes  %lld, %lld\n", (long long)t->max_adapters, (long long)t->max_adapter_bytes);
    for (size_t i = 0; i < d->n_adapters; i++)
        if (strcmp(d->adapter[i].owner, t->name) == 0)
            printf("  own adapter          %s, %.12s\n", d->adapter[i].name, d->adapter[i].id);
    for (size_t i = 0; i < d->n_grants; i++)
        if (strcmp(d->grant[i].tenant, t->name) == 0)
            printf("  adapter              %s\n", d->grant[i].adapter);
    for (size_t i = 0; i < d->n_keys; i++)
        if (strcmp(d->key[i].tenant, t->name) == 0) {
            printf("  key                  %s, expires ", d->key[i].name);
            print_time(d->key[i].expires);
            printf("\n");
        }
}

/* Finds the tenant that is named. NULL with e set. */
static const store_tenant *find_named(const store_directory *d, const char *name, err *e)
{
    const store_tenant *t = store_find_tenant(d, name);
    if (!t)
        err_set(e, "there is no tenant \"%s\"", name);
    return t;
}

/* Prints all tenants, or the one that is named. */
static int show(store *s, const tenant_args *a, err *e)
{
    store_directory *d = store_read_directory(s, e);
    const store_tenant *one = d && a->word[0] ? find_named(d, a->word[0], e) : NULL;
    int rc = !d || (a->word[0] && !one) ? -1 : 0;
    for (size_t i = 0; rc == 0 && i < d->n_tenants; i++) {
        const store_tenant *t = &d->tenant[i];
        if (one && one != t)
            continue;
        if (a->json)
            print_json(store_tenant_json(d, t));
        else
            print_tenant(d, t);
    }
    store_directory_free(d);
    return rc;
}

/* A key as `key list` prints it. */
static void print_key(const store_key *k)
{
    printf("%-20s expires ", k->name);
    print_time(k->expires);
    printf("\n");
}

static int key_list(store *s, const tenant_args *a, err *e)
{
    store_directory *d = store_read_directory(s, e);
    int rc = d && find_named(d, a->word[0], e) ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < d->n_keys; i++) {
        const store_key *k = &d->key[i];
        if (strcmp(k->tenant, a->word[0]) != 0)
            continue;
        if (a->json)
            print_json(store_key_json(k));
        else
            print_key(k);
    }
    store_directory_free(d);
    return rc;
}

/* Checks a name of which there are no lines: 0 if there is such a tenant, or none was named. One that was removed has
 * lines as long as they are kept. */
static int check_known(store *s, const char *name, err *e)
{
    store_directory *d = name ? store_read_directory(s, e) : NULL;
    int rc = !name || (d && find_named(d, name, e)) ? 0 : -1;
    store_directory_free(d);
    return rc;
}

static int key_add(store *s, const tenant_args *a, err *e)
{
    char text[STORE_KEY_TEXT];
    store_key k = {.tenant = a->word[0], .name = a->word[1]};
    if ((a->expires && parse_expiry(a->expires, &k.expires, e)) || store_add_key(s, a->who, &k, text, e))
        return -1;
    puts(text);
    fprintf(stderr, "this is the only time it is shown\n");
    return 0;
}

static int key_expire(store *s, const tenant_args *a, err *e)
{
    int64_t at = 0;
    if (!a->expires)
        return err_set(e, "when? give --in TIME, as 1d, now or never");
    return parse_expiry(a->expires, &at, e) ? -1 : ended(store_expire_key(s, a->who, a->word[0], a->word[1], at, e));
}

static int key_revoke(store *s, const tenant_args *a, err *e)
{
    return ended(store_remove_key(s, a->who, a->word[0], a->word[1], e));
}

/* Rows of usage, by hour or summed up over all hours. */
typedef struct {
    const tenant_args *a;
    store_usage *sum;
    size_t n, cap;
    bool any;
} usage_sums;

static void print_usage(const tenant_args *a, const store_usage *u)
{
    if (a->json) {
        json_t *o = store_usage_json(u);
        if (!a->by_hour)
            json_object_del(o, "hour");
        print_json(o);
        return;
    }
    if (a->by_hour) {
        print_time(u->hour * 3600);
        printf("  ");
    }
    printf("%-20s %-24s %-12.12s %10lld requests %12lld prompt %12lld cached %12lld output\n", u->tenant, u->adapter,
           u->digest[0] ? u->digest : "-", (long long)u->requests, (long long)u->prompt, (long long)u->cached,
           (long long)u->output);
}

static void add_usage(void *ctx, const store_usage *u)
{
    usage_sums *s = ctx;
    s->any = true;
    if (s->a->by_hour) {
        print_usage(s->a, u);
        return;
    }
    size_t i = 0;
    while (i < s->n && (strcmp(s->sum[i].tenant, u->tenant) != 0 || strcmp(s->sum[i].adapter, u->adapter) != 0 ||
                        strcmp(s->sum[i].digest, u->digest) != 0))
        i++;
    if (i == s->n) {
        s->sum = xgrow(s->sum, &s->cap, s->n + 1, sizeof *s->sum);
        s->sum[s->n++] =
            (store_usage){.tenant = xstrdup(u->tenant), .adapter = xstrdup(u->adapter), .digest = xstrdup(u->digest)};
    }
    s->sum[i].requests += u->requests;
    s->sum[i].prompt += u->prompt;
    s->sum[i].cached += u->cached;
    s->sum[i].output += u->output;
}

static int usage(store *s, const tenant_args *a, err *e)
{
    store_period p = {.tenant = a->word[0], .to = INT64_MAX / 3600};
    usage_sums sums = {.a = a};
    if ((a->from && parse_hour(a->from, &p.from, e)) || (a->to && parse_hour(a->to, &p.to, e)))
        return -1;
    int rc = store_read_usage(s, &p, add_usage, &sums, e);
    for (size_t i = 0; i < sums.n; i++) {
        if (rc == 0)
            print_usage(a, &sums.sum[i]);
        free((char *)sums.sum[i].tenant);
        free((char *)sums.sum[i].adapter);
        free((char *)sums.sum[i].digest);
    }
    free(sums.sum);
    return rc || sums.any ? rc : check_known(s, a->word[0], e);
}

typedef struct {
    const tenant_args *a;
    bool any;
} audit_lines;

static void print_audit(void *ctx, const store_audit *l)
{
    audit_lines *lines = ctx;
    lines->any = true;
    if (lines->a->json) {
        print_json(store_audit_json(l));
        return;
    }
    print_time(l->at);
    printf("  %-16s %-16s %-20s %s\n", l->who, l->action, l->tenant, l->detail);
}

static int audit(store *s, const tenant_args *a, err *e)
{
    audit_lines lines = {.a = a};
    int rc = store_read_audit(s, a->word[0], a->last, print_audit, &lines, e);
    return rc || lines.any ? rc : check_known(s, a->word[0], e);
}

/* The commands. extra: which options beside --store. */
static const struct command {
    const char *name, *words, *about;
    int n_words, n_optional;
    enum { NO_MORE, WITH_SETTINGS, WITH_JSON, WITH_EXPIRES, WITH_IN, WITH_PERIOD, WITH_LAST } extra;
    int (*run)(store *s, const tenant_args *a, err *e);
} commands[] = {
    {"add", "TENANT", "add a tenant; it has no keys and adapters yet, and only the limits given", 1, 0, WITH_SETTINGS,
     add},
    {"limit", "TENANT", "change the limits given, and leave the others", 1, 0, WITH_SETTINGS, limit},
    {"list", "", "show all tenants", 0, 0, WITH_JSON, show},
    {"show", "TENANT", "show a tenant's limits and adapters, and the names of its keys", 1, 0, WITH_JSON, show},
    {"remove", "TENANT", "remove a tenant, its keys and grants; its usage is kept, and running streams end normally", 1,
     0, NO_MORE, remove_one},
    {"grant", "TENANT ADAPTER", "let it use an adapter, or all whose names begin alike: sql-*", 2, 0, NO_MORE, grant},
    {"ungrant", "TENANT ADAPTER", "take such a grant back", 2, 0, NO_MORE, ungrant},
    {"key add", "TENANT NAME", "make a key, which is printed once and cannot be shown again", 2, 0, WITH_EXPIRES,
     key_add},
    {"key list", "TENANT", "show the names of its keys, and when they expire", 1, 0, WITH_JSON, key_list},
    {"key expire", "TENANT NAME", "let a key expire: to replace one, add another and give the old one a day (--in 1d)",
     2, 0, WITH_IN, key_expire},
    {"key revoke", "TENANT NAME", "make a key invalid at once; running streams go on", 2, 0, NO_MORE, key_revoke},
    {"usage", "[TENANT]", "show requests and tokens by tenant, adapter and version", 1, 1, WITH_PERIOD, usage},
    {"audit", "[TENANT]", "show who changed what, the newest first", 1, 1, WITH_LAST, audit},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands, MAX_OPTIONS = 12 };

static int fill_options(const struct command *c, tenant_args *a, option *to)
{
    const option settings[] = {SETTINGS(a)}, json[] = {JSON_OPTION(a)},
                 expires[] = {{"expires", OPT_STRING, &a->expires, "TIME",
                               "when the key expires, from now: 30d, 12h, 15m (never)"}},
                 in[] = {{"in", OPT_STRING, &a->expires, "TIME",
                          "when the key expires, from now: 30d, 12h, 15m, now or never"}},
                 period[] = {JSON_OPTION(a),
                             {"by-hour", OPT_FLAG, &a->by_hour, NULL, "a line for each hour"},
                             {"from", OPT_STRING, &a->from, "TIME",
                              "first hour to show, UTC: 2026-03-01 or 2026-03-01T12 (the first recorded)"},
                             {"to", OPT_STRING, &a->to, "TIME",
                              "hour before which to stop, written likewise (the present one is shown)"}},
                 last[] = {JSON_OPTION(a), {"last", OPT_INT, &a->last, "N", "how many changes to show (%)", 1, 1e6}};
    const struct {
        const option *at;
        int n;
    } more[] = {[NO_MORE] = {NULL, 0},   [WITH_SETTINGS] = {settings, sizeof settings / sizeof *settings},
                [WITH_JSON] = {json, 1}, [WITH_EXPIRES] = {expires, 1},
                [WITH_IN] = {in, 1},     [WITH_PERIOD] = {period, 4},
                [WITH_LAST] = {last, 2}};
    int n = more[c->extra].n;
    CHECK(n + 2 <= MAX_OPTIONS);
    to[0] = (option)STORE_OPTION(a);
    for (int i = 0; i < n; i++)
        to[i + 1] = more[c->extra].at[i];
    to[n + 1] = (option){0};
    return n + 1;
}

static int run_command(const struct command *c, int argc, char **argv)
{
    tenant_args a = {.in_flight = AS_IT_IS,
                     .waiting = AS_IT_IS,
                     .weight = AS_IT_IS,
                     .requests = AS_IT_IS,
                     .tokens = AS_IT_IS,
                     .adapters = AS_IT_IS,
                     .adapter_bytes = AS_IT_IS,
                     .last = 50,
                     .store = getenv(STORE_ENVIRONMENT)};
    option options[MAX_OPTIONS];
    fill_options(c, &a, options);
    char *line = xasprintf("punica tenant %s %s --store URL [options]", c->name, c->words);
    const command_line parsed = {.usage = line,
                                 .about = c->about,
                                 .options = options,
                                 .n_positional = c->n_words,
                                 .n_optional = c->n_optional,
                                 .positional = a.word};
    err e;
    int status = options_parse(&parsed, argc, argv, &e);
    free(line);
    if (status)
        return status > 0 ? 0 : command_fail(e.msg);
    if (!a.store)
        return command_fail("which store? give --store FILE or --store postgres://..., or set " STORE_ENVIRONMENT);
    store_args_name_user(a.who);
    store *s = (c->run == add ? store_open : store_open_existing)(a.store, &e); /* a typo makes no store */
    int rc = s ? c->run(s, &a, &e) : -1;
    store_close(s);
    return rc ? command_fail(e.msg) : 0;
}

/* Returns how many words from argv[1] on are the command's name; 0: they name another. */
static int names(const struct command *c, int argc, char **argv)
{
    const char *space = strchr(c->name, ' ');
    size_t n = space ? (size_t)(space - c->name) : strlen(c->name);
    if (argc < 2 || strlen(argv[1]) != n || strncmp(argv[1], c->name, n) != 0)
        return 0;
    return !space ? 1 : argc > 2 && strcmp(argv[2], space + 1) == 0 ? 2 : 0;
}

static int help(int argc, char **argv)
{
    buf about = {0};
    buf_add_str(
        &about,
        "Tenants of a server or cluster, in its store. What is changed here, frontends know within a second.\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        buf_printf(&about, "\n  %-11s %-16s %s", commands[i].name, commands[i].words, commands[i].about);
    const option options[] = {{0}};
    const command_line line = {
        .usage = "punica tenant COMMAND --store URL [options]", .about = about.data, .options = options};
    err e;
    int status = options_parse(&line, argc, argv, &e);
    buf_free(&about);
    return status > 0 ? 0 : command_fail(status < 0 ? e.msg : "which command? see punica tenant --help");
}

int cmd_tenant(int argc, char **argv)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int n = names(&commands[i], argc, argv);
        if (n)
            return run_command(&commands[i], argc - n, argv + n);
    }
    if (argc > 2 && strcmp(argv[1], "key") == 0 && argv[2][0] == '-')
        return help(argc - 1, argv + 1);
    if (argc > 1 && argv[1][0] != '-') {
        err unknown;
        bool key = strcmp(argv[1], "key") == 0 && argc > 2;
        err_set(&unknown, "unknown command \"tenant %s%s%s\"; see punica tenant --help", argv[1], key ? " " : "",
                key ? argv[2] : "");
        return command_fail(unknown.msg);
    }
    return help(argc, argv);
}
