/* cmd_bench.c - `punica bench`: the experiments' command lines */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "base/buf.h"
#include "base/mem.h"
#include "bench/attention.h"
#include "bench/comm.h"
#include "bench/load.h"
#include "bench/mask.h"
#include "bench/op.h"
#include "bench/prompts.h"
#include "bench/step.h"
#include "bench/textgen.h"
#include "bench/turns.h"
#include "bench/shapes.h"
#include "cli/commands.h"
#include "cli/engine_args.h"
#include "cli/local_engine.h"

/* list: "all", or names separated by commas. */
static int choose_workloads(bool run[N_WORKLOADS], const char *list, err *e)
{
    char *copy = xstrdup(list), *save = NULL;
    int status = 0;
    for (char *name = strtok_r(copy, ",", &save); name && status == 0; name = strtok_r(NULL, ",", &save)) {
        workload w;
        if (strcmp(name, "all") == 0)
            for (int i = 0; i < N_WORKLOADS; i++)
                run[i] = true;
        else if ((status = workload_find(name, &w, e)) == 0)
            run[w] = true;
    }
    free(copy);
    for (int i = 0; i < N_WORKLOADS && status == 0; i++)
        if (run[i])
            return 0;
    return status ? status : err_set(e, "--workload names none");
}

static int choose_dtype(dtype *type, const char *name, err *e)
{
    static const dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 3; i++)
        if (strcasecmp(name, dtype_name(types[i])) == 0) {
            *type = types[i];
            return 0;
        }
    return err_set(e, "unknown dtype \"%s\"; known: f16, bf16, f32", name);
}

/* What experiments are told by name. */
typedef struct { const char *type, *weights, *kv, *workloads; } choices;

static choices choices_default(void)
{
    return (choices){.type = "f16", .weights = WEIGHTS_DEFAULT, .kv = KV_DEFAULT, .workloads = "all"};
}

/* Finds what is meant; NULL: the experiment has no such option. */
static int choose(const choices *c, dtype *type, weights_form *form, kv_form *kv, bool *run, err *e)
{
    return choose_dtype(type, c->type, e) || (form && weights_form_find(c->weights, form, e)) ||
                   (kv && kv_form_find(c->kv, kv, e)) || (run && choose_workloads(run, c->workloads, e))
               ? -1
               : 0;
}

/* Writes the help of --shape; chosen: the default, or NULL. */
static const char *shape_help(char text[SHAPE_NAMES], const char *chosen)
{
    size_t n = strlen(shape_names(text));
    CHECK(snprintf(text + n, SHAPE_NAMES - n, "%s", chosen ? " (%)" : "") < (int)(SHAPE_NAMES - n));
    return text;
}

#define SHAPE_OPTION(o, names) {"shape", OPT_STRING, &(o)->shape, "NAME", shape_help(names, (o)->shape)}
#define MODEL_DIR_OPTION(o) {"model", OPT_STRING, &(o)->model_dir, "DIR", "a model directory instead of random weights"}
#define DTYPE_OPTION(c, of) {"dtype", OPT_STRING, &(c)->type, "TYPE", "of " of " (%)"}
#define WORKLOAD_OPTION(c) \
    {"workload", OPT_STRING, &(c)->workloads, "LIST", "all, or some of none, identical, uniform, skewed, distinct (%)"}
#define RANK_OPTION(o) {"rank", OPT_INT, &(o)->rank, "N", RANK_HELP, 1, LORA_MAX_RANK}
#define RANK_HELP "rank of the adapters, on all seven projections (%)"
#define CSV_OPTION(o) {"csv", OPT_STRING, &(o)->csv, "FILE", "write the results there, too"}
#define NO_SHAPE "give either --shape NAME or --model DIR"
enum { MAX_CONTEXT = 131072 };

/* The experiments. Each returns 0, or -1 with e set; 1: --help was printed. */

