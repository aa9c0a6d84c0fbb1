/* spans.c - see spans.h */
#include "text/spans.h"

#include <stdlib.h>

#include "base/mem.h"

void text_spans_add(text_spans *s, size_t from, size_t to)
{
    if (from == to)
        return;
    if (s->n && s->at[s->n - 1].to == from) {
        s->at[s->n - 1].to = to;
        return;
    }
    s->at = xgrow(s->at, &s->cap, s->n + 1, sizeof *s->at);
    s->at[s->n++] = (text_span){from, to};
}

void text_spans_free(text_spans *s)
{
    free(s->at);
    *s = (text_spans){0};
}

size_t text_spans_find(const text_spans *s, size_t at)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->at[mid].to <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool text_spans_cover(const text_spans *s, size_t from, size_t to)
{
    size_t i = text_spans_find(s, from);
    return i < s->n && s->at[i].from <= from && to <= s->at[i].to;
}
