/* signals.c - see signals.h */
#include "scheduler/signals.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static int by_uuid(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The idle GPUs that can go, slow ones first, by uuid: [*n], owned by the caller. The scheduler prefers the highest
 * uuid, so that one stays where no other has room. */
static const char **spare_gpus(const scheduler *s, int n_numbers, int *n)
{
    const char **uuid = XNEW_ARRAY(const char *, (size_t)n_numbers + 1);
    gpu_state g;
    *n = 0;
    for (int slow = 1; slow >= 0; slow--) {
        int first = *n;
        for (int i = 0; i < n_numbers; i++)
            if (scheduler_get_gpu(s, i, &g) && g.n_running == 0 && !g.draining && g.slow == slow)
                uuid[(*n)++] = g.uuid;
        qsort(uuid + first, (size_t)(*n - first), sizeof *uuid, by_uuid);
    }
    if (*n > 0 && scheduler_get_stats(s).n_light == 0)
        (*n)--;
    return uuid;
}

void signals_write_wish(buf *out, const scheduler *s, int n_numbers)
{
    if (scheduler_get_stats(s).wants_more) {
        buf_add_str(out, "up");
        return;
    }
    int n;
    const char **spare = spare_gpus(s, n_numbers, &n);
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s %s", i == 0 ? "down" : "", spare[i]);
    free(spare);
}

static json_t *gpu_list(const scheduler *s, int n_numbers)
{
    json_t *list = json_array();
    gpu_state g;
    for (int i = 0; i < n_numbers; i++)
        if (scheduler_get_gpu(s, i, &g))
            json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:i, s:i, s:b, s:b}", "uuid", g.uuid, "running",
                                                  g.n_running, "max_batch", g.max_batch, "pages_free", g.pages_free,
                                                  "pages", g.n_pages, "draining", g.draining, "slow", g.slow));
    return list;
}

static json_t *spare_list(const scheduler *s, int n_numbers)
{
    int n;
    const char **spare = spare_gpus(s, n_numbers, &n);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(spare[i]));
    free(spare);
    return list;
}

void signals_write_json(buf *out, const scheduler *s, int n_numbers, int n_frontends)
{
    scheduler_stats t = scheduler_get_stats(s);
    json_t *all = json_pack("{s:b, s:o, s:i, s:i, s:i, s:o}", "scale_up", t.wants_more, "scale_down",
                            spare_list(s, n_numbers), "queued", t.n_queued, "running", t.n_running, "frontends",
                            n_frontends, "gpus", gpu_list(s, n_numbers));
    CHECK(all);
    char *text = json_dumps(all, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(all);
}

static void add_gauge(buf *out, const char *name, const char *help, double value)
{
    buf_printf(out, "# HELP punica_%s %s\n# TYPE punica_%s gauge\npunica_%s %g\n", name, help, name, name, value);
}

static void add_counter(buf *out, const char *name, const char *help, uint64_t value)
{
    buf_printf(out, "# HELP punica_%s_total %s\n# TYPE punica_%s_total counter\n", name, help, name);
    buf_printf(out, "punica_%s_total %" PRIu64 "\n", name, value);
}

static int64_t gpu_running(const gpu_state *g)
{
    return g->n_running;
}

static int64_t gpu_slow(const gpu_state *g)
{
    return g->slow;
}

static int64_t gpu_pages_free(const gpu_state *g)
{
    return g->pages_free;
}

static int64_t gpu_host_pages(const gpu_state *g)
{
    return g->host.n_pages;
}

static int64_t gpu_saved(const gpu_state *g)
{
    return (int64_t)g->host.saved;
}

static int64_t gpu_fetched(const gpu_state *g)
{
    return (int64_t)g->host.fetched;
}

static int64_t gpu_fetched_tokens(const gpu_state *g)
{
    return (int64_t)g->host.fetched * g->page_len;
}

/* A label's value: what would end it is escaped. */
static void add_label(buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            buf_add_char(out, '\\');
        if (*value == '\n')
            buf_add_str(out, "\\n");
        else
            buf_add_char(out, *value);
    }
}