static int textgen(int argc, char **argv, err *e)
{
    textgen_options o = textgen_options_default();
    o.itl_target = default_itl_target();
    choices named = choices_default();
    bool paper = false;
    char shapes[SHAPE_NAMES];
    const option options[] = {
        SHAPE_OPTION(&o, shapes),
        MODEL_DIR_OPTION(&o),
        DTYPE_OPTION(&named, "random weights and adapters: f16, bf16, f32"),
        WEIGHTS_OPTION(&named),
        KV_OPTION(&named),
        WORKLOAD_OPTION(&named),
        {"requests", OPT_INT, &o.requests, "N", "(%)", 1, 1e6},
        {"batch", OPT_INT, &o.batch, "N", "requests that run together (%)", 1, 4096},
        {"prompt-len", OPT_INT, &o.prompt_len, "N", "tokens of each prompt (%)", 1, 1e6},
        {"gen-len", OPT_INT, &o.gen_len, "N", "tokens made for each (%)", 1, 1e6},
        {"paper-lengths", OPT_FLAG, &paper, NULL, "lengths from the paper's distribution instead"},
        {"prefill-rows", OPT_INT, &o.prefill_rows, "N",
         "tokens of prompts that a step computes at most (by the device and its memory)", 1, 65536},
        ITL_TARGET_OPTION(&o),
        RANK_OPTION(&o),
        DEVICE_OPTION(&o),
        TP_OPTION(&o),
        THREADS_OPTION(&o),
        {"seed", OPT_U64, &o.seed, "N", "of weights, prompts and order (%)"},
        CSV_OPTION(&o),
        {NULL}};
    const command_line c = {.usage = "punica bench textgen (--shape NAME | --model DIR) [options]",
                            .about =
                                "Text generation with many adapters in one batch: tokens per second for each workload.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    if (!o.shape == !o.model_dir)
        return err_set(e, NO_SHAPE);
    if (paper)
        o.prompt_len = o.gen_len = 0;
    return choose(&named, &o.type, &o.form, &o.kv, o.run, e) || textgen_run(&o, e) ? -1 : 0;
}

static int turns(int argc, char **argv, err *e)
{
    turns_options o = turns_options_default();
    choices named = choices_default();
    const char *modes = "all";
    char shapes[SHAPE_NAMES];
    const option options[] = {
        SHAPE_OPTION(&o, shapes),
        MODEL_DIR_OPTION(&o),
        DTYPE_OPTION(&named, "random weights and adapters: f16, bf16, f32"),
        WEIGHTS_OPTION(&named),
        KV_OPTION(&named),
        {"conversations", OPT_INT, &o.conversations, "N", "(%)", 1, 1e6},
        {"turns", OPT_INT, &o.turns, "N", "turns of each conversation (%)", 1, 1e4},
        {"at-once", OPT_INT, &o.at_once, "N", "requests that run together (%)", 1, 4096},
        {"adapters", OPT_INT, &o.adapters, "N",
         "adapters that conversations share out, each with a system prompt of its own; 0: the base model (%)", 0, 256},
        RANK_OPTION(&o),
        {"system-len", OPT_INT, &o.system_len, "N", "tokens of a system prompt (%)", 0, 1e6},
        {"user-len", OPT_INT, &o.user_len, "N", "tokens that the user says in a turn (%)", 1, 1e6},
        {"gen-len", OPT_INT, &o.gen_len, "N", "tokens of each answer (%)", 1, 1e6},
        {"cache", OPT_STRING, &modes, "LIST",
         "off, device, host or all: no prefix cache, one on the device, one with host memory (%)"},
        {"rounds", OPT_INT, &o.rounds, "N", "how often each of these is run, in turn (%)", 1, 100},
        KV_PAGES_OPTION(&o),
        KV_HOST_OPTION(&o),
        DEVICE_OPTION(&o),
        TP_OPTION(&o),
        THREADS_OPTION(&o),
        {"seed", OPT_U64, &o.seed, "N", "of weights and prompts (%)"},
        {NULL}};
    const command_line c = {.usage = "punica bench turns (--shape NAME | --model DIR) [options]",
                            .about = "Conversations of several turns, with and without the prefix cache: time to first "
                                     "token, throughput, and how much\n"
                                     "was cached of what a cache without bounds would have.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    if (!o.shape == !o.model_dir)
        return err_set(e, NO_SHAPE);
    return choose(&named, &o.type, &o.form, &o.kv, NULL, e) || turns_modes_find(modes, o.run, e) || turns_run(&o, e)
               ? -1
               : 0;
}

/* list: "4096x4096,8192x28672"; NULL leaves the default. */
static int choose_dims(op_options *o, const char *list, err *e)
{
    if (!list)
        return 0;
    o->n_dims = 0;
    for (const char *at = list; *at;) {
        int n = 0;
        op_dims d;
        if (o->n_dims == MAX_OP_SIZES || sscanf(at, "%7dx%7d%n", &d.in, &d.out, &n) != 2 || d.in < 1 || d.out < 1 ||
            d.in > 1 << 20 || d.out > 1 << 20 || (at[n] && at[n] != ','))
            return err_set(e, "--dims takes up to %d pairs such as 4096x4096 separated by commas, not \"%s\"",
                           MAX_OP_SIZES, list);
        o->dims[o->n_dims++] = d;
        at += at[n] ? n + 1 : n;
    }
    return o->n_dims ? 0 : err_set(e, "--dims names none");
}

static int op(int argc, char **argv, err *e)
{
    op_options o = op_options_default();
    choices named = choices_default();
    const char *dims = NULL;
    const option options[] = {
        {"device", OPT_STRING, &o.device, "NAME", "cpu, cuda or cuda:N (%)"},
        DTYPE_OPTION(&named, "activations (on a GPU) and adapters: f16, bf16, f32"),
        {"dims", OPT_STRING, &dims, "LIST", "input x output dimensions (4096x4096)"},
        {"rank", OPT_INTS, &(option_ints){o.rank, &o.n_ranks, MAX_OP_SIZES}, "LIST", "ranks of the adapters (%)", 1,
         LORA_MAX_RANK},
        {"batch", OPT_INTS, &(option_ints){o.batch, &o.n_batches, MAX_OP_SIZES}, "LIST", "rows (%)", 1, MAX_OP_ROWS},
        {"workload", OPT_STRING, &named.workloads, "LIST", "all, or some of identical, uniform, skewed, distinct (%)"},
        CSV_OPTION(&o),
        {NULL}};
    const command_line c = {.usage = "punica bench op [options]",
                            .about =
                                "The LoRA operator by itself: SGMV shrink and expand, on weights that no cache holds.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    return choose(&named, &o.type, NULL, NULL, o.run, e) || choose_dims(&o, dims, e) || op_run(&o, e) ? -1 : 0;
}

static int step_or_layer(int argc, char **argv, bool per_layer, err *e)
{
    step_options o = step_options_default(per_layer);
    choices named = choices_default();
    char shapes[SHAPE_NAMES];
    const option options[] = {
        SHAPE_OPTION(&o, shapes),
        DEVICE_OPTION(&o),
        TP_OPTION(&o),
        DTYPE_OPTION(&named, "weights and adapters: f16, bf16, f32"),
        WEIGHTS_OPTION(&named),
        KV_OPTION(&named),
        {"rank", OPT_INTS, &(option_ints){o.rank, &o.n_ranks, MAX_DECODE_RANKS}, "LIST",
         "ranks of the adapters, which take them in turn, on all seven projections (%)", 1, LORA_MAX_RANK},
        {"batch", OPT_INTS, &(option_ints){o.batch, &o.n_batches, MAX_STEP_SIZES}, "LIST", "sequences (%)", 1, 4096},
        {"context", OPT_INTS, &(option_ints){o.context, &o.n_contexts, MAX_STEP_SIZES}, "LIST",
         "cached positions of each (%)", 1, MAX_CONTEXT},
        {"prompt", OPT_INTS, &(option_ints){o.prompt, &o.n_prompts, MAX_STEP_SIZES}, "LIST",
         "tokens of a prompt that the same step computes (%)", 0, MAX_CONTEXT},
        WORKLOAD_OPTION(&named),
        {"masked", OPT_FLAG, &o.masked, NULL, "draw tokens with masks, as for outputs that follow a grammar"},
        CSV_OPTION(&o),
        {NULL}};
    const command_line c = {
        .usage = per_layer ? "punica bench layer [options]" : "punica bench step [options]",
        .about = per_layer
                     ? "Time of one transformer layer in a decode step, over the time its bytes or operations need."
                     : "Time of whole decode steps, tokens drawn, over the time their bytes or operations need.",
        .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    return choose(&named, &o.type, &o.form, &o.kv, o.run, e) || step_run(&o, e) ? -1 : 0;
}

static int step(int argc, char **argv, err *e)
{
    return step_or_layer(argc, argv, false, e);
}

static int layer(int argc, char **argv, err *e)
{
    return step_or_layer(argc, argv, true, e);
}

static int prompts(int argc, char **argv, err *e)
{
    prompts_options o = prompts_options_default();
    o.itl_target = default_itl_target();
    choices named = choices_default();
    char shapes[SHAPE_NAMES];
    const option options[] = {
        SHAPE_OPTION(&o, shapes),
        DEVICE_OPTION(&o),
        TP_OPTION(&o),
        THREADS_OPTION(&o),
        DTYPE_OPTION(&named, "weights and adapters: f16, bf16, f32"),
        WEIGHTS_OPTION(&named),
        KV_OPTION(&named),
        {"streams", OPT_INT, &o.streams, "N", "requests that decode meanwhile (%)", 0, 4096},
        {"context", OPT_INT, &o.context, "N", "tokens that each of them begins with (%)", 1, MAX_CONTEXT},
        {"prompts", OPT_INT, &o.prompts, "N", "prompts that come in together (%)", 1, 4096},
        {"len", OPT_INTS, &(option_ints){o.len, &o.n_lens, MAX_PROMPT_SIZES}, "LIST",
         "tokens of each prompt, one length after the other (%)", 1, MAX_CONTEXT},
        {"adapters", OPT_INTS, &(option_ints){o.adapters, &o.n_adapters, MAX_PROMPT_SIZES}, "LIST",
         "how many adapters streams and prompts share out, one number after the other; 0: the base model (%)", 0, 256},
        RANK_OPTION(&o),
        ITL_TARGET_OPTION(&o),
        CSV_OPTION(&o),
        {NULL}};
    const command_line c = {.usage = "punica bench prompts --shape NAME [options]",
                            .about = "Prompts that come in while requests decode: tokens per second, when their first "
                                     "tokens come, and the time between\ntokens of those that decode.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    if (!o.shape)
        return err_set(e, "--shape NAME is needed");
    return choose(&named, &o.type, &o.form, &o.kv, NULL, e) || prompts_run(&o, e) ? -1 : 0;
}

static int load(int argc, char **argv, err *e)
{
    load_options o = load_options_default();
    choices named = choices_default();
    char shapes[SHAPE_NAMES];
    const option options[] = {SHAPE_OPTION(&o, shapes),
                              DEVICE_OPTION(&o),
                              TP_OPTION(&o),
                              DTYPE_OPTION(&named, "weights and adapters: f16, bf16, f32"),
                              WEIGHTS_OPTION(&named),
                              RANK_OPTION(&o),
                              {"batch", OPT_INT, &o.batch, "N", "sequences that decode meanwhile (%)", 1, 4096},
                              {"context", OPT_INT, &o.context, "N", "cached positions of each (%)", 1, MAX_CONTEXT},
                              {NULL}};
    const command_line c = {.usage = "punica bench load [options]",
                            .about = "What loading an adapter costs those who decode meanwhile, and how long it takes.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    return choose(&named, &o.type, &o.form, NULL, NULL, e) || load_run(&o, e) ? -1 : 0;
}

static int comm_ops_alone(int argc, char **argv, err *e)
{
    comm_bench_options o = comm_bench_options_default();
    choices named = choices_default();
    const option options[] = {
        DEVICE_OPTION(&o),
        {"tp", OPT_INT, &o.tp, "N", "ranks: a GPU each (cuda:0-3), or all on one device (%)", 2, MAX_RANKS},
        DTYPE_OPTION(&named, "activations, on a GPU: f16, bf16"),
        {"hidden", OPT_INT, &o.hidden, "N", "numbers of a row (%)", 8, 65536},
        {"vocab", OPT_INT, &o.vocab, "N", "(%)", 128, 1e6},
        {"batch", OPT_INTS, &(option_ints){o.batch, &o.n_batches, MAX_COMM_SIZES}, "LIST", "rows (%)", 1, 4096},
        CSV_OPTION(&o),
        {NULL}};
    const command_line c = {
        .usage = "punica bench comm [options]",
        .about = "What the ranks of a split model need to add up: at the end of a block, and for the logits.",
        .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    return choose(&named, &o.type, NULL, NULL, NULL, e) || comm_bench_run(&o, e) ? -1 : 0;
}

static int attention(int argc, char **argv, err *e)
{
    attention_options o = attention_options_default();
    choices named = choices_default();
    char shapes[SHAPE_NAMES];
    const option options[] = {SHAPE_OPTION(&o, shapes),
                              {"device", OPT_STRING, &o.device, "NAME", "cpu, cuda or cuda:N (%)"},
                              DTYPE_OPTION(&named, "activations and KvCache, on a GPU: f16, bf16"),
                              {"prompt", OPT_INTS, &(option_ints){o.length, &o.n_lengths, MAX_ATTENTION_SIZES}, "LIST",
                               "tokens of a prompt (%)", 1, MAX_CONTEXT},
                              {"context", OPT_INTS, &(option_ints){o.context, &o.n_contexts, MAX_ATTENTION_SIZES},
                               "LIST", "positions that are cached before them (%)", 0, MAX_CONTEXT},
                              {"prompts", OPT_INT, &o.prompts, "N", "such prompts in one step (%)", 1, 1024},
                              CSV_OPTION(&o),
                              {NULL}};
    const command_line c = {
        .usage = "punica bench attention [options]",
        .about = "Attention of prompts by itself: operations per second, beside those of large dense products.",
        .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed)
        return parsed;
    return choose(&named, &o.type, NULL, NULL, NULL, e) || attention_run(&o, e) ? -1 : 0;
}

static int mask(int argc, char **argv, err *e)
{
    mask_options o = mask_options_default();
    const option options[] = {{"vocab", OPT_INT, &o.vocab, "N", "tokens of a made-up vocabulary (%)", 300, 1e6},
                              {"batch", OPT_INT, &o.batch, "N", "outputs that follow a grammar together (%)", 1, 4096},
                              {"threads", OPT_INT, &o.threads, "N", "threads that compute masks (%)", 1, 64},
                              {"steps", OPT_INT, &o.steps, "N", "(%)", 1, 1e6},
                              {NULL}};
    const command_line c = {.usage = "punica bench mask [options]",
                            .about =
                                "What following a grammar costs: compiling it, and the masks of a batch for each step.",
                            .options = options};
    int parsed = options_parse(&c, argc, argv, e);
    if (parsed == 0)
        mask_run(&o);
    return parsed;
}

static const struct experiment {
    const char *name;
    int (*run)(int argc, char **argv, err *e);
    const char *about;
} experiments[] = {
    {"textgen", textgen, "text generation on one device, five workloads"},
    {"turns", turns, "conversations on one device, with and without the prefix cache and its host tier"},
    {"prompts", prompts, "prompts that come in while requests decode, and what those notice"},
    {"step", step, "a whole decode step, over the time its bytes or operations need"},
    {"layer", layer, "one transformer layer of it"},
    {"op", op, "the LoRA operator by itself, SGMV shrink and expand"},
    {"attention", attention, "attention of prompts by itself"},
    {"load", load, "an adapter loaded while others decode"},
    {"comm", comm_ops_alone, "sums over the ranks of a split model, by themselves"},
    {"mask", mask, "outputs that follow a grammar: compiling it, masks for each step"},
};

enum { N_EXPERIMENTS = sizeof experiments / sizeof *experiments };

static int help(int argc, char **argv, err *e)
{
    buf about = {0};
    buf_add_str(&about, "The experiments. punica bench EXPERIMENT --help tells more.\n");
    for (int i = 0; i < N_EXPERIMENTS; i++)
        buf_printf(&about, "\n  %-10s %s", experiments[i].name, experiments[i].about);
    const option options[] = {{0}};
    const command_line c = {.usage = "punica bench EXPERIMENT [options]", .about = about.data, .options = options};
    int status = options_parse(&c, argc, argv, e);
    buf_free(&about);
    return status ? status : err_set(e, "which experiment? see punica bench --help");
}

static int run_named(int argc, char **argv, err *e)
{
    if (argc < 2 || argv[1][0] == '-')
        return help(argc, argv, e);
    for (int i = 0; i < N_EXPERIMENTS; i++)
        if (strcmp(argv[1], experiments[i].name) == 0)
            return experiments[i].run(argc - 1, argv + 1, e);
    return err_set(e, "unknown experiment \"%s\"; see punica bench --help", argv[1]);
}

int cmd_bench(int argc, char **argv)
{
    err e;
    return run_named(argc, argv, &e) < 0 ? command_fail(e.msg) : 0;
}
