/* gpu.c - see gpu.h */
#include "scheduler/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

gpu *gpu_new(slabs *memory, int number, uint32_t life, const gpu_info *info)
{
    gpu *g = slabs_take(memory, sizeof *g);
    *g = (gpu){.number = number,
               .life = life,
               .info = *info,
               .pages_free = info->n_pages,
               .slow = info->on_probation,
               .memory = memory};
    g->info.uuid = xstrdup(info->uuid);
    g->info.device = xstrdup(info->device ? info->device : "");
    g->order.priority = rng_mix((uint64_t)number + 1);
    return g;
}

void gpu_free(gpu *g)
{
    slabs_give(g->memory, g->running, g->running_bytes);
    slabs_give(g->memory, g->unseen, g->unseen_bytes);
    free((char *)g->info.uuid);
    free((char *)g->info.device);
    slabs_give(g->memory, g, sizeof *g);
}

request *gpu_find(const gpu *g, uint64_t id, uint32_t attempt, int *near)
{
    for (int i = 0, at = *near; i < g->n_running; i++, at++) {
        at = at < g->n_running ? at : 0;
        if (g->running[at].id == id) {
            *near = at + 1;
            return g->running[at].r->attempt == attempt ? g->running[at].r : NULL;
        }
    }
    return NULL;
}

/* How far ahead is prefetched: a core can have about so many cache misses under way. A request first; when it has
 * arrived, the end of its tokens. */
enum { AHEAD = 16, TOKENS_AHEAD = 8 };

static void prefetch_request(const gpu *g, int at)
{
    if (at < g->n_running)
        __builtin_prefetch(g->running[at].r, 1);
}

static void prefetch_tokens(const gpu *g, int at)
{
    if (at < g->n_running)
        __builtin_prefetch(g->running[at].r->what.token + g->running[at].r->what.n_tokens, 1);
}

void gpu_prefetch(const gpu *g, int at)
{
    for (int i = at == 0 ? 0 : AHEAD; i <= AHEAD; i++)
        prefetch_request(g, at + i);
    for (int i = at == 0 ? 0 : TOKENS_AHEAD; i <= TOKENS_AHEAD; i++)
        prefetch_tokens(g, at + i);
}

int64_t gpu_capacity(const gpu *g)
{
    int64_t pages = (int64_t)g->info.n_pages * g->info.page_len;
    return pages < g->info.max_tokens ? pages : g->info.max_tokens;
}

int gpu_pages_for(const gpu *g, const request *r)
{
    return (r->what.n_tokens + g->info.page_len) / g->info.page_len;
}

/* Returns the tokens that it could take in one more request; one page is kept back for each that runs. */
static int64_t room(const gpu *g)
{
    int n = g->n_running + g->n_promised;
    if (!gpu_is_open(g) || g->closed || n >= g->info.max_batch)
        return 0;
    int64_t pages = g->pages_free - g->pages_coming - g->pages_promised - n;
    int64_t tokens = pages > 0 ? pages * g->info.page_len : 0;
    return tokens < g->info.max_tokens ? tokens : g->info.max_tokens;
}

/* Computes the room it has, for each kind of request. */
static void compute_rooms(const gpu *g, int64_t rooms[N_ROOMS])
{
    int64_t all = room(g), any = g->reserved || g->n_confined ? 0 : all;
    rooms[ROOM_ANY] = any;
    rooms[ROOM_SUSPECT] = g->n_suspects + g->n_promised_suspects ? 0 : any;
    rooms[ROOM_ALONE] = g->n_running + g->n_promised ? 0 : all;
}

void gpu_update_order(gpu *g, gpu_order *o)
{
    int64_t rooms[N_ROOMS];
    compute_rooms(g, rooms);
    gpu_order_set(o, &g->order, g->n_running + g->n_promised, rooms);
    g->touched = false;
}

static size_t n_unseen(const gpu *g)
{
    return (size_t)(g->n_sent - g->n_seen);
}

static void send(gpu *g, unseen_command c)
{
    g->unseen = slabs_grow(g->memory, g->unseen, &g->unseen_bytes, (n_unseen(g) + 1) * sizeof *g->unseen);
    g->unseen[n_unseen(g)] = c;
    g->n_sent++;
}

