/* engine_args.h - the options of an engine: rows for the tables of all commands that have one
 *
 * `a` points to a struct whose fields have the options' names; what they hold is the default. Where 0 stands for "as
 * the engine chooses", it is below the option's limits. */
#ifndef PUNICA_CLI_ENGINE_ARGS_H
#define PUNICA_CLI_ENGINE_ARGS_H

#include "backend/group.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"

/* Defaults, as weights_form_find() and kv_form_find() know them. */
#define WEIGHTS_DEFAULT "stored"
#define KV_DEFAULT "auto"

#define MIN_MEMORY_SHARE 0.01

#define MODEL_HELP "the base model: a Hugging Face model directory"
#define ADAPTERS_HELP "a directory of adapters, each in a folder of its name"
#define ADAPTER_HELP "a PEFT LoRA adapter; repeat for more"
#define CACHE_HELP "a disk cache whose names (punica adapter add) are served, too"
#define DEVICE_HELP "cpu, cuda, cuda:N or cuda:N-M (%)"
#define TP_HELP "split the model over N GPUs (cuda:0-3), or in N ranks on one device (%)"
#define WEIGHTS_HELP "the base's weights: stored (as its files have them), or fp8 (16-bit weights in 8 bits) (%)"
#define KV_HELP "keys and values: auto (as activations), or fp8 (8 bits) (%)"
#define MAX_BATCH_HELP "requests that run together on one device (what its memory has room for, " BATCH_LIMITS ")"
#define BATCH_LIMITS "up to " AS_TEXT(GPU_BATCH) ", on the CPU up to " AS_TEXT(CPU_BATCH)
#define ITL_TARGET_HELP \
    "target for the milliseconds between two tokens of a request: long prompts are computed in pieces beside it (%)"
#define THREADS_HELP "CPU threads (all cores; workers on one CPU share them out)"
#define MAX_LEN_HELP                                                                                              \
    "tokens of a request, prompt and output, which the KvCache must hold (what the model allows and the KvCache " \
    "holds)"
#define MEMORY_SHARE_HELP "share of a GPU's memory for weights and KvCache (%)"
#define KV_PAGES_HELP "KvCache pages of " AS_TEXT(KV_PAGE_LEN) " tokens (as many as --memory-share and the batch allow)"
#define NO_PREFIX_CACHE_HELP "compute every prompt from its beginning, even where requests begin alike"
#define KV_HOST_HELP                                                                                   \
    "pinned host memory of a worker, for prefixes that its device has no room for; 0: none (on a GPU " \
    "an eighth of what is free, up to " AS_TEXT(KV_HOST_AUTO_GIB) " GiB)"
#define SLOTS_HELP "adapters in a device's memory at once (" AS_TEXT(USUAL_SLOTS) ", or --max-batch if that is more)"
#define ADAPTER_HOST_HELP "pinned host memory of each worker on a GPU, for adapters that the GPU has no slot for (%)"

#define MODEL_OPTION(a) {"model", OPT_STRING, &(a)->model_dir, "DIR", MODEL_HELP}
#define ADAPTERS_OPTION(a) {"adapters", OPT_STRING, &(a)->adapters_dir, "DIR", ADAPTERS_HELP}
#define ADAPTER_OPTION(list) {"adapter", OPT_LIST, list, "NAME=DIR", ADAPTER_HELP}
#define CACHED_OPTION(a) {"cache", OPT_STRING, &(a)->cache, "DIR", CACHE_HELP}
#define DEVICE_OPTION(a) {"device", OPT_STRING, &(a)->device, "NAME", DEVICE_HELP}
#define TP_OPTION(a) {"tp", OPT_INT, &(a)->tp, "N", TP_HELP, 1, MAX_RANKS}
#define WEIGHTS_OPTION(a) {"weights", OPT_STRING, &(a)->weights, "FORM", WEIGHTS_HELP}
#define KV_OPTION(a) {"kv", OPT_STRING, &(a)->kv, "FORM", KV_HELP}
#define MAX_BATCH_OPTION(a) {"max-batch", OPT_INT, &(a)->max_batch, "N", MAX_BATCH_HELP, 1, 4096}
#define ITL_TARGET_OPTION(a) {"itl-target", OPT_INT, &(a)->itl_target, "MS", ITL_TARGET_HELP, 1, 60000}
#define THREADS_OPTION(a) {"threads", OPT_INT, &(a)->threads, "N", THREADS_HELP, 1, 1024}
#define MAX_LEN_OPTION(a) {"max-model-len", OPT_INT, &(a)->max_len, "N", MAX_LEN_HELP, 1, 1e9}
#define MEMORY_SHARE_OPTION(a) \
    {"memory-share", OPT_DOUBLE, &(a)->memory_share, "SHARE", MEMORY_SHARE_HELP, MIN_MEMORY_SHARE, 0.99}
#define KV_PAGES_OPTION(a) {"kv-pages", OPT_INT, &(a)->kv_pages, "N", KV_PAGES_HELP, 1, 1e8}
#define NO_PREFIX_CACHE_OPTION(a) {"no-prefix-cache", OPT_FLAG, &(a)->no_prefix_cache, NULL, NO_PREFIX_CACHE_HELP}
#define KV_HOST_OPTION(a) {"kv-host-bytes", OPT_SIZE, &(a)->host_bytes, "N", KV_HOST_HELP, 0, 1e15}
#define SLOTS_OPTION(a) {"adapter-slots", OPT_INT, &(a)->adapter_slots, "N", SLOTS_HELP, 1, 65536}
#define ADAPTER_HOST_OPTION(a) \
    {"adapter-host-bytes", OPT_SIZE, &(a)->adapter_host_bytes, "N", ADAPTER_HOST_HELP, 4096, 1e12}

/* What a runner tells all of its workers; adapters: an option_list *. */
#define WORKER_OPTIONS(a, adapters)                                                                                   \
    MODEL_OPTION(a), ADAPTERS_OPTION(a), ADAPTER_OPTION(adapters), CACHED_OPTION(a), TP_OPTION(a), WEIGHTS_OPTION(a), \
        KV_OPTION(a), MAX_BATCH_OPTION(a), ITL_TARGET_OPTION(a), THREADS_OPTION(a), MAX_LEN_OPTION(a),                \
        MEMORY_SHARE_OPTION(a), KV_PAGES_OPTION(a), NO_PREFIX_CACHE_OPTION(a), KV_HOST_OPTION(a), SLOTS_OPTION(a),    \
        ADAPTER_HOST_OPTION(a)

#endif
