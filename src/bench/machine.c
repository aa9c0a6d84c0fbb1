/* machine.c - see machine.h */
#include "bench/machine.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

/* The value after "key" and a colon on some line of a /proc file; empty if there is none. */
static void proc_field(const char *path, const char *key, char *out, size_t n)
{
    char line[512];
    out[0] = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, key, strlen(key)) == 0) {
            snprintf(out, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
            out[strcspn(out, "\n")] = 0;
            break;
        }
    }
    if (f)
        fclose(f);
}

void machine_cpu_name(char *out, size_t n)
{
    proc_field("/proc/cpuinfo", "model name", out, n);
    if (!out[0])
        snprintf(out, n, "unknown CPU");
}

static int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static size_t status_kilobytes(const char *key)
{
    char text[64];
    proc_field("/proc/self/status", key, text, sizeof text);
    return (size_t)strtoull(text, NULL, 10) * 1024;
}

size_t machine_resident_peak(void)
{
    return status_kilobytes("VmHWM");
}

void machine_reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f)
        return;
    fputs("5", f);
    fclose(f);
}

typedef struct { const uint64_t *at; size_t n; uint64_t sum; } span;

static void *sum_span(void *arg)
{
    span *s = arg;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= s->n; i += 4) {
        a += s->at[i];
        b += s->at[i + 1];
        c += s->at[i + 2];
        d += s->at[i + 3];
    }
    s->sum = a + b + c + d;
    return NULL;
}

static double sum_once(const uint64_t *buffer, size_t n, int n_threads)
{
    pthread_t thread[256];
    span part[256];
    double start = clock_now();
    for (int i = 0; i < n_threads; i++) {
        part[i] = (span){.at = buffer + n / (size_t)n_threads * (size_t)i, .n = n / (size_t)n_threads};
        CHECK(pthread_create(&thread[i], NULL, sum_span, &part[i]) == 0);
    }
    for (int i = 0; i < n_threads; i++)
        pthread_join(thread[i], NULL);
    return clock_now() - start;
}

double machine_read_bandwidth(int n_threads)
{
    size_t bytes = (size_t)128 << 20, n = bytes / sizeof(uint64_t);
    uint64_t *buffer = xmalloc(bytes);
    memset(buffer, 1, bytes);
    n_threads = n_threads == 0 ? cores_allowed() : n_threads;
    n_threads = n_threads > 256 ? 256 : n_threads;
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double t = sum_once(buffer, n, n_threads);
        best = t < best ? t : best;
    }
    free(buffer);
    return (double)bytes / best;
}
