/* signals.c - see signals.h */
#include "scheduler/signals.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/prometheus.h"
#include "base/sort.h"

/* Returns the uuids of the idle GPUs that can go, slow ones first, then by uuid: [*n], the array owned by the caller.
 * Where no GPU is lightly loaded, the last stays: of idle ones the scheduler uses the highest uuid first. */
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
        qsort(uuid + first, (size_t)(*n - first), sizeof *uuid, sort_by_text);
    }
    if (*n > 0 && scheduler_get_stats(s).n_light == 0)
        (*n)--;
    return uuid;
}

void signals_write_advice(buf *out, const scheduler *s, int n_numbers)
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

static uint64_t gpu_running(const gpu_state *g)
{
    return (uint64_t)g->n_running;
}

static uint64_t gpu_slow(const gpu_state *g)
{
    return g->slow;
}

static uint64_t gpu_pages_free(const gpu_state *g)
{
    return (uint64_t)g->pages_free;
}

static uint64_t gpu_host_pages(const gpu_state *g)
{
    return (uint64_t)g->host.n_pages;
}

static uint64_t gpu_saved(const gpu_state *g)
{
    return g->host.saved;
}

static uint64_t gpu_fetched(const gpu_state *g)
{
    return g->host.fetched;
}

static uint64_t gpu_fetched_tokens(const gpu_state *g)
{
    return g->host.fetched * (uint64_t)g->page_len;
}

static void add_per_gpu(buf *out, const scheduler *s, int n_numbers, const char *type, const char *name,
                        const char *help, uint64_t (*value)(const gpu_state *))
{
    gpu_state g;
    prometheus_add_family(out, name, type, help);
    for (int i = 0; i < n_numbers; i++)
        if (scheduler_get_gpu(s, i, &g))
            prometheus_add_sample(out, name, &(prometheus_label){"uuid", g.uuid}, 1, value(&g));
}

/* What each GPU is: its devices, how many ranks a model is split over, the form of its weights and KvCache. */
static void add_gpu_info(buf *out, const scheduler *s, int n_numbers)
{
    gpu_state g;
    prometheus_add_family(out, "gpu_info", "gauge", "what a GPU is, in words");
    for (int i = 0; i < n_numbers; i++)
        if (scheduler_get_gpu(s, i, &g)) {
            const prometheus_label label[] = {{"uuid", g.uuid}, {"device", g.device}};
            prometheus_add_sample(out, "gpu_info", label, 2, 1);
        }
}

void signals_write_metrics(buf *out, const scheduler *s, int n_numbers, int n_frontends)
{
    scheduler_stats t = scheduler_get_stats(s);
    int n_spare;
    free(spare_gpus(s, n_numbers, &n_spare));
    prometheus_add(out, "frontends", "gauge", "frontends connected", (uint64_t)n_frontends);
    add_gpu_info(out, s, n_numbers);
    prometheus_add(out, "gpus", "gauge", "GPUs ready to serve", (uint64_t)t.n_gpus);
    prometheus_add(out, "gpus_idle", "gauge", "GPUs without a request", (uint64_t)t.n_idle);
    prometheus_add(out, "gpus_light", "gauge", "GPUs with few requests", (uint64_t)t.n_light);
    prometheus_add(out, "gpus_full", "gauge", "GPUs at their batch limit", (uint64_t)t.n_full);
    prometheus_add(out, "gpus_slow", "gauge", "GPUs whose steps take much longer than they should", (uint64_t)t.n_slow);
    prometheus_add(out, "requests_running", "gauge", "requests on GPUs", (uint64_t)t.n_running);
    prometheus_add(out, "requests_queued", "gauge", "requests that wait for a GPU", (uint64_t)t.n_queued);
    prometheus_add(out, "requests_suspect", "gauge", "requests whose worker died and that have made no token since",
                   (uint64_t)t.n_suspects);
    prometheus_add(out, "scale_up_wanted", "gauge", "1 when no lightly loaded GPU is left", (uint64_t)t.wants_more);
    prometheus_add(out, "scale_down_possible", "gauge", "idle GPUs that can go", (uint64_t)n_spare);
    prometheus_add(out, "requests_submitted_total", "counter",
                   "requests that frontends have submitted, again or for the first time", t.submitted);
    prometheus_add(out, "requests_finished_total", "counter", "requests that ran to their end", t.finished);
    prometheus_add(out, "requests_failed_total", "counter", "requests that ended with an error", t.failed);
    prometheus_add(out, "requests_refused_total", "counter", "requests refused for a full queue or a long wait",
                   t.refused);
    prometheus_add(out, "requests_cancelled_total", "counter", "requests given up by their frontend", t.cancelled);
    prometheus_add(out, "requests_evicted_total", "counter", "times a request left a GPU short of pages", t.evicted);
    prometheus_add(out, "requests_moved_total", "counter", "times a request was moved to another GPU", t.moved);
    prometheus_add(out, "requests_recovered_total", "counter", "times a request lost its GPU and went on", t.recovered);
    prometheus_add(out, "stale_reports_total", "counter", "reports of attempts that were over", t.stale);
    add_per_gpu(out, s, n_numbers, "gauge", "gpu_requests_running", "requests on this GPU", gpu_running);
    add_per_gpu(out, s, n_numbers, "gauge", "gpu_slow", "1 when its steps take much longer than they should", gpu_slow);
    add_per_gpu(out, s, n_numbers, "gauge", "gpu_pages_free", "free KvCache pages", gpu_pages_free);
    add_per_gpu(out, s, n_numbers, "gauge", "gpu_host_pages", "pages of the prefix cache in host memory",
                gpu_host_pages);
    add_per_gpu(out, s, n_numbers, "counter", "gpu_host_pages_saved_total", "pages copied to host memory", gpu_saved);
    add_per_gpu(out, s, n_numbers, "counter", "gpu_host_pages_fetched_total", "pages that came back from host memory",
                gpu_fetched);
    add_per_gpu(out, s, n_numbers, "counter", "gpu_host_cached_tokens_total",
                "tokens in pages that came back from host memory", gpu_fetched_tokens);
}
