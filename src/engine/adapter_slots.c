/* adapter_slots.c - see adapter_slots.h
 *
 * The loaders and the engine thread share nothing but jobs (base/jobs.h): they go out, and the same jobs come
 * back with the adapter or the error in them. Loaders make adapters side by side and take turns with the images
 * and the copies to the device. */
#include "engine/adapter_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/jobs.h"
#include "base/mem.h"
#include "engine/image_cache.h"
#include "model/lora.h"

/* Threads. Reading, checking and arranging an adapter takes a core tens of times as long as copying it to the device.
 * One thread where the cores have steps to compute. */
enum { DEVICE_LOADERS = 4, HOST_LOADERS = 1 };

struct adapter_slot {
    char *name; /* NULL: the slot is empty */
    slot_state state;
    lora *lora; /* when SLOT_READY */
    err why;    /* when SLOT_FAILED */
    int holders;
    uint64_t last_used;
    double wanted_at; /* of clock_now() */
    double seconds;   /* when SLOT_READY: what loading took */
    adapter_tier from;
};

typedef struct load_job load_job;
struct load_job {
    job base;             /* first */
    adapter_slots *slots; /* borrowed; a loader uses what does not change, and images under their lock */
    adapter_slot *slot;   /* borrowed; the engine thread's */
    char *name;
    lora *lora; /* what came of it */
    adapter_tier from;
    bool no_room; /* the adapter is fine, but did not get into the device's memory */
    err e;
    load_job *next_parked;
};

struct adapter_slots {
    backend *be; /* borrowed */
    adapter_source source;
    adapter_slot *slot;     /* [n_slots] */
    int n_slots, n_loading; /* n_loading: jobs out, those parked not counted */
    load_job *parked;       /* wait for memory: tried again when a slot can be emptied */
    uint64_t clock;
    uint64_t n_changes;
    jobs *loaders;       /* the caller's, or own_loaders */
    jobs *own_loaders;   /* NULL: borrowed from the caller */
    image_cache *images; /* the loaders'; NULL where host memory is the device's own */
    pthread_mutex_t images_lock;
};

/* Copies an image to the device: one made from `made`, which it takes over, or if that is NULL the cached one. False
 * when there is none. */
static bool load_image(adapter_slots *s, load_job *load, lora *made)
{
    pthread_mutex_lock(&s->images_lock);
    const lora *image = made ? image_cache_add(s->images, load->name, made) : image_cache_find(s->images, load->name);
    if (image) {
        load->lora = lora_upload(image, s->be, &load->e);
        load->no_room = !load->lora;
    }
    pthread_mutex_unlock(&s->images_lock);
    return image != NULL;
}

/* Reads an adapter, makes an image of it and copies that to the device. Where host memory is the device's own, the
 * adapter is used as it was read. */
static void run_load(job *j)
{
    load_job *load = (load_job *)j;
    adapter_slots *s = load->slots;
    load->from = TIER_HOST;
    if (s->images && load_image(s, load, NULL))
        return;
    load->from = TIER_DISK;
    lora *made = s->source.load(s->source.ctx, load->name, &load->e);
    if (!s->images)
        load->lora = made;
    else if (made)
        load_image(s, load, made);
}

adapter_slots *adapter_slots_new(backend *be, int n_slots, size_t image_bytes, adapter_source source, jobs *loaders)
{
    adapter_slots *s = XNEW(adapter_slots);
    *s = (adapter_slots){.be = be,
                         .source = source,
                         .n_slots = n_slots,
                         .slot = XNEW_ARRAY(adapter_slot, (size_t)n_slots),
                         .images = be->owns_host_memory ? NULL : image_cache_new(be, image_bytes)};
    CHECK(pthread_mutex_init(&s->images_lock, NULL) == 0);
    if (!loaders)
        s->own_loaders = jobs_threads_new(be->owns_host_memory ? HOST_LOADERS : DEVICE_LOADERS);
    s->loaders = loaders ? loaders : s->own_loaders;
    return s;
}

static void drop_job(load_job *load)
{
    free(load->name);
    free(load);
}

static void empty_slot(adapter_slots *s, adapter_slot *slot)
{
    s->n_changes += slot->state == SLOT_READY;
    lora_free(slot->lora, s->be);
    free(slot->name);
    *slot = (adapter_slot){0};
}

/* Gets all jobs back: those that have not begun are dropped, those that have are waited for. */
static void stop_loading(adapter_slots *s)
{
    for (job *j; (j = jobs_take_back(s->loaders)); s->n_loading--)
        drop_job((load_job *)j);
    for (; s->n_loading > 0; s->n_loading--) {
        load_job *load = (load_job *)jobs_finished(s->loaders, true);
        lora_free(load->lora, s->be);
        drop_job(load);
    }
    while (s->parked) {
        load_job *load = s->parked;
        s->parked = load->next_parked;
        drop_job(load);
    }
}

void adapter_slots_free(adapter_slots *s)
{
    if (!s)
        return;
    stop_loading(s);
    jobs_free(s->own_loaders);
    for (int i = 0; i < s->n_slots; i++)
        empty_slot(s, &s->slot[i]);
    image_cache_free(s->images);
    pthread_mutex_destroy(&s->images_lock);
    free(s->slot);
    free(s);
}

static adapter_slot *find_slot(adapter_slots *s, const char *name)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].name && strcmp(s->slot[i].name, name) == 0)
            return &s->slot[i];
    return NULL;
}