/* Returns r's index in `running`, or where it belongs. Priorities do not count: those of placed requests are 0. */
static int seat_of(const gpu *g, const request *r)
{
    int low = 0, high = g->n_running;
    while (low < high) {
        int middle = (low + high) / 2;
        const seat *s = &g->running[middle];
        if (s->turn < r->order.arrival || (s->turn == r->order.arrival && s->id < r->order.id))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void gpu_add(gpu *g, request *r)
{
    CHECK(g->n_running < g->info.max_batch && !r->on);
    int at = seat_of(g, r), pages = gpu_pages_for(g, r);
    send(g, (unseen_command){.pages = pages});
    g->running = slabs_grow(g->memory, g->running, &g->running_bytes, ((size_t)g->n_running + 1) * sizeof *g->running);
    memmove(&g->running[at + 1], &g->running[at], (size_t)(g->n_running - at) * sizeof *g->running);
    g->running[at] = (seat){r->what.id, r->order.arrival, r};
    g->n_running++;
    g->n_suspects += r->suspect;
    g->n_confined += r->confined;
    g->pages_coming += pages;
    r->on = g;
    r->add = g->n_sent;
}

/* Forgets the pages of r's add if that is on its way. */
static void forget_add(gpu *g, const request *r)
{
    if (r->add <= g->n_seen)
        return;
    unseen_command *add = &g->unseen[r->add - g->n_seen - 1];
    g->pages_coming -= add->pages;
    add->pages = 0;
}

void gpu_remove(gpu *g, request *r, bool told)
{
    int at = seat_of(g, r);
    CHECK(at < g->n_running && g->running[at].r == r);
    g->n_running--;
    memmove(&g->running[at], &g->running[at + 1], (size_t)(g->n_running - at) * sizeof *g->running);
    g->n_suspects -= r->suspect;
    g->n_confined -= r->confined;
    r->on = NULL;
    forget_add(g, r);
    if (told)
        send(g, (unseen_command){.undoes = r->add, .pages = gpu_pages_for(g, r)});
}

void gpu_clear(gpu *g, request *r)
{
    r->n_lost = 0;
    for (int how = 0; how < N_DEATHS; how++)
        r->deaths[how].alone = 0;
    if (request_saw_too_many(r))
        return;
    g->n_suspects -= r->suspect;
    g->n_confined -= r->confined;
    r->was_confined |= r->confined;
    r->suspect = r->confined = false;
}

void gpu_record_report(gpu *g, uint64_t n_seen, int pages_free)
{
    CHECK(n_seen >= g->n_seen && n_seen <= g->n_sent);
    size_t n = (size_t)(n_seen - g->n_seen);
    for (size_t i = 0; i < n; i++)
        g->pages_coming -= g->unseen[i].undoes ? 0 : g->unseen[i].pages;
    g->n_seen = n_seen;
    if (n)
        memmove(g->unseen, g->unseen + n, n_unseen(g) * sizeof *g->unseen);
    g->pages_free = pages_free < g->info.n_pages ? pages_free : g->info.n_pages;
}

int64_t gpu_balance(const gpu *g)
{
    int64_t pages = g->pages_free - g->pages_coming;
    for (size_t i = 0; i < n_unseen(g); i++)
        if (g->unseen[i].undoes && g->unseen[i].undoes <= g->n_seen)
            pages += g->unseen[i].pages;
    return pages;
}

bool gpu_is_light(const gpu *g, double light_share)
{
    return gpu_is_open(g) && !g->reserved && g->n_running > 0 && g->n_running < light_share * g->info.max_batch;
}

void gpu_check(const gpu *g)
{
    int n_suspects = 0, n_confined = 0;
    int64_t coming = 0, rooms[N_ROOMS];
    CHECK(g->n_running <= g->info.max_batch || g->n_running == 0);
    CHECK(g->n_promised == 0 && g->pages_promised == 0 && g->n_promised_suspects == 0 && !g->closed);
    for (int i = 0; i < g->n_running; i++) {
        CHECK(g->running[i].r->on == g);
        CHECK(i == 0 || wait_before(&g->running[i - 1].r->order, &g->running[i].r->order));
        CHECK(g->running[i].r->add > 0 && g->running[i].r->add <= g->n_sent);
        n_suspects += g->running[i].r->suspect;
        n_confined += g->running[i].r->confined;
        CHECK(g->running[i].r->suspect || !g->running[i].r->confined);
        CHECK(g->running[i].id == g->running[i].r->what.id && g->running[i].turn == g->running[i].r->order.arrival &&
              g->running[i].r->order.priority == 0);
    }
    for (size_t i = 0; i < n_unseen(g); i++)
        coming += g->unseen[i].undoes ? 0 : g->unseen[i].pages;
    CHECK(n_suspects == g->n_suspects && n_suspects <= 1 && n_confined == g->n_confined);
    CHECK(n_confined == 0 || g->n_running == 1);
    CHECK(coming == g->pages_coming);
    CHECK(!g->touched && g->order.n_running == g->n_running);
    compute_rooms(g, rooms);
    CHECK(memcmp(rooms, g->order.room, sizeof rooms) == 0);
}
