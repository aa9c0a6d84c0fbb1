/* deal.c - see deal.h: a heap of workers, the one with least to do on top */
#include "base/deal.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct {
    long load;
    int worker;
} hand;

static bool has_less(const hand *a, const hand *b)
{
    return a->load != b->load ? a->load < b->load : a->worker < b->worker;
}

/* Let the top sink to where those below have more. */
static void sink(hand *heap, int n)
{
    hand top = *heap;
    int i = 0;
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && has_less(&heap[child + 1], &heap[child]))
            child++;
        if (!has_less(&heap[child], &top))
            break;
        heap[i] = heap[child];
    }
    heap[i] = top;
}

void deal(const int *cost, int group, int n, int n_workers, int *first, int *next)
{
    hand *heap = XNEW_ARRAY(hand, (size_t)n_workers);
    for (int w = 0; w < n_workers; w++) {
        heap[w] = (hand){0, w};
        first[w] = n;
    }
    for (int j = 0; j < n; j++) {
        int w = heap->worker;
        next[j] = first[w];
        first[w] = j;
        heap->load += cost[j / group];
        sink(heap, n_workers);
    }
    free(heap);
}