/* Empties and returns the least recently used slot that nobody holds; NULL when all are held. */
static adapter_slot *drop_oldest(adapter_slots *s)
{
    adapter_slot *oldest = NULL;
    for (int i = 0; i < s->n_slots; i++) {
        adapter_slot *slot = &s->slot[i];
        bool evictable = slot->name && slot->holders == 0 && slot->state != SLOT_LOADING;
        if (evictable && (!oldest || slot->last_used < oldest->last_used))
            oldest = slot;
    }
    if (oldest)
        empty_slot(s, oldest);
    return oldest;
}

/* Returns an empty slot, emptying the least recently used one if need be; NULL when all are held. */
static adapter_slot *make_room(adapter_slots *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (!s->slot[i].name)
            return &s->slot[i];
    return drop_oldest(s);
}

static void start_loading(adapter_slots *s, adapter_slot *slot, const char *name)
{
    load_job *load = XNEW(load_job);
    *load = (load_job){.base.run = run_load, .slots = s, .slot = slot, .name = xstrdup(name)};
    *slot = (adapter_slot){.name = xstrdup(name), .state = SLOT_LOADING, .wanted_at = clock_now()};
    s->n_loading++;
    jobs_start(s->loaders, &load->base);
}

slot_state adapter_slots_hold(adapter_slots *s, const char *name, adapter_slot **slot)
{
    adapter_slot *found = find_slot(s, name);
    if (!found) {
        found = make_room(s);
        if (found)
            start_loading(s, found, name);
    }
    *slot = found;
    if (!found)
        return SLOT_FULL;
    found->holders++;
    found->last_used = ++s->clock;
    return found->state;
}

void adapter_slots_drop(adapter_slots *s, adapter_slot *slot)
{
    CHECK(slot->holders > 0);
    slot->holders--;
    if (slot->holders == 0 && slot->state == SLOT_FAILED)
        empty_slot(s, slot);
}

slot_state adapter_slot_state(const adapter_slot *slot, err *e)
{
    if (slot->state == SLOT_FAILED)
        *e = slot->why;
    return slot->state;
}

const lora *adapter_slot_lora(const adapter_slot *slot)
{
    return slot->lora;
}

int adapter_slots_number(const adapter_slots *s, const adapter_slot *slot)
{
    return (int)(slot - s->slot);
}

static void try_again(adapter_slots *s, load_job *load)
{
    load->no_room = false;
    s->n_loading++;
    jobs_start(s->loaders, &load->base);
}

/* Returns whether some adapter is in use or being loaded, so that there may be room later. */
static bool any_in_use(const adapter_slots *s)
{
    if (s->n_loading > 0)
        return true;
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].name && s->slot[i].state == SLOT_READY && s->slot[i].holders > 0)
            return true;
    return false;
}

/* After a load for which the device had no memory: drops an adapter that nobody uses and tries again, or parks the load
 * until there is one. False when nothing can ever make room. */
static bool find_room(adapter_slots *s, load_job *load)
{
    if (drop_oldest(s)) {
        try_again(s, load);
        return true;
    }
    if (!any_in_use(s))
        return false;
    load->next_parked = s->parked;
    s->parked = load;
    return true;
}

static void finish_job(adapter_slots *s, load_job *load)
{
    adapter_slot *slot = load->slot;
    s->n_loading--;
    if (load->no_room && find_room(s, load))
        return;
    slot->lora = load->lora;
    slot->why = load->e;
    slot->state = load->lora ? SLOT_READY : SLOT_FAILED;
    slot->from = load->from;
    slot->seconds = clock_now() - slot->wanted_at;
    s->n_changes++;
    if (slot->state == SLOT_FAILED && slot->holders == 0)
        empty_slot(s, slot);
    drop_job(load);
}

void adapter_slots_poll(adapter_slots *s, bool wait)
{
    for (job *j; (j = jobs_finished(s->loaders, wait && s->n_loading > 0)); wait = false)
        finish_job(s, (load_job *)j);
    if (s->parked && (drop_oldest(s) || !any_in_use(s))) {
        load_job *first = s->parked;
        s->parked = first->next_parked;
        try_again(s, first);
    }
}

bool adapter_slots_busy(const adapter_slots *s)
{
    return s->n_loading > 0;
}

uint64_t adapter_slots_changes(const adapter_slots *s)
{
    return s->n_changes;
}

typedef struct {
    adapter_slots *slots;
    void (*each)(void *ctx, const adapter_resident *r);
    void *ctx;
} image_teller;

static void tell_image(void *ctx, const char *name)
{
    const image_teller *t = ctx;
    const adapter_slot *slot = find_slot(t->slots, name);
    if (!slot || slot->state != SLOT_READY)
        t->each(t->ctx, &(adapter_resident){.name = name, .tier = TIER_HOST, .from = TIER_DISK});
}

void adapter_slots_each(adapter_slots *s, void (*each)(void *ctx, const adapter_resident *r), void *ctx)
{
    for (int i = 0; i < s->n_slots; i++) {
        const adapter_slot *slot = &s->slot[i];
        if (slot->name && slot->state == SLOT_READY)
            each(ctx, &(adapter_resident){
                          .name = slot->name, .tier = TIER_DEVICE, .from = slot->from, .seconds = slot->seconds});
    }
    if (!s->images || pthread_mutex_trylock(&s->images_lock))
        return;
    image_cache_each(s->images, tell_image, &(image_teller){s, each, ctx});
    pthread_mutex_unlock(&s->images_lock);
}
