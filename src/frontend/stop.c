/* stop.c - see stop.h */
#include "frontend/stop.h"

#include <string.h>

bool stop_find(const stop_string *s, int n_stops, const char *text, size_t from, size_t n, size_t *at, size_t *end)
{
    bool found = false;
    for (int i = 0; i < n_stops && from < n; i++) {
        const char *hit = memmem(text + from, n - from, s[i].text, s[i].n);
        if (hit && (!found || (size_t)(hit - text) < *at)) {
            *at = (size_t)(hit - text);
            *end = *at + s[i].n;
            found = true;
        }
    }
    return found;
}

/* Returns whether text[start..n) is the beginning of some stop string, but not all of it. */
static bool may_begin(const stop_string *s, int n_stops, const char *text, size_t start, size_t n)
{
    for (int i = 0; i < n_stops; i++)
        if (n - start < s[i].n && memcmp(text + start, s[i].text, n - start) == 0)
            return true;
    return false;
}

size_t stop_safe(const stop_string *s, int n_stops, const char *text, size_t from, size_t n)
{
    size_t longest = 1;
    for (int i = 0; i < n_stops; i++)
        longest = s[i].n > longest ? s[i].n : longest;
    size_t start = n - from >= longest ? n - longest + 1 : from;
    while (start < n && !may_begin(s, n_stops, text, start, n))
        start++;
    return start;
}
