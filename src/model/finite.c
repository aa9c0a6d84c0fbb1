/* finite.c - see finite.h. Threads take pieces of the tensors from one counter, front to back. */
#include "model/finite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

/* Large against the cost of taking a piece, small against a model. */
#define PIECE_BYTES ((size_t)4 << 20)
#define MAX_THREADS 16

typedef struct {
    const char *data;
    size_t bytes;
    dtype type;
    int owner;
} piece;

typedef struct {
    const piece *pieces;
    int n_pieces;
    atomic_int next; /* piece to take */
    atomic_int bad;  /* lowest tensor found bad so far, or INT32_MAX */
} scan;

/* A float is not finite exactly when all bits of its exponent are set. The loops have no exit, so
 * that they vectorise. */
static bool all_finite16(const uint16_t *x, size_t n, uint16_t exponent)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint16_t)((x[i] & exponent) == exponent);
    return !bad;
}

static bool all_finite32(const uint32_t *x, size_t n, uint32_t exponent)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint32_t)((x[i] & exponent) == exponent);
    return !bad;
}

/* E4M3 has no infinity, and one NaN of each sign. */
static bool all_finite8(const uint8_t *x, size_t n)
{
    uint8_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint8_t)((x[i] & 0x7f) == 0x7f);
    return !bad;
}

static bool piece_is_finite(const piece *p)
{
    switch (p->type) {
    case DTYPE_F16: return all_finite16((const uint16_t *)p->data, p->bytes / 2, 0x7c00);
    case DTYPE_F8: return all_finite8((const uint8_t *)p->data, p->bytes);
    case DTYPE_BF16: return all_finite16((const uint16_t *)p->data, p->bytes / 2, 0x7f80);
    default: return all_finite32((const uint32_t *)p->data, p->bytes / 4, 0x7f800000);
    }
}

/* Takes and scans pieces until one is bad. They are taken in order, so all before a bad one have been taken already and
 * are finished: no other need be taken. */
static void *scan_pieces(void *arg)
{
    scan *s = arg;
    for (int i; atomic_load(&s->bad) == INT32_MAX && (i = atomic_fetch_add(&s->next, 1)) < s->n_pieces;) {
        if (piece_is_finite(&s->pieces[i]))
            continue;
        int bad = atomic_load(&s->bad);
        while (s->pieces[i].owner < bad && !atomic_compare_exchange_weak(&s->bad, &bad, s->pieces[i].owner))
            ;
    }
    return NULL;
}

static piece *cut(const tensor *const *t, int n, int *n_pieces)
{
    piece *pieces = NULL;
    size_t cap = 0, count = 0;
    for (int i = 0; i < n; i++)
        for (size_t at = 0, bytes = tensor_bytes(t[i]); at < bytes; at += PIECE_BYTES) {
            size_t left = bytes - at;
            pieces = xgrow(pieces, &cap, count + 1, sizeof *pieces);
            pieces[count++] = (piece){.data = (const char *)t[i]->data + at,
                                      .type = t[i]->type,
                                      .owner = i,
                                      .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
        }
    *n_pieces = (int)count;
    return pieces;
}

/* Starts threads beside the caller: one for each core, but none for less than a few pieces each. Those that cannot be
 * started are done without. Returns how many there are. */
static int start_helpers(scan *s, size_t bytes, pthread_t *thread)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), useful = (long)(bytes / (4 * PIECE_BYTES));
    long wanted = (cores < useful ? cores : useful) - 1;
    int n = 0;
    while (n < wanted && n < MAX_THREADS - 1 && pthread_create(&thread[n], NULL, scan_pieces, s) == 0)
        n++;
    return n;
}

int finite_scan(const tensor *const *t, int n)
{
    scan s = {.bad = INT32_MAX};
    piece *pieces = cut(t, n, &s.n_pieces);
    s.pieces = pieces;
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += tensor_bytes(t[i]);
    pthread_t thread[MAX_THREADS];
    int n_helpers = start_helpers(&s, bytes, thread);
    scan_pieces(&s);
    for (int i = 0; i < n_helpers; i++)
        pthread_join(thread[i], NULL);
    free(pieces);
    return s.bad == INT32_MAX ? -1 : s.bad;
}
