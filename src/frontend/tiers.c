/* tiers.c - see tiers.h */
#include "frontend/tiers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/prometheus.h"
#include "frontend/metrics.h"

enum { N_TIERS = TIER__DISK + 1 };
static const char *const tier_name[N_TIERS] = {[TIER__DEVICE] = "device", [TIER__HOST] = "host", [TIER__DISK] = "disk"};
#define FORGET_AFTER 30.0 /* seconds */

typedef struct {
    digest of;
    unsigned tier, from;
    double seconds;
} resident;

typedef struct {
    char *uuid;
    double heard;
    resident *has; /* [n] by digest */
    size_t n;
} tier_gpu;

struct tiers {
    pthread_mutex_t lock; /* guards all below */
    tier_gpu *gpus;       /* [n] */
    size_t n, cap;
    histogram loads[N_TIERS]; /* by where they came from: the host or the disk */
};

tiers *tiers_new(void)
{
    tiers *t = XNEW(tiers);
    CHECK(pthread_mutex_init(&t->lock, NULL) == 0);
    return t;
}

static void free_gpu(tier_gpu *g)
{
    free(g->uuid);
    free(g->has);
}

void tiers_free(tiers *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        free_gpu(&t->gpus[i]);
    pthread_mutex_destroy(&t->lock);
    free(t->gpus);
    free(t);
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(&((const resident *)a)->of, &((const resident *)b)->of, sizeof(digest));
}

static const resident *find_resident(const tier_gpu *g, const digest *d)
{
    resident wanted = {.of = *d};
    return g->n ? bsearch(&wanted, g->has, g->n, sizeof *g->has, by_digest) : NULL;
}

/* Forgets GPUs that have been silent. The caller holds the lock. */
static void forget_silent(tiers *t, double now)
{
    for (size_t i = 0; i < t->n; i++)
        if (now - t->gpus[i].heard > FORGET_AFTER) {
            free_gpu(&t->gpus[i]);
            t->gpus[i--] = t->gpus[--t->n];
        }
}

static tier_gpu *find_gpu(tiers *t, const char *uuid)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->gpus[i].uuid, uuid) == 0)
            return &t->gpus[i];
    t->gpus = xgrow(t->gpus, &t->cap, t->n + 1, sizeof *t->gpus);
    t->gpus[t->n] = (tier_gpu){.uuid = xstrdup(uuid)};
    return &t->gpus[t->n++];
}

/* Returns whether it was loaded onto the device since the GPU was last heard of. */
static bool is_new(const tier_gpu *before, const resident *r)
{
    const resident *old = find_resident(before, &r->of);
    return r->tier == TIER__DEVICE && (!old || old->tier != TIER__DEVICE || old->seconds != r->seconds);
}

void tiers_update(tiers *t, const Residents *r)
{
    resident *has = XNEW_ARRAY(resident, r->n_adapters + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->n_adapters; i++) {
        const Resident *a = r->adapters[i];
        unsigned tier = (unsigned)a->tier, from = (unsigned)a->from;
        if (a->digest.len != DIGEST_BYTES || tier >= N_TIERS || from >= N_TIERS)
            continue;
        has[n] = (resident){.tier = tier, .from = from, .seconds = (double)a->micros * 1e-6};
        memcpy(&has[n++].of, a->digest.data, DIGEST_BYTES);
    }
    if (n)
        qsort(has, n, sizeof *has, by_digest);
    pthread_mutex_lock(&t->lock);
    double now = clock_now();
    forget_silent(t, now);
    tier_gpu *g = find_gpu(t, r->gpu);
    for (size_t i = 0; i < n; i++)
        if (is_new(g, &has[i]))
            histogram_add(&t->loads[has[i].from], has[i].seconds);
    free(g->has);
    g->has = has;
    g->n = n;
    g->heard = now;
    pthread_mutex_unlock(&t->lock);
}

void tiers_describe(tiers *t, const char *full, const char *id, bool on_disk, json_t *o)
{
    digest d;
    unsigned nearest = on_disk ? TIER__DISK : N_TIERS;
    json_t *memory = json_array();
    digest_of_parts(&d, (digest_part[]){{full, strlen(full)}, {"@", 1}, {id, strnlen(id, DIGEST_HEX - 1)}}, 3);
    pthread_mutex_lock(&t->lock);
    forget_silent(t, clock_now());
    for (size_t i = 0; i < t->n; i++) {
        const resident *r = find_resident(&t->gpus[i], &d);
        if (!r)
            continue;
        nearest = r->tier < nearest ? r->tier : nearest;
        json_t *one = json_pack("{s:s, s:s}", "gpu", t->gpus[i].uuid, "tier", tier_name[r->tier]);
        if (r->tier == TIER__DEVICE) {
            json_object_set_new(one, "loaded_from", json_string(tier_name[r->from]));
            json_object_set_new(one, "load_seconds", json_real(r->seconds));
        }
        json_array_append_new(memory, one);
    }
    pthread_mutex_unlock(&t->lock);
    json_object_set_new(o, "tier", json_string(nearest < N_TIERS ? tier_name[nearest] : "source"));
    json_object_set_new(o, "memory", memory);
}

/* Returns how many different adapters some GPU has at this tier. */
static size_t count(const tiers *t, unsigned tier)
{
    map *seen = map_new(64);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->gpus[i].n; k++)
            if (t->gpus[i].has[k].tier == tier)
                map_put(seen, &t->gpus[i].has[k].of, sizeof(digest), 1);
    size_t n = map_count(seen);
    map_free(seen);
    return n;
}

void tiers_write_metrics(tiers *t, buf *out)
{
    pthread_mutex_lock(&t->lock);
    forget_silent(t, clock_now());
    prometheus_add_family(out, "adapters_in_memory", "gauge",
                          "Different adapters that some GPU, or its host, has in memory.");
    for (unsigned i = TIER__DEVICE; i <= TIER__HOST; i++)
        prometheus_add_sample(out, "adapters_in_memory", &(prometheus_label){"tier", tier_name[i]}, 1, count(t, i));
    metrics_write_histogram(out, "adapter_load_from_host_seconds",
                            "From when an adapter was wanted until a GPU had it, from its host's memory.",
                            &t->loads[TIER__HOST]);
    metrics_write_histogram(out, "adapter_load_from_disk_seconds", "The same from its host's disk.",
                            &t->loads[TIER__DISK]);
    pthread_mutex_unlock(&t->lock);
}
