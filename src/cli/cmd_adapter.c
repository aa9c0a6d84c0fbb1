/* cmd_adapter.c - `punica adapter`; here `check`: whether an adapter fits a base model, and what it is
 *
 * Only the model's config.json is read, so a base of any size can be checked against anywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/adapter_names.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/split.h"

/* What `check` shows, as text or as JSON. */
typedef struct {
    char *name; /* last component of the adapter's directory */
    const model_config *base;
    const adapter *a;
    const adapter_info *info;
    int tp; /* ranks that the base is split over */
} report;

/* Returns "mine" for "/adapters/mine/"; the caller frees. */
static char *last_component(const char *dir)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && dir[begin - 1] != '/')
        begin--;
    return xstrndup(dir + begin, end - begin);
}

/* Prints a line of text from a file: control characters must not reach the terminal. */
static void print_foreign(const char *what, const char *text)
{
    printf("%-12s", what);
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    printf("\n");
}

/* Prints "min", or "min to max" when they differ. */
static void print_range(const char *what, double min, double max)
{
    printf("%-12s%g", what, min);
    if (min != max)
        printf(" to %g", max);
}

/* Adds where one projection is adapted: runs of layers of equal rank, e.g. "0-3 at rank 8, 5 at rank 16". */
static void add_runs(buf *out, const report *r, int site, int part)
{
    int n = r->base->n_layers;
    for (int first = 0, next; first < n; first = next) {
        int rank = adapter_rank(r->a, first, site, part);
        for (next = first + 1; next < n && adapter_rank(r->a, next, site, part) == rank; next++)
            ;
        if (!rank)
            continue;
        buf_printf(out, "%s%d", out->len ? ", " : "layers ", first);
        if (next - first > 1)
            buf_printf(out, "-%d", next - 1);
        if (r->info->rank_min != r->info->rank_max)
            buf_printf(out, " at rank %d", rank);
    }
}

static void print_projections(const report *r)
{
    for (int i = 0; i < N_SITES * MAX_PARTS; i++) {
        int site = i / MAX_PARTS, part = i % MAX_PARTS;
        const char *block, *name;
        if (part >= model_site_parts(site))
            continue;
        model_proj_name(site, part, &block, &name);
        buf runs = {0};
        add_runs(&runs, r, site, part);
        printf("  %-10s%s\n", name, runs.len ? runs.data : "not adapted");
        buf_free(&runs);
    }
}

static void print_text(const report *r)
{
    const adapter_info *f = r->info;
    print_foreign("adapter", r->name);
    print_foreign("made for", f->base_name[0] ? f->base_name : "(not said)");
    printf("%-12syes: %s, %d layers, hidden %d, weights %s\n", "fits", r->base->family, r->base->n_layers,
           r->base->hidden, weights_name(WEIGHTS_STORED, r->base->quant, r->base->type));
    print_range("rank", f->rank_min, f->rank_max);
    printf("\n");
    print_range("scale", f->scale_min, f->scale_max);
    printf("%s\n", f->rslora ? " (rsLoRA)" : "");
    printf("%-12s%d projections in %d of %d layers\n", "adapts", f->n_projections, f->n_layers, r->base->n_layers);
    print_projections(r);
    printf("%-12s%zu\n", "parameters", f->n_params);
    printf("%-12s%.3g MB", "memory", (double)f->bytes / 1e6);
    if (r->tp > 1)
        printf(", of which each of %d ranks holds at most %.3g MB", r->tp,
               (double)adapter_rank_bytes(r->a, r->tp) / 1e6);
    printf("\n");
    printf("%-12s%s%s\n", "dtype", dtype_name(f->type), f->mixed_types ? " and others" : "");
    printf("%-12ssha256:%s\n", "digest", f->digest);
}

/* Returns {"q_proj": [rank in each layer, 0: not adapted], ...}; the caller owns it. */
static json_t *ranks_json(const report *r)
{
    json_t *all = json_object();
    for (int i = 0; i < N_SITES * MAX_PARTS; i++) {
        const char *block, *name;
        if (i % MAX_PARTS >= model_site_parts(i / MAX_PARTS))
            continue;
        model_proj_name(i / MAX_PARTS, i % MAX_PARTS, &block, &name);
        json_t *ranks = json_array();
        for (int layer = 0; layer < r->base->n_layers; layer++)
            json_array_append_new(ranks, json_integer(adapter_rank(r->a, layer, i / MAX_PARTS, i % MAX_PARTS)));
        json_object_set_new(all, name, ranks);
    }
    return all;
}

