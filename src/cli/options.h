/* options.h - command line options from a table, with the help text made from the same table */
#ifndef PUNICA_CLI_OPTIONS_H
#define PUNICA_CLI_OPTIONS_H

#include <stdbool.h>

#include "base/err.h"

/* Help of --weights, wherever a model is loaded. */
#define WEIGHTS_HELP "stored, or fp8: the base's 16-bit weights in 8 bits (%)"

/* Of --kv, likewise. */
#define KV_HELP "auto, or fp8: keys and values in 8 bits (%)"

/* Of the KvCache, likewise. */
#define NO_PREFIX_CACHE_HELP "compute every prompt anew, also where requests begin alike"
#define KV_PAGES_HELP "KvCache pages of 16 tokens (as many as --memory-share and the batch allow)"
#define KV_HOST_HELP                                                                                                 \
    "host memory of a worker, pinned, for prefixes that its device has no room for; 0: none (on a GPU an eighth of " \
    "what is free, up to 4 GiB)"
#define MEMORY_SHARE_HELP "of a GPU's memory for weights and KvCache (%)"
#define MAX_BATCH_HELP \
    "requests running together on one device (as many as its memory has room for, up to 256; 32 on the CPU)"
#define ITL_TARGET_HELP \
    "milliseconds between tokens of running requests: so many rows of prompts are computed beside them (%)"
#define ADAPTER_SLOTS_HELP "adapters in a device's memory at once (64, or --max-batch if that is more)"
#define ADAPTER_HOST_BYTES_HELP "pinned host memory of each worker on a GPU for adapters that may come back (%)"
#define MAX_LEN_HELP "tokens of a request, which the KvCache must hold (what the model allows and the KvCache holds)"

/* Of --cache, where adapters are served. */
#define CACHE_HELP "a disk cache whose names (punica adapter add) are served, too"

/* Of --device and --tp, likewise. */
#define DEVICE_HELP "cpu, cuda, cuda:N or cuda:N-M (%)"
#define TP_HELP "split the model over N ranks: a GPU each (cuda:0-3), or all on one device (%)"

typedef enum { OPT_FLAG, OPT_INT, OPT_FLOAT, OPT_DOUBLE, OPT_SIZE, OPT_U64, OPT_STRING, OPT_LIST } option_kind;

/* A list collects every use of the option. items borrowed from argv; the array owned. */
typedef struct {
    const char **items;
    int n;
} option_list;

typedef struct {
    const char *name; /* without the dashes; a heading in the help when out is NULL */
    option_kind kind;
    void *out;        /* bool, int, float, double, size_t, uint64_t, const char *, option_list */
    const char *arg;  /* what stands after it in the help, e.g. "DIR" */
    const char *help; /* each '%' in it stands for the value that out has before the command line is read */
    double min, max;  /* for numbers; both 0: no limits, which sizes must have */
} option;

typedef struct {
    const char *usage;       /* "punica tokenize --model DIR [options]" */
    const char *about;       /* a paragraph */
    const option *options;   /* ends with name NULL */
    int n_positional;        /* how many words without dashes are expected */
    int n_optional;          /* how many of them may be missing */
    const char **positional; /* [n_positional], filled */
} command_line;

/* Reads the command line. 0: go on. 1: --help was printed, exit 0. -1: e says what is wrong, exit 2. */
int options_parse(const command_line *c, int argc, char **argv, err *e);

/* Prints "punica: message" on stderr; returns 2, the exit code of wrong usage and bad input. */
int command_fail(const char *message);

#endif
