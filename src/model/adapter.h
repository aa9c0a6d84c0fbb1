/* adapter.h - PEFT LoRA adapters: reading, checking against a base, moving to a backend
 *
 * adapter_open reads the files and checks everything. What cannot be served correctly is refused with a reason, and
 * nothing is ignored. adapter_to_lora makes the form the SGMV ops read. */
#ifndef PUNICA_MODEL_ADAPTER_H
#define PUNICA_MODEL_ADAPTER_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/digest.h"
#include "base/digest_memo.h"
#include "model/config.h"
#include "model/lora.h"
#include "model/model.h"

/* The files of an adapter, relative to its folder, in the order in which its digest covers them. */
#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"

#define ADAPTER_MAX_CONFIG ((size_t)4 << 20) /* bytes that are read of the first */

typedef struct adapter adapter;

/* What `punica adapter check` shows. */
typedef struct {
    int rank_min, rank_max;
    double scale_min, scale_max; /* lora_alpha / rank, or / sqrt(rank) with rsLoRA */
    bool rslora;
    int n_projections, n_layers;  /* adapted projections in all, layers that have any */
    bool has[N_SITES][MAX_PARTS]; /* [site][part] adapted in some layer */
    size_t n_params, bytes;       /* true ranks, stored dtype */
    dtype type;
    bool mixed_types;        /* some tensors are of other types than `type` */
    char digest[DIGEST_HEX]; /* sha256 of configuration and then weights, hex */
    const char *base_name;   /* base_model_name_or_path or "", borrowed */
} adapter_info;

/* Reads the files of an adapter in dir and checks them against the base's shape. NULL with e set; free with
 * adapter_close(). */
adapter *adapter_open(const char *dir, const model_config *base, err *e);

/* The same, but the digest of files that have not changed since memo saw them is not computed again, which is most of
 * the work. memo may be NULL. */
adapter *adapter_open_again(const char *dir, const model_config *base, digest_memo *memo, err *e);
void adapter_close(adapter *a);

/* Checks the same by the files' headers alone: all but whether the weights are finite. -1 with e set. */
int adapter_check_headers(const char *dir, const model_config *base, err *e);

/* Opens an adapter from the contents of the two files, weights 8-byte aligned and borrowed until the adapter is closed;
 * name stands for the directory in messages. NULL with e set. */
adapter *adapter_open_memory(const char *name, const char *config, size_t n_config, const void *weights,
                             size_t n_weights, const model_config *base, err *e);

const adapter_info *adapter_describe(const adapter *a);

/* Returns the rank of one projection in one layer, 0 when it is not adapted. */
int adapter_rank(const adapter *a, int layer, int site, int part);

/* Returns the most bytes that one of n_ranks holds of it, in the stored types. */
size_t adapter_rank_bytes(const adapter *a, int n_ranks);

/* Makes the weights in host memory as a backend wants them: in its types, lora_B transposed. Any thread may call it.
 * Result owned by the caller; free with lora_free(). */
lora *adapter_to_lora(const adapter *a, const backend *be);

#endif
