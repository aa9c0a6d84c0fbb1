/* host_tier.c - see host_tier.h */
#include "engine/host_tier.h"

#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/mem.h"

enum { PROBED_PAGES = 16, PROBES = 3 }; /* pages of a probe at most; probes, of which the last counts */
static const double KEEP = 0.9; /* moving average of a page's time: weight of what is known, per batch that ended */

/* Batches of moves under way, the oldest first. is_done, slowest: which devices have done the oldest, and how long the
 * slowest of them took. */
typedef struct {
    int *n_moves;
    size_t cap;
    int n;
    bool is_done[MAX_RANKS];
    double slowest;
} batches;

struct host_tier {
    backend *first;          /* borrowed */
    const kv_cache *kv;      /* borrowed; [devices] */
    char *memory[MAX_RANKS]; /* of each device, [n_pages] */
    int n_pages;
    batches lane[N_LANES];
    copy_piece *piece; /* scratch of a batch */
    size_t piece_cap;
    double page_seconds; /* of LANE_IN */
};

/* Claims host memory on each of the devices, for `want` pages or half as many, and so on. Returns false when there is
 * none for a single page. */
static bool claim(host_tier *t, int want)
{
    int n_devices = group_devices(t->first);
    for (; want > 0; want /= 2) {
        int d = 0;
        while (d < n_devices &&
               (t->memory[d] = group_device(t->first, d)
                                   ->ops->alloc_host(group_device(t->first, d), (size_t)want * kv_page_bytes(t->kv))))
            d++;
        t->n_pages = want;
        if (d == n_devices)
            return true;
        while (d-- > 0)
            group_device(t->first, d)->ops->release_host(group_device(t->first, d), t->memory[d]);
    }
    return false;
}

static copy_piece piece_of(const host_tier *t, int device, kv_lane lane, const kv_move *m)
{
    size_t bytes = kv_page_bytes(t->kv);
    char *page = (char *)t->kv[device].data + (size_t)m->page * bytes,
         *host = t->memory[device] + (size_t)m->host * bytes;
    return lane == LANE_OUT ? (copy_piece){host, page, bytes} : (copy_piece){page, host, bytes};
}

static copy_lane lane_of(kv_lane lane)
{
    return lane == LANE_OUT ? COPY_OUT : COPY_IN;
}

static void begin_batch(host_tier *t, kv_lane lane, const kv_move *move, int n, bool behind_steps)
{
    batches *b = &t->lane[lane];
    t->piece = xgrow(t->piece, &t->piece_cap, (size_t)n, sizeof *t->piece);
    b->n_moves = xgrow(b->n_moves, &b->cap, (size_t)b->n + 1, sizeof *b->n_moves);
    b->n_moves[b->n++] = n;
    for (int d = 0; d < group_devices(t->first); d++) {
        backend *be = group_device(t->first, d);
        for (int i = 0; i < n; i++)
            t->piece[i] = piece_of(t, d, lane, &move[i]);
        be->ops->copy_begin(be, lane_of(lane), t->piece, n, behind_steps);
    }
}

static void learn(host_tier *t, kv_lane lane, int n_moves, double seconds)
{
    double page = seconds / n_moves;
    if (lane == LANE_IN)
        t->page_seconds = t->page_seconds > 0 ? KEEP * t->page_seconds + (1 - KEEP) * page : page;
}

/* Returns whether there is a batch and the oldest is done on all devices; with wait, blocks for that one. */
static bool end_batch(host_tier *t, kv_lane lane, bool wait)
{
    batches *b = &t->lane[lane];
    bool all = b->n > 0;
    for (int d = 0; d < group_devices(t->first) && b->n > 0; d++) {
        backend *be = group_device(t->first, d);
        double seconds = 0;
        b->is_done[d] = b->is_done[d] || be->ops->copy_ended(be, lane_of(lane), wait, &seconds);
        b->slowest = seconds > b->slowest ? seconds : b->slowest;
        all &= b->is_done[d];
    }
    return all;
}

/* Removes the oldest batch, which is done. Returns how many moves it had. */
static int drop_batch(host_tier *t, kv_lane lane)
{
    batches *b = &t->lane[lane];
    int n = b->n_moves[0];
    learn(t, lane, n, b->slowest);
    memmove(b->n_moves, b->n_moves + 1, (size_t)--b->n * sizeof *b->n_moves);
    memset(b->is_done, 0, sizeof b->is_done);
    b->slowest = 0;
    return n;
}

static void run_batch(host_tier *t, kv_lane lane, const kv_move *move, int n)
{
    begin_batch(t, lane, move, n, true);
    end_batch(t, lane, true);
    drop_batch(t, lane);
}

/* Copies some pages to the host and back, so that a page's time is known before the first one moves. */
static void probe(host_tier *t)
{
    kv_move move[PROBED_PAGES];
    int n = 0;
    for (; n < PROBED_PAGES && n < t->n_pages && n < t->kv->n_pages; n++)
        move[n] = (kv_move){n, n};
    for (int i = 0; i < PROBES; i++) {
        run_batch(t, LANE_OUT, move, n);
        t->page_seconds = 0; /* the last probe counts: memory is slower when it is first touched */
        run_batch(t, LANE_IN, move, n);
    }
}

host_tier *host_tier_new(backend *first, const kv_cache *kv, size_t bytes)
{
    double want = (double)bytes / (double)kv_page_bytes(kv) / group_devices(first);
    host_tier *t = XNEW(host_tier);
    *t = (host_tier){.first = first, .kv = kv};
    if (!claim(t, want < 1e8 ? (int)want : (int)1e8)) { /* numbers of pages are ints */
        free(t);
        return NULL;
    }
    probe(t);
    return t;
}

void host_tier_free(host_tier *t)
{
    if (!t)
        return;
    for (int lane = 0; lane < N_LANES; lane++) {
        while (t->lane[lane].n > 0 && end_batch(t, lane, true))
            drop_batch(t, lane);
        free(t->lane[lane].n_moves);
    }
    for (int d = 0; d < group_devices(t->first); d++)
        group_device(t->first, d)->ops->release_host(group_device(t->first, d), t->memory[d]);
    free(t->piece);
    free(t);
}

int host_tier_pages(const host_tier *t)
{
    return t ? t->n_pages : 0;
}

void host_tier_begin(host_tier *t, kv_pool *p)
{
    for (int lane = 0; lane < N_LANES; lane++) {
        int n;
        bool behind_steps;
        const kv_move *move = kv_pool_begin_moves(p, lane, &n, &behind_steps);
        if (n > 0)
            begin_batch(t, lane, move, n, behind_steps);
    }
}

void host_tier_poll(host_tier *t, kv_pool *p, bool wait)
{
    for (int lane = 0; lane < N_LANES; lane++)
        for (bool block = wait && lane == LANE_IN; end_batch(t, lane, block); block = false)
            kv_pool_end_moves(p, lane, drop_batch(t, lane));
}

void host_tier_order(host_tier *t)
{
    for (int d = 0; d < group_devices(t->first); d++)
        group_device(t->first, d)->ops->copy_order(group_device(t->first, d));
}

double host_tier_page_seconds(const host_tier *t)
{
    return t->page_seconds;
}
