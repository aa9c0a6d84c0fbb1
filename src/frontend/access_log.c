/* access_log.c - see access_log.h */
#include "frontend/access_log.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"

static const double RATE = 1000, BURST = 2000; /* lines a second; lines in one burst */

static void add_count(buf *out, const char *what, int64_t n)
{
    if (n < 0)
        buf_printf(out, " %s -", what);
    else
        buf_printf(out, " %s %lld", what, (long long)n);
}

static void add_seconds(buf *out, const char *what, double seconds)
{
    if (seconds < 0)
        buf_printf(out, " %s -", what);
    else
        buf_printf(out, " %s %.3f", what, seconds);
}

/* Appends a name as one word of at most 200 bytes. */
static void add_name(buf *out, const char *name)
{
    for (int i = 0; i < 200 && name[i]; i++)
        buf_add_char(out, (unsigned char)name[i] <= ' ' || name[i] == 127 ? '_' : name[i]);
}

/* Returns whether a line may be written now; if not, it is counted as left out. */
static int may_write(access_log *l, double now)
{
    l->left += (now - l->at) * RATE;
    l->left = l->at == 0 || l->left > BURST ? BURST : l->left;
    l->at = now;
    if (l->left < 1) {
        l->n_left_out++;
        return 0;
    }
    l->left -= 1;
    return 1;
}

void access_log_write(access_log *l, double now, const access_line *a)
{
    if (!l || !may_write(l, now))
        return;
    if (l->n_left_out)
        log_info("%llu lines of requests were left out", (unsigned long long)l->n_left_out);
    l->n_left_out = 0;
    buf text = {0};
    buf_printf(&text, "%.16s ", a->method ? a->method : "-");
    add_name(&text, a->path ? a->path : "-");
    buf_printf(&text, " %d client %s key %s adapter ", a->status, a->client, a->key ? a->key : "-");
    add_name(&text, a->adapter ? a->adapter : "-");
    add_count(&text, "prompt", a->prompt);
    add_count(&text, "output", a->output);
    add_seconds(&text, "first", a->first);
    add_seconds(&text, "total", a->total);
    log_info("%s", text.data);
    buf_free(&text);
}
