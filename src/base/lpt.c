/* lpt.c - see lpt.h: a heap of workers, the one with the least load on top */
#include "base/lpt.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct {
    long load;
    int worker;
} worker_load;

static bool has_less(const worker_load *a, const worker_load *b)
{
    return a->load != b->load ? a->load < b->load : a->worker < b->worker;
}

/* Sifts the top down to where the workers below it have more load. */
static void sift_down(worker_load *heap, int n)
{
    worker_load top = *heap;
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

void lpt_schedule(const int *cost, int group, int n, int n_workers, int *first, int *next)
{
    worker_load *heap = XNEW_ARRAY(worker_load, (size_t)n_workers);
    for (int w = 0; w < n_workers; w++) {
        heap[w] = (worker_load){0, w};
        first[w] = n;
    }
    for (int j = 0; j < n; j++) {
        int w = heap->worker;
        next[j] = first[w];
        first[w] = j;
        heap->load += cost[j / group];
        sift_down(heap, n_workers);
    }
    free(heap);
}
