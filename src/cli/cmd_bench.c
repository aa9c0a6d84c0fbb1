/* cmd_bench.c - `punica bench`: the experiments' command lines */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
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
#include "backend/group.h"
#include "cli/commands.h"
#include "cli/local_engine.h"
#include "cli/options.h"

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

static int textgen(int argc, char **argv)
{
    textgen_options o = textgen_options_default();
    o.itl_target = default_itl_target();
    const char *workloads = "all", *type = "f16", *weights = "stored", *kv = "auto";
    bool paper = false;
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME",
         "small, tinyllama-1.1b, llama2-7b, llama2-13b, llama2-70b, llama3-8b, qwen2.5-7b"},
        {"model", OPT_STRING, &o.model_dir, "DIR", "a model directory instead of random weights"},
        {"dtype", OPT_STRING, &type, "TYPE", "of random weights and adapters: f16, bf16, f32 (%)"},
        {"weights", OPT_STRING, &weights, "FORM", WEIGHTS_HELP},
        {"kv", OPT_STRING, &kv, "FORM", KV_HELP},
        {"workload", OPT_STRING, &workloads, "LIST", "none, identical, uniform, skewed, distinct or all (%)"},
        {"requests", OPT_INT, &o.requests, "N", "(%)", 1, 1e6},
        {"batch", OPT_INT, &o.batch, "N", "requests running together (%)", 1, 4096},
        {"prompt-len", OPT_INT, &o.prompt_len, "N", "tokens of each prompt (%)", 1, 1e6},
        {"gen-len", OPT_INT, &o.gen_len, "N", "tokens made for each (%)", 1, 1e6},
        {"paper-lengths", OPT_FLAG, &paper, NULL, "the paper's length distribution instead"},
        {"prefill-rows", OPT_INT, &o.prefill_rows, "N",
         "rows of prompts per invocation at most (what the device likes)", 1, 65536},
        {"itl-target", OPT_INT, &o.itl_target, "MS", ITL_TARGET_HELP, 1, 60000},
        {"rank", OPT_INT, &o.rank, "N", "of the adapters, on all seven projections (%)", 1, 512},
        {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &o.tp, "N", TP_HELP, 1, MAX_RANKS},
        {"threads", OPT_INT, &o.threads, "N", "CPU threads (all cores)", 1, 1024},
        {"seed", OPT_U64, &o.seed, "N", "of weights, prompts and order (%)"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {.usage = "punica bench textgen (--shape NAME | --model DIR) [options]",
                            .about =
                                "Text generation with many adapters in one batch: tokens per second for each workload.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed == 0 && !o.shape == !o.model_dir)
        parsed = err_set(&e, "give either --shape NAME or --model DIR");
    if (paper)
        o.prompt_len = o.gen_len = 0;
    if (parsed || choose_workloads(o.run, workloads, &e) || choose_dtype(&o.type, type, &e) ||
        weights_form_find(weights, &o.form, &e) || kv_form_find(kv, &o.kv, &e) || textgen_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int turns(int argc, char **argv)
{
    turns_options o = turns_options_default();
    const char *type = "f16", *weights = "stored", *kv = "auto", *modes = "all";
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME", "as for textgen"},
        {"model", OPT_STRING, &o.model_dir, "DIR", "a model directory instead of random weights"},
        {"dtype", OPT_STRING, &type, "TYPE", "of random weights and adapters: f16, bf16, f32 (%)"},
        {"weights", OPT_STRING, &weights, "FORM", WEIGHTS_HELP},
        {"kv", OPT_STRING, &kv, "FORM", KV_HELP},
        {"conversations", OPT_INT, &o.conversations, "N", "(%)", 1, 1e6},
        {"turns", OPT_INT, &o.turns, "N", "of each (%)", 1, 1e4},
        {"at-once", OPT_INT, &o.at_once, "N", "requests running together (%)", 1, 4096},
        {"adapters", OPT_INT, &o.adapters, "N",
         "that conversations share out, each with a system prompt of its own; 0: the base model (%)", 0, 256},
        {"rank", OPT_INT, &o.rank, "N", "of the adapters, on all seven projections (%)", 1, 512},
        {"system-len", OPT_INT, &o.system_len, "N", "tokens of a system prompt (%)", 0, 1e6},
        {"user-len", OPT_INT, &o.user_len, "N", "tokens that are said in a turn (%)", 1, 1e6},
        {"gen-len", OPT_INT, &o.gen_len, "N", "tokens of each answer (%)", 1, 1e6},
        {"cache", OPT_STRING, &modes, "LIST",
         "off, device, host or all: no prefix cache, one on the device, one with host memory (%)"},
        {"rounds", OPT_INT, &o.rounds, "N", "how often each is run, by turns (%)", 1, 100},
        {"kv-pages", OPT_INT, &o.kv_pages, "N", KV_PAGES_HELP, 1, 1e8},
        {"kv-host-bytes", OPT_SIZE, &o.host_bytes, "N", KV_HOST_HELP, 0, 1e15},
        {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &o.tp, "N", TP_HELP, 1, MAX_RANKS},
        {"threads", OPT_INT, &o.threads, "N", "CPU threads (all cores)", 1, 1024},
        {"seed", OPT_U64, &o.seed, "N", "of weights and prompts (%)"},
        {NULL}};
    const command_line c = {.usage = "punica bench turns (--shape NAME | --model DIR) [options]",
                            .about = "Conversations of several turns, with and without the prefix cache: time to first "
                                     "token, throughput, and how much\n"
                                     "was cached of what a cache without bounds would have.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed == 0 && !o.shape == !o.model_dir)
        parsed = err_set(&e, "give either --shape NAME or --model DIR");
    if (parsed || choose_dtype(&o.type, type, &e) || weights_form_find(weights, &o.form, &e) ||
        kv_form_find(kv, &o.kv, &e) || turns_modes_find(modes, o.run, &e) || turns_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

/* list: numbers separated by commas; NULL leaves the default. */
static int choose_sizes(int *sizes, int *n, int most_sizes, const char *name, const char *list, long least, long most,
                        err *e)
{
    if (!list)
        return 0;
    *n = 0;
    for (const char *at = list; *at;) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || value < least || value > most || *n == most_sizes)
            return err_set(e, "--%s takes up to %d numbers from %ld to %ld separated by commas, not \"%s\"", name,
                           most_sizes, least, most, list);
        sizes[(*n)++] = (int)value;
        at = *end ? end + 1 : end;
    }
    return *n ? 0 : err_set(e, "--%s names none", name);
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

static int op(int argc, char **argv)
{
    op_options o = op_options_default();
    const char *workloads = "all", *type = "f16", *dims = NULL, *ranks = NULL, *batches = NULL;
    const option options[] = {
        {"device", OPT_STRING, &o.device, "NAME", "cpu, cuda or cuda:N (%)"},
        {"dtype", OPT_STRING, &type, "TYPE", "of activations (on a GPU) and adapters: f16, bf16, f32 (%)"},
        {"dims", OPT_STRING, &dims, "LIST", "input x output dimensions (4096x4096)"},
        {"rank", OPT_STRING, &ranks, "LIST", "(16)"},
        {"batch", OPT_STRING, &batches, "LIST", "rows (1,2,4,8,16,32,64)"},
        {"workload", OPT_STRING, &workloads, "LIST", "identical, uniform, skewed, distinct or all (%)"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {.usage = "punica bench op [options]",
                            .about =
                                "The LoRA operator by itself: SGMV shrink and expand, on weights that no cache holds.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed || choose_workloads(o.run, workloads, &e) || choose_dtype(&o.type, type, &e) ||
        choose_dims(&o, dims, &e) ||
        choose_sizes(o.rank, &o.n_ranks, MAX_OP_SIZES, "rank", ranks, 1, LORA_MAX_RANK, &e) ||
        choose_sizes(o.batch, &o.n_batches, MAX_OP_SIZES, "batch", batches, 1, MAX_OP_ROWS, &e) || op_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int step_or_layer(int argc, char **argv, bool per_layer)
{
    step_options o = step_options_default(per_layer);
    const char *workloads = "all", *type = "f16", *batches = NULL, *contexts = NULL, *prompts = NULL, *ranks = NULL;
    const char *weights = "stored", *kv = "auto";
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME", "as for textgen (%)"},
        {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &o.tp, "N", TP_HELP, 1, MAX_RANKS},
        {"dtype", OPT_STRING, &type, "TYPE", "of weights and adapters: f16, bf16, f32 (%)"},
        {"weights", OPT_STRING, &weights, "FORM", WEIGHTS_HELP},
        {"kv", OPT_STRING, &kv, "FORM", KV_HELP},
        {"rank", OPT_STRING, &ranks, "LIST", "of the adapters, which take them in turn, on all seven projections (16)"},
        {"batch", OPT_STRING, &batches, "LIST", per_layer ? "sequences (1,2,4,8,16,32)" : "sequences (1,8,32,64,128)"},
        {"context", OPT_STRING, &contexts, "LIST", "cached positions of each (512,2048)"},
        {"prompt", OPT_STRING, &prompts, "LIST", "tokens of a prompt that is taken in by the same step (0)"},
        {"workload", OPT_STRING, &workloads, "LIST", "none, identical, uniform, skewed, distinct or all (%)"},
        {"masked", OPT_FLAG, &o.masked, NULL, "draw by masks, as of outputs that follow a grammar"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {
        .usage = per_layer ? "punica bench layer [options]" : "punica bench step [options]",
        .about = per_layer
                     ? "Time of one transformer layer in a decode step, over the time its bytes or operations need."
                     : "Time of whole decode steps, tokens drawn, over the time their bytes or operations need.",
        .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed || choose_workloads(o.run, workloads, &e) || choose_dtype(&o.type, type, &e) ||
        weights_form_find(weights, &o.form, &e) || kv_form_find(kv, &o.kv, &e) ||
        choose_sizes(o.rank, &o.n_ranks, MAX_DECODE_RANKS, "rank", ranks, 1, LORA_MAX_RANK, &e) ||
        choose_sizes(o.batch, &o.n_batches, MAX_STEP_SIZES, "batch", batches, 1, 4096, &e) ||
        choose_sizes(o.context, &o.n_contexts, MAX_STEP_SIZES, "context", contexts, 1, 131072, &e) ||
        choose_sizes(o.prompt, &o.n_prompts, MAX_STEP_SIZES, "prompt", prompts, 0, 131072, &e) || step_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int prompts(int argc, char **argv)
{
    prompts_options o = prompts_options_default();
    const char *type = "f16", *weights = "stored", *kv = "auto", *lens = NULL, *adapters = NULL;
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME", "as for textgen"},
        {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &o.tp, "N", TP_HELP, 1, MAX_RANKS},
        {"threads", OPT_INT, &o.threads, "N", "CPU threads (all cores)", 1, 1024},
        {"dtype", OPT_STRING, &type, "TYPE", "of weights and adapters: f16, bf16, f32 (f16)"},
        {"weights", OPT_STRING, &weights, "FORM", WEIGHTS_HELP},
        {"kv", OPT_STRING, &kv, "FORM", KV_HELP},
        {"streams", OPT_INT, &o.streams, "N", "requests that decode meanwhile (32)", 0, 4096},
        {"context", OPT_INT, &o.context, "N", "tokens that each of them begins with (512)", 1, 131072},
        {"prompts", OPT_INT, &o.prompts, "N", "that come in at once (4)", 1, 4096},
        {"len", OPT_STRING, &lens, "LIST", "tokens of each, one length after the other (1024,8192,32768)"},
        {"adapters", OPT_STRING, &adapters, "LIST", "that streams and prompts share out; 0: the base model (0,1,8)"},
        {"rank", OPT_INT, &o.rank, "N", "of the adapters, on all seven projections (16)", 1, LORA_MAX_RANK},
        {"itl-target", OPT_DOUBLE, &o.itl_target, "MS", ITL_TARGET_HELP, 1, 1e5},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {.usage = "punica bench prompts --shape NAME [options]",
                            .about = "Prompts that come in while requests decode: tokens per second, when their first "
                                     "tokens come, and the time between\ntokens of those that decode.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed == 0 && !o.shape)
        parsed = err_set(&e, "--shape NAME is needed");
    if (parsed || choose_dtype(&o.type, type, &e) || weights_form_find(weights, &o.form, &e) ||
        kv_form_find(kv, &o.kv, &e) || choose_sizes(o.len, &o.n_lens, MAX_PROMPT_SIZES, "len", lens, 1, 131072, &e) ||
        choose_sizes(o.adapters, &o.n_adapters, MAX_PROMPT_SIZES, "adapters", adapters, 0, 256, &e) ||
        prompts_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int load(int argc, char **argv)
{
    load_options o = load_options_default();
    const char *type = "f16", *weights = "stored";
    const option options[] = {{"shape", OPT_STRING, &o.shape, "NAME", "as for textgen (%)"},
                              {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
                              {"tp", OPT_INT, &o.tp, "N", TP_HELP, 1, MAX_RANKS},
                              {"dtype", OPT_STRING, &type, "TYPE", "of weights and adapters: f16, bf16, f32 (%)"},
                              {"weights", OPT_STRING, &weights, "FORM", WEIGHTS_HELP},
                              {"rank", OPT_INT, &o.rank, "N", "of the adapters, on all seven projections (%)", 1, 512},
                              {"batch", OPT_INT, &o.batch, "N", "sequences that decode meanwhile (%)", 1, 4096},
                              {"context", OPT_INT, &o.context, "N", "cached positions of each (%)", 1, 131072},
                              {NULL}};
    const command_line c = {.usage = "punica bench load [options]",
                            .about = "What loading an adapter costs those who decode meanwhile, and how long it takes.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed || choose_dtype(&o.type, type, &e) || weights_form_find(weights, &o.form, &e) || load_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int comm_ops_alone(int argc, char **argv)
{
    comm_bench_options o = comm_bench_options_default();
    const char *type = "f16", *batches = NULL;
    const option options[] = {
        {"device", OPT_STRING, &o.device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &o.tp, "N", "ranks: a GPU each (cuda:0-3), or all on one device (%)", 2, MAX_RANKS},
        {"dtype", OPT_STRING, &type, "TYPE", "of activations, on a GPU: f16, bf16 (%)"},
        {"hidden", OPT_INT, &o.hidden, "N", "numbers of a row (%)", 8, 65536},
        {"vocab", OPT_INT, &o.vocab, "N", "(%)", 128, 1e6},
        {"batch", OPT_STRING, &batches, "LIST", "rows (1,8,16,32,64,128,256)"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {
        .usage = "punica bench comm [options]",
        .about = "What the ranks of a split model need to add up: at the end of a block, and for the logits.",
        .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed || choose_dtype(&o.type, type, &e) ||
        choose_sizes(o.batch, &o.n_batches, MAX_COMM_SIZES, "batch", batches, 1, 4096, &e) || comm_bench_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int attention_alone(int argc, char **argv)
{
    attention_options o = attention_options_default();
    const char *type = "f16", *lengths = NULL, *contexts = NULL;
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME", "as for textgen (%)"},
        {"device", OPT_STRING, &o.device, "NAME", "cpu, cuda or cuda:N (%)"},
        {"dtype", OPT_STRING, &type, "TYPE", "of activations and KvCache, on a GPU: f16, bf16 (%)"},
        {"prompt", OPT_STRING, &lengths, "LIST", "tokens of a prompt (512,1024,2048,4096,8192,16384,32768)"},
        {"context", OPT_STRING, &contexts, "LIST", "positions that are cached before them (0)"},
        {"prompts", OPT_INT, &o.prompts, "N", "such prompts in one step (%)", 1, 1024},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {
        .usage = "punica bench attention [options]",
        .about = "Attention of prompts by itself: operations per second, beside those of large dense products.",
        .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed || choose_dtype(&o.type, type, &e) ||
        choose_sizes(o.length, &o.n_lengths, MAX_ATTENTION_SIZES, "prompt", lengths, 1, 131072, &e) ||
        choose_sizes(o.context, &o.n_contexts, MAX_ATTENTION_SIZES, "context", contexts, 0, 131072, &e) ||
        attention_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

static int mask(int argc, char **argv)
{
    mask_options o = mask_options_default();
    const option options[] = {{"vocab", OPT_INT, &o.vocab, "N", "tokens of a made-up vocabulary (%)", 300, 1e6},
                              {"batch", OPT_INT, &o.batch, "N", "outputs that follow a grammar together (%)", 1, 4096},
                              {"threads", OPT_INT, &o.threads, "N", "that compute masks (%)", 1, 64},
                              {"steps", OPT_INT, &o.steps, "N", "(%)", 1, 1e6},
                              {NULL}};
    const command_line c = {.usage = "punica bench mask [options]",
                            .about =
                                "What following a grammar costs: compiling it, and the masks of a batch for each step.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed < 0)
        return command_fail(e.msg);
    if (parsed == 0)
        mask_run(&o);
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    const char *what = argc >= 2 ? argv[1] : "";
    if (strcmp(what, "textgen") == 0)
        return textgen(argc - 1, argv + 1);
    if (strcmp(what, "turns") == 0)
        return turns(argc - 1, argv + 1);
    if (strcmp(what, "prompts") == 0)
        return prompts(argc - 1, argv + 1);
    if (strcmp(what, "load") == 0)
        return load(argc - 1, argv + 1);
    if (strcmp(what, "comm") == 0)
        return comm_ops_alone(argc - 1, argv + 1);
    if (strcmp(what, "attention") == 0)
        return attention_alone(argc - 1, argv + 1);
    if (strcmp(what, "mask") == 0)
        return mask(argc - 1, argv + 1);
    if (strcmp(what, "op") == 0)
        return op(argc - 1, argv + 1);
    if (strcmp(what, "step") == 0 || strcmp(what, "layer") == 0)
        return step_or_layer(argc - 1, argv + 1, what[0] == 'l');
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        puts("usage: punica bench EXPERIMENT [options]\n\n"
             "  textgen    text generation on one device, five workloads\n"
             "  turns      conversations on one device, with and without the prefix cache and its host tier\n"
             "  prompts    prompts that come in while requests decode, and what those notice\n"
             "  step       a whole decode step, over the time its bytes or operations need\n"
             "  layer      one transformer layer of it\n"
             "  op         the LoRA operator by itself, SGMV shrink and expand\n"
             "  attention  attention of prompts by itself\n"
             "  load       an adapter loaded while others decode\n"
             "  comm       sums over the ranks of a split model, by themselves\n"
             "  mask       outputs that follow a grammar: compiling it, masks for each step\n\n"
             "punica bench EXPERIMENT --help tells more.");
        return 0;
    }
    return command_fail(argc < 2 ? "which experiment? see punica bench --help"
                                 : "unknown experiment; see punica bench --help");
}
