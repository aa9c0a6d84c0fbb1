/* fault_run.c - see fault_run.h
 *
 * Seeds run in a child process: one that aborts, because the scheduler found itself in disorder, is a failure like any
 * other, and a new child goes on behind it. */
#include "bench/fault_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "bench/fault_sim.h"

enum { MOST_FAILURES = 10 };

/* Shared with the child. */
typedef struct { uint64_t seed; int n_failed; fault_stats stats; } progress;

static void show_progress(const progress *p, uint64_t first, uint64_t last, double *shown)
{
    if (!isatty(STDERR_FILENO) || clock_now() - *shown < 0.2)
        return;
    *shown = clock_now();
    fprintf(stderr, "\rseed %llu of %llu:%llu ", (unsigned long long)p->seed, (unsigned long long)first, (unsigned long long)last);
}

static void say_failed(uint64_t seed, const char *violation)
{
    printf("seed %llu: %s\n    punica simulate --faults --seeds %llu:%llu --trace\n", (unsigned long long)seed, violation,
           (unsigned long long)seed, (unsigned long long)seed);
    fflush(stdout);
}

static void run_one(progress *p, uint64_t seed, bool trace)
{
    buf violation = {0};
    p->seed = seed;
    fault_sim_run(seed, trace, &p->stats, &violation);
    if (violation.len) {
        say_failed(seed, violation.data);
        p->n_failed++;
    }
    buf_free(&violation);
}

static void run_until(progress *p, uint64_t first, uint64_t last, uint64_t from, bool trace)
{
    double shown = 0;
    for (uint64_t seed = from; seed <= last && p->n_failed < MOST_FAILURES; seed++) {
        run_one(p, seed, trace);
        show_progress(p, first, last, &shown);
    }
}

/* Run seeds from `from` in a child. The last one it ran; aborted: it did not end that one. */
static uint64_t run_child(progress *p, uint64_t first, uint64_t last, uint64_t from, bool trace, bool *aborted)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_until(p, first, last, from, trace);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    *aborted = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return p->seed;
}

static void summarise(const progress *p, uint64_t n, double seconds)
{
    const fault_stats *t = &p->stats;
    printf("%llu seeds, %d failed, in %.1f s: %llu events, %llu faults, %llu requests (%llu complete, %llu cancelled, %llu ended as killers), "
           "%llu tokens; %llu evicted, %llu moved, %llu recovered, %llu stale\n",
           (unsigned long long)n, p->n_failed, seconds, (unsigned long long)t->events, (unsigned long long)t->faults,
           (unsigned long long)t->requests, (unsigned long long)t->finished, (unsigned long long)t->cancelled, (unsigned long long)t->killers,
           (unsigned long long)t->tokens, (unsigned long long)t->evicted, (unsigned long long)t->moved, (unsigned long long)t->recovered,
           (unsigned long long)t->stale);
}

int fault_run(uint64_t first, uint64_t last, bool trace)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    double start = clock_now();
    uint64_t seed = first;
    while (seed <= last && p->n_failed < MOST_FAILURES) {
        bool aborted;
        seed = run_child(p, first, last, seed, trace, &aborted);
        if (aborted) {
            say_failed(seed, "aborted, see above");
            p->n_failed++;
        }
        seed++;
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%40s\r", "");
    int n_failed = p->n_failed;
    summarise(p, p->seed - first + 1, clock_now() - start);
    munmap(p, sizeof *p);
    return n_failed;
}
