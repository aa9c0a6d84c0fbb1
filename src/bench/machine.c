/* machine.c - see machine.h */
#include "bench/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
