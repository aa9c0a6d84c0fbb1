/* adapter_slots.c - see adapter_slots.h
 *
 * The loader threads and the engine thread share nothing but two queues: jobs go out, the same
 * jobs come back with the adapter or the error in them. Loaders make adapters side by side and take turns
 * with the images and the copies to the device. */
#include "engine/adapter_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/queue.h"
#include "engine/image_cache.h"
#include "model/lora.h"

/* Reading, checking and arranging an adapter takes a core tens of times as long as its copy takes the link. */
enum { MAX_LOADERS = 4 };

struct adapter_slot {
    char *name;                 /* NULL: the slot is empty */
    slot_state state;
    lora *lora;                 /* when SLOT_READY */
    err why;                    /* when SLOT_FAILED */
    int holders;
    uint64_t last_used;
};

/* no_room: the adapter is fine, but did not get into the device's memory. */
typedef struct load_job load_job;
struct load_job { adapter_slot *slot; char *name; lora *lora; bool no_room; err e; load_job *next_parked; };

struct adapter_slots {
    backend *be;                /* borrowed */
    adapter_source source;
    adapter_slot *slot;         /* [n_slots] */
    int n_slots, n_loading;     /* n_loading: jobs out, those parked not counted */
    load_job *parked;           /* wait for memory: tried again when a slot can be emptied */
    uint64_t clock;
    queue *jobs, *done;
    pthread_t loader[MAX_LOADERS];
    int n_loaders;
    image_cache *images;        /* the loaders'; NULL where host memory is the device's own */
    pthread_mutex_t images_lock;
};

/* Host image to device, from an adapter just made or (made is NULL) the image there is. False when there is none. */
static bool load_image(adapter_slots *s, load_job *job, lora *made)
{
    pthread_mutex_lock(&s->images_lock);
    const lora *image = made ? image_cache_add(s->images, job->name, made) : image_cache_find(s->images, job->name);
    if (image) {
        job->lora = lora_upload(image, s->be, &job->e);
        job->no_room = !job->lora;
    }
    pthread_mutex_unlock(&s->images_lock);
    return image != NULL;
}

/* Storage to host image to device; the image is the adapter where host memory is the device's own. */
static void load(adapter_slots *s, load_job *job)
{
    if (s->images && load_image(s, job, NULL))
        return;
    lora *made = s->source.load(s->source.ctx, job->name, &job->e);
    if (!s->images)
        job->lora = made;
    else if (made)
        load_image(s, job, made);
}

static void *loader_main(void *arg)
{
    adapter_slots *s = arg;
    load_job *job;
    while ((job = queue_pop(s->jobs))) {
        load(s, job);
        queue_push(s->done, job);
    }
    return NULL;
}

adapter_slots *adapter_slots_new(backend *be, int n_slots, size_t image_bytes, adapter_source source)
{
    adapter_slots *s = XNEW(adapter_slots);
    *s = (adapter_slots){.be = be, .source = source, .n_slots = n_slots, .slot = XNEW_ARRAY(adapter_slot, (size_t)n_slots),
                         .images = be->owns_host_memory ? NULL : image_cache_new(be, image_bytes),
                         .n_loaders = be->owns_host_memory ? 1 : MAX_LOADERS, /* one: the cores have steps to compute */
                         .jobs = queue_new(), .done = queue_new()};
    pthread_mutex_init(&s->images_lock, NULL);
    for (int i = 0; i < s->n_loaders; i++)
        CHECK(pthread_create(&s->loader[i], NULL, loader_main, s) == 0);
    return s;
}

static void drop_job(load_job *job)
{
    free(job->name);
    free(job);
}

static void empty_slot(adapter_slots *s, adapter_slot *slot)
{
    lora_free(slot->lora, s->be);
    free(slot->name);
    *slot = (adapter_slot){0};
}

void adapter_slots_free(adapter_slots *s)
{
    if (!s)
        return;
    for (load_job *job; (job = queue_try_pop(s->jobs));)        /* those not begun are not wanted */
        drop_job(job);
    queue_close(s->jobs);
    for (int i = 0; i < s->n_loaders; i++)
        pthread_join(s->loader[i], NULL);
    for (load_job *job; (job = queue_try_pop(s->done));) {
        lora_free(job->lora, s->be);
        drop_job(job);
    }
    while (s->parked) {
        load_job *job = s->parked;
        s->parked = job->next_parked;
        drop_job(job);
    }
    for (int i = 0; i < s->n_slots; i++)
        empty_slot(s, &s->slot[i]);
    image_cache_free(s->images);
    pthread_mutex_destroy(&s->images_lock);
    queue_free(s->jobs);
    queue_free(s->done);
    free(s->slot);
    free(s);
}

static adapter_slot *find(adapter_slots *s, const char *name)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].name && strcmp(s->slot[i].name, name) == 0)
            return &s->slot[i];
    return NULL;
}

/* Empty the least recently used slot that nobody holds; NULL when all are held. */
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

/* An empty slot, or one that is emptied for it; NULL when all are held. */
static adapter_slot *make_room(adapter_slots *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (!s->slot[i].name)
            return &s->slot[i];
    return drop_oldest(s);
}

static void start_loading(adapter_slots *s, adapter_slot *slot, const char *name)
{
    load_job *job = XNEW(load_job);
    *job = (load_job){.slot = slot, .name = xstrdup(name)};
    *slot = (adapter_slot){.name = xstrdup(name), .state = SLOT_LOADING};
    s->n_loading++;
    queue_push(s->jobs, job);
}

slot_state adapter_slots_hold(adapter_slots *s, const char *name, adapter_slot **slot)
{
    adapter_slot *found = find(s, name);
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

static void try_again(adapter_slots *s, load_job *job)
{
    job->no_room = false;
    s->n_loading++;
    queue_push(s->jobs, job);
}

/* Whether some adapter is in use or on its way, and so will leave room some day. */
static bool any_in_use(const adapter_slots *s)
{
    if (s->n_loading > 0)
        return true;
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].name && s->slot[i].state == SLOT_READY && s->slot[i].holders > 0)
            return true;
    return false;
}

/* The device's memory ran out: an adapter nobody uses goes and the load is tried again, now or when there
 * is one. False when nothing can ever make room. */
static bool find_room(adapter_slots *s, load_job *job)
{
    if (drop_oldest(s)) {
        try_again(s, job);
        return true;
    }
    if (!any_in_use(s))
        return false;
    job->next_parked = s->parked;
    s->parked = job;
    return true;
}

static void finish_job(adapter_slots *s, load_job *job)
{
    adapter_slot *slot = job->slot;
    s->n_loading--;
    if (job->no_room && find_room(s, job))
        return;
    slot->lora = job->lora;
    slot->why = job->e;
    slot->state = job->lora ? SLOT_READY : SLOT_FAILED;
    if (slot->state == SLOT_FAILED && slot->holders == 0)
        empty_slot(s, slot);
    drop_job(job);
}

void adapter_slots_poll(adapter_slots *s, bool wait)
{
    load_job *job = wait && s->n_loading > 0 ? queue_pop(s->done) : queue_try_pop(s->done);
    for (; job; job = queue_try_pop(s->done))
        finish_job(s, job);
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
