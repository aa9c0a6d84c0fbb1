/* source_args.h - the options of commands that fetch adapters: the disk cache, limits, networks */
#ifndef PUNICA_CLI_SOURCE_ARGS_H
#define PUNICA_CLI_SOURCE_ARGS_H

#include "cli/options.h"
#include "frontend/frontend.h"
#include "registry/aws_profile.h"
#include "registry/disk_cache.h"
#include "registry/fetch.h"

typedef struct {
    const char *cache;
    size_t cache_bytes;
    option_list networks;
    fetch_options fetch; /* .allowed is owned */
    aws_profile profile; /* `fetch` borrows from it */
    bool updates;        /* of a server: adapters may be changed by HTTP */
} source_args;

#define SOURCE_HELP                                                                                                    \
    "SOURCE is file:PATH (a directory or an archive), http(s)://... (an archive .tar, .tar.gz, .zip, or a folder),\n"  \
    "s3://BUCKET/KEY (endpoint, region and credentials from the usual AWS_ variables, or of AWS_PROFILE in ~/.aws),\n" \
    "or hf://OWNER/NAME[@REVISION] "                                                                                   \
    "(HF_ENDPOINT, HF_TOKEN). #sha256=HEX behind it: its digest must be this."

/* Rows of a table of options; a: a source_args * that source_args_init() has filled. */
#define SOURCE_OPTIONS(a) \
    {"cache", OPT_STRING, &(a)->cache, "DIR", "the host's disk cache of adapters"}, FETCH_OPTIONS(a)

/* The same without the cache, then each by itself. */
#define FETCH_OPTIONS(a)                                                                                  \
    CACHE_BYTES_OPTION(a), MAX_ADAPTER_BYTES_OPTION(a), FETCH_SECONDS_OPTION(a), STALL_SECONDS_OPTION(a), \
        ALLOW_NETWORK_OPTION(a)
#define CACHE_BYTES_HELP "limit of the disk cache; the least recently used adapters are removed; 0: no limit (%)"
#define MAX_ADAPTER_BYTES_HELP "size of an adapter, packed or unpacked; a larger one is refused (%)"
#define FETCH_SECONDS_HELP "time limit for fetching an adapter (%)"
#define STALL_SECONDS_HELP "a download that stays below 1 KB/s for so long is tried again (%)"
#define ALLOW_NETWORK_HELP "private network that adapters may be fetched from, as 10.0.0.0/8; repeat for more"
#define ADAPTER_FILES_HELP "folder below which adapters may be added from file: sources (none may)"
#define CACHE_BYTES_OPTION(a) {"cache-bytes", OPT_SIZE, &(a)->cache_bytes, "N", CACHE_BYTES_HELP, 0, 1e15}
#define MAX_ADAPTER_BYTES_OPTION(a) \
    {"max-adapter-bytes", OPT_SIZE, &(a)->fetch.max_bytes, "N", MAX_ADAPTER_BYTES_HELP, 1, 1e15}
#define FETCH_SECONDS_OPTION(a) {"fetch-seconds", OPT_DOUBLE, &(a)->fetch.seconds, "S", FETCH_SECONDS_HELP, 0.1, 1e6}
#define STALL_SECONDS_OPTION(a) \
    {"stall-seconds", OPT_DOUBLE, &(a)->fetch.stall_seconds, "S", STALL_SECONDS_HELP, 1, 1e5}
#define ALLOW_NETWORK_OPTION(a) {"allow-network", OPT_LIST, &(a)->networks, "NET", ALLOW_NETWORK_HELP}
#define ADAPTER_FILES_OPTION(a) {"adapter-files", OPT_STRING, &(a)->fetch.files_under, "DIR", ADAPTER_FILES_HELP}

/* What a fetcher is told; model_dir: a const char *. */
#define FETCHER_OPTIONS(a, model_dir)                                                           \
    {"model", OPT_STRING, &(model_dir), "DIR", "the base model; only its config.json is read"}, \
        ADAPTER_FILES_OPTION(a), SOURCE_OPTIONS(a)

void source_args_init(source_args *a);

/* Checks what was parsed; -1 with e set when --cache is missing or a network is wrong. */
int source_args_check(source_args *a, err *e);

/* Puts into f what a server with this cache (NULL: none) must know to fetch into it. f borrows from a and base. 0, or
 * -1 with e set. */
int source_args_apply(source_args *a, const char *cache, const model_config *base, frontend_options *f, err *e);
void source_args_deinit(source_args *a);

/* Returns the same as options of `punica fetcher`, [*n], for a runner with this cache and model; NULL without a cache.
 * Free with arg_list_free(). */
const char **source_args_list(const source_args *a, const char *cache, const char *model_dir, int *n);

#endif
