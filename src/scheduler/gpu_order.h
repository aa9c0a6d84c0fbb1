/* gpu_order.h - GPUs by working set, and which of the fullest has room
 *
 * A treap keyed by (working set, rank of the uuid) in which every node knows the largest room below it, so that "the
 * GPU with the largest working set that has room for n tokens, ties to the highest uuid" is one walk from the root.
 * Nodes are embedded in what is ordered, and borrowed while they are in. */
#ifndef PUNICA_SCHEDULER_GPU_ORDER_H
#define PUNICA_SCHEDULER_GPU_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* What a GPU has room for: any request, one that must not meet a suspect, or one that must be alone. */
typedef enum { ROOM_ANY, ROOM_SUSPECT, ROOM_ALONE, N_ROOMS } room_kind;

typedef struct gpu_node gpu_node;
struct gpu_node {
    int n_running;
    uint64_t rank;         /* of its uuid: higher for a higher one */
    int64_t room[N_ROOMS]; /* tokens it could take in one more request; 0: none */
    int64_t most[N_ROOMS]; /* largest room in its subtree */
    uint64_t priority;
    gpu_node *left, *right;
};

typedef struct { gpu_node *root; } gpu_order; /* zero-initialise */

/* Sets the working set and the room of a GPU. A GPU without room is not kept in the tree: in a full cluster that is all
 * but empty. The caller sets rank and priority (any number, for the balance) before the first call; ranks may change
 * later as long as they keep their order. */
void gpu_order_set(gpu_order *o, gpu_node *n, int n_running, const int64_t room[N_ROOMS]);
void gpu_order_remove(gpu_order *o, gpu_node *n);

/* Returns the last GPU in order with room for n_tokens, or NULL. */
gpu_node *gpu_order_find(const gpu_order *o, room_kind kind, int64_t n_tokens);

/* Returns whether a stands before b. */
bool gpu_order_before(const gpu_node *a, const gpu_node *b);

/* Aborts unless order and rooms are right. Returns how many GPUs have room. */
int gpu_order_check(const gpu_order *o);

#endif
