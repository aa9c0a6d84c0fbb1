/* cmd_bench.c - `punica bench`: the experiments' command lines */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/textgen.h"
#include "cli/commands.h"
#include "cli/options.h"

/* "all", or names separated by commas. */
static int choose_workloads(textgen_options *o, const char *list, err *e)
{
    char *copy = xstrdup(list), *save = NULL;
    int status = 0;
    for (char *name = strtok_r(copy, ",", &save); name && status == 0; name = strtok_r(NULL, ",", &save)) {
        workload w;
        if (strcmp(name, "all") == 0)
            for (int i = 0; i < N_WORKLOADS; i++)
                o->run[i] = true;
        else if ((status = workload_find(name, &w, e)) == 0)
            o->run[w] = true;
    }
    free(copy);
    for (int i = 0; i < N_WORKLOADS && status == 0; i++)
        if (o->run[i])
            return 0;
    return status ? status : err_set(e, "--workload names none");
}

static int choose_dtype(textgen_options *o, const char *name, err *e)
{
    static const dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 3; i++)
        if (strcasecmp(name, dtype_name(types[i])) == 0) {
            o->type = types[i];
            return 0;
        }
    return err_set(e, "unknown dtype \"%s\"; known: f16, bf16, f32", name);
}

static int textgen(int argc, char **argv)
{
    textgen_options o = textgen_options_default();
    const char *workloads = "all", *type = "f16";
    bool paper = false;
    const option options[] = {
        {"shape", OPT_STRING, &o.shape, "NAME", "small, tinyllama-1.1b, llama2-7b, llama2-13b, llama2-70b, llama3-8b, qwen2.5-7b"},
        {"model", OPT_STRING, &o.model_dir, "DIR", "a model directory instead of random weights"},
        {"dtype", OPT_STRING, &type, "TYPE", "of random weights and adapters: f16, bf16, f32 (f16)"},
        {"workload", OPT_STRING, &workloads, "LIST", "none, identical, uniform, skewed, distinct or all (all)"},
        {"requests", OPT_INT, &o.requests, "N", "(64)", 1, 1e6},
        {"batch", OPT_INT, &o.batch, "N", "requests running together (32)", 1, 4096},
        {"prompt-len", OPT_INT, &o.prompt_len, "N", "tokens of each prompt (32)", 1, 1e6},
        {"gen-len", OPT_INT, &o.gen_len, "N", "tokens made for each (64)", 1, 1e6},
        {"paper-lengths", OPT_FLAG, &paper, NULL, "the paper's length distribution instead"},
        {"prefills", OPT_INT, &o.max_prefills, "N", "prompts per model invocation (1)", 1, 4096},
        {"rank", OPT_INT, &o.rank, "N", "of the adapters, on all seven projections (16)", 1, 512},
        {"threads", OPT_INT, &o.threads, "N", "CPU threads (all cores)", 1, 1024},
        {"seed", OPT_U64, &o.seed, "N", "of weights, prompts and order (0)"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write the results there too"},
        {NULL}};
    const command_line c = {.usage = "punica bench textgen (--shape NAME | --model DIR) [options]",
                            .about = "Text generation with many adapters in one batch: tokens per second for each workload.",
                            .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed == 0 && !o.shape == !o.model_dir)
        parsed = err_set(&e, "give either --shape NAME or --model DIR");
    if (paper)
        o.prompt_len = o.gen_len = 0;
    if (parsed || choose_workloads(&o, workloads, &e) || choose_dtype(&o, type, &e) || textgen_run(&o, &e))
        return command_fail(e.msg);
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "textgen") == 0)
        return textgen(argc - 1, argv + 1);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        puts("usage: punica bench EXPERIMENT [options]\n\n  textgen    text generation on one device, five workloads\n\n"
             "punica bench EXPERIMENT --help tells more.");
        return 0;
    }
    return command_fail(argc < 2 ? "which experiment? see punica bench --help" : "unknown experiment; see punica bench --help");
}
