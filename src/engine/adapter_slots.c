/* adapter_slots.c - see adapter_slots.h
 *
 * The loader thread and the engine thread share nothing but two queues: jobs go out, the same
 * jobs come back with the adapter or the error in them. */
#include "engine/adapter_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/queue.h"
#include "engine/image_cache.h"
#include "model/lora.h"

struct adapter_slot {
    char *name;                 /* NULL: the slot is empty */
    slot_state state;
    lora *lora;                 /* when SLOT_READY */
    err why;                    /* when SLOT_FAILED */
    int holders;
    uint64_t last_used;
};

typedef struct { adapter_slot *slot; char *name; lora *lora; err e; } load_job;

struct adapter_slots {
    backend *be;                /* borrowed */
    adapter_source source;
    adapter_slot *slot;         /* [n_slots] */
    int n_slots, n_loading;
    uint64_t clock;
    queue *jobs, *done;
    pthread_t loader;
    image_cache *images;        /* loader thread only; NULL where host memory is the device's own */
};

/* Storage to host image to device; the image is the adapter where there is nothing to copy it to. */
static lora *load(adapter_slots *s, const char *name, err *e)
{
    if (!s->images)
        return s->source.load(s->source.ctx, name, e);
    const lora *image = image_cache_find(s->images, name);
    if (!image) {
        lora *made = s->source.load(s->source.ctx, name, e);
        if (!made)
            return NULL;
        image = image_cache_add(s->images, name, made);
    }
    return lora_upload(image, s->be, e);
}

static void *loader_main(void *arg)
{
    adapter_slots *s = arg;
    load_job *job;
    while ((job = queue_pop(s->jobs))) {
        job->lora = load(s, job->name, &job->e);
        queue_push(s->done, job);
    }
    return NULL;
}

adapter_slots *adapter_slots_new(backend *be, int n_slots, size_t image_bytes, adapter_source source)
{
    adapter_slots *s = XNEW(adapter_slots);
    *s = (adapter_slots){.be = be, .source = source, .n_slots = n_slots, .slot = XNEW_ARRAY(adapter_slot, (size_t)n_slots),
                         .jobs = queue_new(), .done = queue_new()};
    if (!be->owns_host_memory)
        s->images = image_cache_new(be, image_bytes);
    CHECK(pthread_create(&s->loader, NULL, loader_main, s) == 0);
    return s;
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
    for (load_job *job; (job = queue_try_pop(s->jobs));) {      /* those not begun are not wanted */
        free(job->name);
        free(job);
    }
    queue_close(s->jobs);
    pthread_join(s->loader, NULL);
    adapter_slots_poll(s, false);
    for (int i = 0; i < s->n_slots; i++)
        empty_slot(s, &s->slot[i]);
    image_cache_free(s->images);
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

/* An empty slot, or the least recently used one that nobody holds; NULL when all are held. */
static adapter_slot *make_room(adapter_slots *s)
{
    adapter_slot *oldest = NULL;
    for (int i = 0; i < s->n_slots; i++) {
        adapter_slot *slot = &s->slot[i];
        if (!slot->name)
            return slot;
        bool evictable = slot->holders == 0 && slot->state != SLOT_LOADING;
        if (evictable && (!oldest || slot->last_used < oldest->last_used))
            oldest = slot;
    }
    if (oldest)
        empty_slot(s, oldest);
    return oldest;
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

static void finish_job(adapter_slots *s, load_job *job)
{
    adapter_slot *slot = job->slot;
    slot->lora = job->lora;
    slot->why = job->e;
    slot->state = job->lora ? SLOT_READY : SLOT_FAILED;
    s->n_loading--;
    if (slot->state == SLOT_FAILED && slot->holders == 0)
        empty_slot(s, slot);
    free(job->name);
    free(job);
}

void adapter_slots_poll(adapter_slots *s, bool wait)
{
    load_job *job = wait && s->n_loading > 0 ? queue_pop(s->done) : queue_try_pop(s->done);
    for (; job; job = queue_try_pop(s->done))
        finish_job(s, job);
}
