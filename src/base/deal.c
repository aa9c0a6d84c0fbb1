/* deal.c - see deal.h: a heap of workers, the one with least to do on top */
#include "base/deal.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct { long load; int last; } hand;   /* what a worker has to do in all; the job dealt to it last */

static bool has_less(const hand *a, const hand *b)
{
    return a->load != b->load ? a->load < b->load : a->last < b->last;
}

/* Let the hand at i sink to where those below have more. */
static void sink(hand *heap, int n, int i)
{
    hand h = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && has_less(&heap[child + 1], &heap[child]))
            child++;
        if (!has_less(&heap[child], &h))
            break;
        heap[i] = heap[child];
    }
    heap[i] = h;
}

void deal(const int *cost, int group, int n, int n_workers, int *next)
{
    for (int j = 0; j < n; j++)
        next[j] = n;
    if (n <= n_workers)
        return;
    hand *heap = XNEW_ARRAY(hand, (size_t)n_workers);
    for (int w = 0; w < n_workers; w++)
        heap[w] = (hand){cost[w / group], w};
    for (int i = n_workers / 2 - 1; i >= 0; i--)
        sink(heap, n_workers, i);
    for (int j = n_workers; j < n; j++) {
        next[heap->last] = j;
        *heap = (hand){heap->load + cost[j / group], j};
        sink(heap, n_workers, 0);
    }
    free(heap);
}