/* A name that is not UTF-8 cannot stand in JSON and is left out. */
static void print_json(const report *r)
{
    const adapter_info *f = r->info;
    json_t *o = json_pack("{s:o*, s:s, s:b, s:s, s:i, s:i, s:f, s:f, s:b, s:i, s:i, s:o, s:I, s:I, s:I, s:s, s:b, s:s}",
                          "adapter", json_string(r->name), "base_model_name_or_path", f->base_name, "fits", 1,
                          "base_weights", weights_name(WEIGHTS_STORED, r->base->quant, r->base->type), "rank_min",
                          f->rank_min, "rank_max", f->rank_max, "scale_min", f->scale_min, "scale_max", f->scale_max,
                          "rslora", f->rslora, "projections", f->n_projections, "layers", f->n_layers, "ranks",
                          ranks_json(r), "parameters", (json_int_t)f->n_params, "bytes", (json_int_t)f->bytes,
                          "rank_bytes", (json_int_t)adapter_rank_bytes(r->a, r->tp), "dtype", dtype_name(f->type),
                          "mixed_dtypes", f->mixed_types, "digest", f->digest);
    CHECK(o);
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

static int check(const char *dir, const char *model_dir, int tp, bool json, err *e)
{
    model_config base;
    if (model_config_read(&base, model_dir, e))
        return -1;
    adapter *a = split_check(&base, tp, e) ? NULL : adapter_open(dir, &base, e);
    if (a) {
        report r = {.name = last_component(dir), .base = &base, .a = a, .info = adapter_describe(a), .tp = tp};
        if (json)
            print_json(&r);
        else
            print_text(&r);
        free(r.name);
    }
    adapter_close(a);
    model_config_deinit(&base);
    return a ? 0 : -1;
}

static int cmd_check(int argc, char **argv)
{
    const char *dir = NULL, *model_dir = NULL;
    bool json = false;
    int tp = 1;
    const option options[] = {
        {"model", OPT_STRING, &model_dir, "DIR", "the base model; only its config.json is read", 0, 0},
        {"tp", OPT_INT, &tp, "N", "ranks that the base is to be split over (%)", 1, MAX_RANKS},
        {"json", OPT_FLAG, &json, NULL, "one JSON object instead of text", 0, 0},
        {0},
    };
    const command_line line = {
        .usage = "punica adapter check DIR --model DIR [--tp N] [--json]",
        .about = "Whether the PEFT adapter in DIR can be served on a base model: its rank, scale, the\n"
                 "projections it adapts, its size. Exit code 0 if it can; else 2, and one line says why not.",
        .options = options,
        .n_positional = 1,
        .positional = &dir,
    };
    err e;
    int status = options_parse(&line, argc, argv, &e);
    if (status)
        return status > 0 ? 0 : command_fail(e.msg);
    if (!model_dir)
        return command_fail("which base? give --model DIR");
    return check(dir, model_dir, tp, json, &e) ? command_fail(e.msg) : 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"check", cmd_check, "whether an adapter fits a base model, and what it is"},
    {"fetch", adapter_fetch, "from a URL into a host's disk cache, checked"},
    {"add", adapter_add, "the same, and give it a name that servers with this cache serve from then on"},
    {"list", adapter_list, "the names of a cache"},
    {"show", adapter_show, "one of them, with its versions"},
    {"rollback", adapter_rollback, "to the version before, or to any that is kept"},
    {"remove", adapter_remove, "a name"},
};

static int help(int argc, char **argv)
{
    buf about = {0};
    buf_add_str(&about, "Adapters by themselves. punica adapter COMMAND --help tells more.\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        buf_printf(&about, "\n  %-10s %s", commands[i].name, commands[i].about);
    const option options[] = {{0}};
    const command_line line = {.usage = "punica adapter COMMAND ...", .about = about.data, .options = options};
    err e;
    int status = options_parse(&line, argc, argv, &e);
    buf_free(&about);
    return status > 0 ? 0 : command_fail(status < 0 ? e.msg : "which command? see punica adapter --help");
}

int cmd_adapter(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc > 1 && argv[1][0] != '-') {
        err unknown;
        err_set(&unknown, "unknown command \"adapter %s\"; see punica adapter --help", argv[1]);
        return command_fail(unknown.msg);
    }
    return help(argc, argv);
}
