/* sgmv.h - SGMV on a GPU: its operands in device memory, and the launchers
 *
 * For the backend's ops and for libpunica_kernels.so (src/kernels). C, for .c and .cu alike. */
#ifndef PUNICA_BACKEND_CUDA_SGMV_H
#define PUNICA_BACKEND_CUDA_SGMV_H

#include "backend/batch.h"
#include "backend/cuda/launch.h"

/* A lora_site as kernels read it; lora.table is [n_sites] of these in device memory. a and b are of the backend's act
 * type: a [rank, in], b [rank, out]. rank 0: the part is not adapted. */
typedef struct {
    const void *a[MAX_PARTS], *b[MAX_PARTS];
    int rank[MAX_PARTS];
    float scale[MAX_PARTS];
} lora_entry;

/* Adjacent rows of one adapter: up to SGMV_TILE; in invocations with prompt_tiles up to PROMPT_TILE, and then tiles
 * cover all rows. */
#define SGMV_TILE 16
#define PROMPT_TILE 64
typedef struct {
    const lora_entry *table; /* [n_sites], NULL: rows of the base model */
    int row, n_rows;
} sgmv_tile;

/* The tiles of a batch, for launchers. Grids are sized for max_tiles, so that a recorded launch serves any batch with
 * no more tiles; kernels read the number of tiles. */
typedef struct {
    const sgmv_tile *tile; /* [*n_tiles] in device memory */
    const int *n_tiles;    /* in device memory */
    int max_tiles;
    bool prompt_tiles; /* tiles are of up to PROMPT_TILE rows, and max_tiles is their exact number */
    bool heavy;        /* an adapter has a large rank, so ranks may differ much: grids are finer */
} sgmv_tiles;

#ifdef __cplusplus
extern "C" {
#endif
/* v = scale * x A^T, with the A of each row's adapter at `site`; x: F16 or BF16 as A, v: F32, see backend.h. */
void sgmv_launch_shrink(const launch_context *, const sgmv_tiles *, tensor *v, const tensor *x, int site);
/* y += v B, for n_parts parts with out[i] columns each; y: F16 or BF16 as B. */
void sgmv_launch_expand(const launch_context *, const sgmv_tiles *, tensor *y, const tensor *v, int site, int n_parts,
                        const int *out);
#ifdef __cplusplus
}
#endif

#endif
