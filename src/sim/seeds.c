/* seeds.c - see seeds.h
 *
 * Seeds run in a child process: a seed that aborts, by a CHECK, or does not end, is a failure like any other, and a new
 * child goes on with the next one. A scenario that fails is run again with fewer faults (shrinking): first the shortest
 * prefix of the faults that still fails, then without each fault that is not needed. */
#include "sim/seeds.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "sim/scenario.h"

enum { MOST_FAILURES = 10, MOST_SECONDS_OF_A_SEED = 60 };

/* In memory shared with the child. */
typedef struct {
    uint64_t seed, n_done;
    bool failed;  /* the last seed did, by a violation */
    int n_faults; /* of that seed */
    char violation[400];
    scenario_stats stats;
} progress;

typedef struct {
    const seeds_options *opt;
    double give_up, shown;
} range;

static void show_progress(const progress *p, range *r)
{
    if (!isatty(STDERR_FILENO) || clock_now() - r->shown < 0.2)
        return;
    r->shown = clock_now();
    fprintf(stderr, "\rseed %llu of %llu:%llu ", (unsigned long long)p->seed, (unsigned long long)r->opt->first,
            (unsigned long long)r->opt->last);
}

/* Limits CPU time, as the machine may be busy, and, more generously, wall time, in case a scenario blocks. */
static void limit_time(void)
{
    const struct itimerval most = {.it_value.tv_sec = MOST_SECONDS_OF_A_SEED};
    CHECK(setitimer(ITIMER_PROF, &most, NULL) == 0);
    alarm(30 * MOST_SECONDS_OF_A_SEED);
}

static void run_one(progress *p, uint64_t seed, const fault_mask *without, bool trace)
{
    buf violation = {0};
    p->seed = seed;
    p->failed = false;
    limit_time();
    p->n_faults = scenario_run(seed, without, trace, &p->stats, &violation);
    p->n_done++;
    p->failed = violation.len > 0;
    snprintf(p->violation, sizeof p->violation, "%s", violation.len ? violation.data : "");
    buf_free(&violation);
}

/* Runs seeds from `from` on in a child, until one fails. Returns whether one did; p->seed is the last that ran. */
static bool run_child(progress *p, range *r, uint64_t from)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (uint64_t seed = from; seed <= r->opt->last && clock_now() < r->give_up; seed++) {
            run_one(p, seed, NULL, r->opt->trace);
            if (p->failed)
                break;
            show_progress(p, r);
        }
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return p->failed;
    bool endless = WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM);
    snprintf(p->violation, sizeof p->violation, "%s, see above", endless ? "it does not end" : "aborted");
    p->n_faults = MOST_FAULTS;
    return true;
}

/* Returns whether the seed fails without these faults; prints nothing. */
static bool still_fails(progress *p, uint64_t seed, const fault_mask *without)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        dup2(null, STDOUT_FILENO);
        run_one(p, seed, without, false);
        _exit(p->failed);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void leave_out_from(fault_mask *m, int n)
{
    for (int i = 0; i < MOST_FAULTS; i++)
        m->out[i] = i >= n;
}

/* Finds a minimal set of faults with which the seed still fails; the others are marked in m. */
static void shrink(progress *p, uint64_t seed, int n_faults, fault_mask *m)
{
    int n = 0;
    for (leave_out_from(m, n); n < n_faults && !still_fails(p, seed, m); n++)
        leave_out_from(m, n + 1);
    for (int i = n - 2; i >= 0; i--) {
        m->out[i] = true;
        if (!still_fails(p, seed, m))
            m->out[i] = false;
    }
}

static void say_needed_faults(progress *p, uint64_t seed)
{
    fault_mask m;
    progress before = *p;
    shrink(p, seed, p->n_faults, &m);
    printf("    it takes no more than these faults:\n");
    fflush(stdout);
    scenario_print_faults(seed, &m);
    *p = before;
}

static void say_failed(progress *p, bool only_first)
{
    unsigned long long seed = p->seed;
    printf("seed %llu: %s\n", seed, p->violation);
    if (!only_first)
        say_needed_faults(p, seed);
    printf("    punica simulate --faults --seeds %llu:%llu --trace\n", seed, seed);
}

static void summarise(const progress *p, int n_failed, double seconds)
{
    const scenario_stats *t = &p->stats;
    const cluster_counts *c = &t->counts;
    printf("%llu seeds, %d failed, in %.1f s: %llu tasks, %llu faults, %llu clients (%llu answered, %llu refused, %llu "
           "left, %llu requests ended "
           "as killers, of %llu clients that are none), %llu tokens; %llu evicted, %llu moved, %llu recovered, %llu "
           "stale\n",
           (unsigned long long)p->n_done, n_failed, seconds, (unsigned long long)t->tasks,
           (unsigned long long)t->faults, (unsigned long long)t->clients, (unsigned long long)c->finished,
           (unsigned long long)c->refused, (unsigned long long)c->cancelled, (unsigned long long)c->killers,
           (unsigned long long)c->innocents, (unsigned long long)c->tokens, (unsigned long long)c->evicted,
           (unsigned long long)c->moved, (unsigned long long)c->recovered, (unsigned long long)c->stale);
}

int seeds_run(const seeds_options *o)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    double start = clock_now();
    range r = {.opt = o, .give_up = o->seconds > 0 ? start + o->seconds : 1e300};
    int n_failed = 0, most = o->only_first ? 1 : MOST_FAILURES;
    uint64_t seed = o->first;
    while (seed <= o->last && n_failed < most && clock_now() < r.give_up) {
        p->seed = seed;
        if (run_child(p, &r, seed)) {
            say_failed(p, o->only_first);
            n_failed++;
        }
        seed = p->seed + 1;
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%40s\r", "");
    summarise(p, n_failed, clock_now() - start);
    munmap(p, sizeof *p);
    return n_failed;
}