static void add_per_gpu(buf *out, const scheduler *s, int n_numbers, const char *type, const char *name,
                        const char *help, int64_t (*value)(const gpu_state *))
{
    gpu_state g;
    buf_printf(out, "# HELP punica_gpu_%s %s\n# TYPE punica_gpu_%s %s\n", name, help, name, type);
    for (int i = 0; i < n_numbers; i++)
        if (scheduler_get_gpu(s, i, &g)) {
            buf_printf(out, "punica_gpu_%s{uuid=\"", name);
            add_label(out, g.uuid);
            buf_printf(out, "\"} %" PRId64 "\n", value(&g));
        }
}

/* What each GPU is: its devices, how many ranks a model is split over, the form of its weights and KvCache. */
static void add_gpu_info(buf *out, const scheduler *s, int n_numbers)
{
    gpu_state g;
    buf_add_str(out, "# HELP punica_gpu_info what a GPU is, in words\n# TYPE punica_gpu_info gauge\n");
    for (int i = 0; i < n_numbers; i++)
        if (scheduler_get_gpu(s, i, &g)) {
            buf_add_str(out, "punica_gpu_info{uuid=\"");
            add_label(out, g.uuid);
            buf_add_str(out, "\",device=\"");
            add_label(out, g.device);
            buf_add_str(out, "\"} 1\n");
        }
}

void signals_write_metrics(buf *out, const scheduler *s, int n_numbers, int n_frontends)
{
    scheduler_stats t = scheduler_get_stats(s);
    int n_spare;
    free(spare_gpus(s, n_numbers, &n_spare));
    add_gauge(out, "frontends", "frontends connected", n_frontends);
    add_gpu_info(out, s, n_numbers);
    add_gauge(out, "gpus", "GPUs ready to serve", t.n_gpus);
    add_gauge(out, "gpus_idle", "GPUs without a request", t.n_idle);
    add_gauge(out, "gpus_light", "GPUs with few requests", t.n_light);
    add_gauge(out, "gpus_full", "GPUs at their batch limit", t.n_full);
    add_gauge(out, "gpus_slow", "GPUs whose steps take much longer than they should", t.n_slow);
    add_gauge(out, "requests_running", "requests on GPUs", t.n_running);
    add_gauge(out, "requests_queued", "requests that wait for a GPU", t.n_queued);
    add_gauge(out, "requests_suspect", "requests whose worker died and that have made no token since", t.n_suspects);
    add_gauge(out, "scale_up_wanted", "1 when no lightly loaded GPU is left", t.wants_more);
    add_gauge(out, "scale_down_possible", "idle GPUs that can go", n_spare);
    add_counter(out, "requests_submitted", "requests that frontends have submitted, again or for the first time",
                t.submitted);
    add_counter(out, "requests_finished", "requests that ran to their end", t.finished);
    add_counter(out, "requests_failed", "requests that ended with an error", t.failed);
    add_counter(out, "requests_refused", "requests refused for a full queue or a long wait", t.refused);
    add_counter(out, "requests_cancelled", "requests given up by their frontend", t.cancelled);
    add_counter(out, "requests_evicted", "times a request left a GPU short of pages", t.evicted);
    add_counter(out, "requests_moved", "times a request was moved to another GPU", t.moved);
    add_counter(out, "requests_recovered", "times a request lost its GPU and went on", t.recovered);
    add_counter(out, "stale_reports", "reports of attempts that were over", t.stale);
    add_per_gpu(out, s, n_numbers, "gauge", "requests_running", "requests on this GPU", gpu_running);
    add_per_gpu(out, s, n_numbers, "gauge", "slow", "1 when its steps take much longer than they should", gpu_slow);
    add_per_gpu(out, s, n_numbers, "gauge", "pages_free", "free KvCache pages", gpu_pages_free);
    add_per_gpu(out, s, n_numbers, "gauge", "host_pages", "pages of the prefix cache in host memory", gpu_host_pages);
    add_per_gpu(out, s, n_numbers, "counter", "host_pages_saved_total", "pages copied to host memory", gpu_saved);
    add_per_gpu(out, s, n_numbers, "counter", "host_pages_fetched_total", "pages that came back from host memory",
                gpu_fetched);
    add_per_gpu(out, s, n_numbers, "counter", "host_cached_tokens_total",
                "tokens in pages that came back from host memory", gpu_fetched_tokens);
}
