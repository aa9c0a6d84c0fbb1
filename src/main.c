/* main.c - the table of subcommands */
#include <stdio.h>
#include <string.h>

#include "backend/devices.h"
#include "cli/commands.h"
#include "commit.h"
#include "net/secret.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"serve", cmd_serve, "OpenAI's API for a base model and its adapters on this host; without options, the demo"},
    {"generate", cmd_generate, "complete prompts, for many adapters in one batch, without a server"},
    {"chat", cmd_chat, "a conversation with a model or one of its adapters in the terminal, without a server"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"template", cmd_template, "conversations to prompts, by the model's chat template"},
    {"adapter", cmd_adapter,
     "adapters: whether one fits a base model; from URLs into a disk cache; their names and versions"},
    {"tenant", cmd_tenant, "tenants, their keys, limits, adapters and usage: tenant add, key add, limit, usage, ..."},
    {"frontend", cmd_frontend, "of a cluster: OpenAI's API for clients, by way of the scheduler"},
    {"scheduler", cmd_scheduler, "of a cluster: gives the requests of frontends to the GPUs of runners"},
    {"runner", cmd_runner, "of a cluster: the GPUs of this host, a worker process each"},
    {"bench", cmd_bench, "experiments on one device; bench --help lists them"},
    {"simulate", cmd_simulate, "a cluster in virtual time, with the real scheduler: the paper's hour, and faults"},
    {"worker", cmd_worker, NULL},   /* for runners */
    {"fetcher", cmd_fetcher, NULL}, /* the same */
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
    fprintf(out, "punica " PUNICA_VERSION
                 ": one base model, many LoRA adapters, one batch\n\nusage: punica COMMAND [options]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].help)
            fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\npunica COMMAND --help tells more.\n");
}

/* Prints the version, the commit that it was built from, and the devices that this build can run on. */
static void print_version(void)
{
    puts(PUNICA_COMMIT[0] ? "punica " PUNICA_VERSION " (" PUNICA_COMMIT ")" : "punica " PUNICA_VERSION);
    buf devices = {0};
    backend_list_devices(&devices);
    fputs(devices.data, stdout);
    buf_free(&devices);
}

/* Returns the exit code: a full disk or a closed pipe must not look like success. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "punica: cannot write the output\n");
    return 2;
}

int main(int argc, char **argv)
{
    secret_hide_environment();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        print_version();
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "punica: unknown command \"%s\"; see punica --help\n", argv[1]);
    return 2;
}
