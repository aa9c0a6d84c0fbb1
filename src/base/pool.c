/* pool.c - see pool.h
 *
 * A job is published through one 64-bit word, the ticket: the number of the job in the upper half,
 * the next item in the lower. A thread claims an item by a compare-and-swap of the whole ticket,
 * so a worker that wakes up after its job has ended cannot claim an item of the next job with a stale ticket; and
 * nobody waits for workers that never woke up, which matters on oversubscribed machines.
 *
 * Why the claim is sound: while a job is being replaced the ticket carries an odd number, and the job's fields change
 * only then. So a thread that has mixed an old ticket with a new field fails its compare-and-swap. */
#include "base/pool.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#define SPIN_SECONDS 50e-6 /* ops take 10 to 100 µs */
#define WOKEN_SECONDS 300e-6

typedef struct {
    pool *pool;
    int index;
} pool_thread;

struct pool {
    _Atomic uint64_t ticket; /* job number << 32 | next item */
    _Atomic int n_items;
    _Atomic(pool_fn *) fn;
    _Atomic(void *) arg;
    _Alignas(64) _Atomic int n_done; /* items of this job finished */
    _Alignas(64) _Atomic int n_asleep;
    _Atomic bool stop;
    _Atomic double awake_until; /* by clock_now(): workers spin until then */
    pthread_mutex_t lock;       /* with woken: where workers sleep */
    pthread_cond_t woken;
    int n_threads;
    pthread_t *thread;   /* [n_threads - 1] */
    pool_thread *worker; /* [n_threads - 1] */
};

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t job_number(uint64_t ticket)
{
    return (uint32_t)(ticket >> 32);
}

/* Works on whatever job is current until it has no more items to hand out. */
static void work(pool *p, int thread)
{
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
        int item = (int)(uint32_t)ticket;
        int n_items = atomic_load_explicit(&p->n_items, memory_order_acquire);
        pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_acquire);
        void *arg = atomic_load_explicit(&p->arg, memory_order_acquire);
        if (job_number(ticket) % 2 || item >= n_items)
            return;
        if (!atomic_compare_exchange_strong(&p->ticket, &ticket, ticket + 1))
            continue;
        fn(arg, item, thread);
        atomic_fetch_add_explicit(&p->n_done, 1, memory_order_release);
    }
}

static bool has_news(pool *p, uint32_t seen)
{
    return job_number(atomic_load_explicit(&p->ticket, memory_order_acquire)) != seen || p->stop;
}

static void spin(pool *p, uint32_t seen)
{
    double until = clock_now() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 64; i++) {
            if (has_news(p, seen))
                return;
            pause_briefly();
        }
    } while (clock_now() < fmax(until, p->awake_until));
}

/* Sleeps until there is news, or pool_wake() is called. */
static void sleep_on(pool *p, uint32_t seen)
{
    pthread_mutex_lock(&p->lock);
    p->n_asleep++;
    while (!has_news(p, seen) && clock_now() >= p->awake_until)
        pthread_cond_wait(&p->woken, &p->lock);
    p->n_asleep--;
    pthread_mutex_unlock(&p->lock);
}

/* Waits until the job is another than `seen`, or the pool stops: spinning at first. */
static void wait_for_job(pool *p, uint32_t seen)
{
    for (spin(p, seen); !has_news(p, seen); spin(p, seen))
        sleep_on(p, seen);
}

static void *worker_main(void *arg)
{
    pool_thread *w = arg;
    pool *p = w->pool;
    uint32_t seen = 0;
    while (!p->stop) {
        wait_for_job(p, seen);
        seen = job_number(p->ticket);
        work(p, w->index);
    }
    return NULL;
}

static void wake_sleepers(pool *p)
{
    if (p->n_asleep == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->woken);
    pthread_mutex_unlock(&p->lock);
}

int pool_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

pool *pool_new(int n_threads)
{
    pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    CHECK(p);
    *p = (pool){.n_threads = n_threads > 0 ? n_threads : pool_cores()};
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
    CHECK(pthread_cond_init(&p->woken, NULL) == 0);
    p->thread = XNEW_ARRAY(pthread_t, (size_t)p->n_threads);
    p->worker = XNEW_ARRAY(pool_thread, (size_t)p->n_threads);
    int wanted = p->n_threads;
    p->n_threads = 1;
    for (int i = 1; i < wanted; i++) { /* go on with fewer threads when one cannot be created */
        p->worker[i - 1] = (pool_thread){p, i};
        if (pthread_create(&p->thread[i - 1], NULL, worker_main, &p->worker[i - 1]) != 0)
            break;
        p->n_threads++;
    }
    return p;
}

void pool_free(pool *p)
{
    if (!p)
        return;
    p->stop = true;
    wake_sleepers(p);
    for (int i = 1; i < p->n_threads; i++)
        pthread_join(p->thread[i - 1], NULL);
    pthread_cond_destroy(&p->woken);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p->thread);
    free(p);
}

int pool_size(const pool *p)
{
    return p->n_threads;
}

void pool_run(pool *p, int n_items, pool_fn *fn, void *arg)
{
    if (n_items == 1 || p->n_threads == 1) {
        for (int i = 0; i < n_items; i++)
            fn(arg, i, 0);
        return;
    }
    if (n_items <= 0)
        return;
    uint64_t job = (uint64_t)job_number(p->ticket) + 2;
    p->ticket = (uint64_t)(uint32_t)(job - 1) << 32;
    p->n_done = 0;
    p->n_items = n_items;
    p->fn = fn;
    p->arg = arg;
    p->ticket = (uint64_t)(uint32_t)job << 32;
    wake_sleepers(p);
    work(p, 0);
    for (int spins = 0; atomic_load_explicit(&p->n_done, memory_order_acquire) < n_items; spins++) {
        pause_briefly();
        if (spins > 1000) /* a worker was probably preempted: let it have our core */
            sched_yield();
    }
}

void pool_wake(pool *p)
{
    p->awake_until = clock_now() + WOKEN_SECONDS;
    wake_sleepers(p);
}
