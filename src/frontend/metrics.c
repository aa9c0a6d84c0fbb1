/* metrics.c - see metrics.h */
#include "frontend/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/prometheus.h"

enum { MAX_MODELS = 65536 }; /* counted by name */

/* Seconds, from a fast GPU's step to a long wait in the queue. */
static const double bounds[HISTOGRAM_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15,
                                                 0.3,   0.6,    1.2,   2.5,  5,    10,   30,   60};

void metrics_deinit(metrics *m)
{
    for (size_t i = 0; i < m->n_models; i++)
        free(m->model[i].name);
    free(m->model);
    map_free(m->by_name);
    free(m->answers);
}

void metrics_count_answer(metrics *m, const char *route, const char *kind, int status)
{
    size_t i = 0;
    while (i < m->n_answers && (strcmp(m->answers[i].route, route) != 0 || strcmp(m->answers[i].kind, kind) != 0 ||
                                m->answers[i].status != status))
        i++;
    if (i == m->n_answers) {
        m->answers = xgrow(m->answers, &m->answers_cap, i + 1, sizeof *m->answers);
        m->answers[m->n_answers++] = (metrics_answers){.route = route, .kind = kind, .status = status};
    }
    m->answers[i].n++;
}

void metrics_count_model(metrics *m, const char *name, int64_t prompt, int64_t output)
{
    if (!m->by_name)
        m->by_name = map_new(64);
    if (m->n_models >= MAX_MODELS && !map_get(m->by_name, name, strlen(name), NULL))
        name = "other";
    int64_t i = (int64_t)m->n_models;
    if (!map_get(m->by_name, name, strlen(name), &i)) {
        map_put(m->by_name, name, strlen(name), i);
        m->model = xgrow(m->model, &m->models_cap, m->n_models + 1, sizeof *m->model);
        m->model[m->n_models++] = (metrics_model){.name = xstrdup(name)};
    }
    m->model[i].calls++;
    m->model[i].prompt += (uint64_t)prompt;
    m->model[i].output += (uint64_t)output;
}

void histogram_add(histogram *h, double seconds)
{
    int i = 0;
    while (i < HISTOGRAM_BUCKETS && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
}

void metrics_write_histogram(buf *out, const char *name, const char *help, const histogram *h)
{
    prometheus_add_histogram(out, name, help, bounds, h->count, HISTOGRAM_BUCKETS, h->sum);
}

static int by_use(const void *pa, const void *pb)
{
    const metrics_model *a = pa, *b = pb;
    uint64_t x = a->prompt + a->output, y = b->prompt + b->output;
    return x < y ? 1 : x > y ? -1 : strcmp(a->name, b->name);
}

static void write_models(buf *out, const char *name, const char *help, const metrics_model *top, size_t n,
                         size_t offset)
{
    prometheus_item *item = XNEW_ARRAY(prometheus_item, n + 1);
    for (size_t i = 0; i < n; i++)
        item[i] = (prometheus_item){top[i].name, *(const uint64_t *)((const char *)&top[i] + offset)};
    prometheus_add_top(out, name, help, "model", item, n, 0);
    free(item);
}

void metrics_write_models(const metrics *m, buf *out)
{
    metrics_model *top = XNEW_ARRAY(metrics_model, m->n_models + 1);
    if (m->n_models) {
        memcpy(top, m->model, m->n_models * sizeof *top);
        qsort(top, m->n_models, sizeof *top, by_use);
    }
    write_models(out, "model_calls_total", "Calls that were answered, by adapter or base.", top, m->n_models,
                 offsetof(metrics_model, calls));
    write_models(out, "model_prompt_tokens_total", "Tokens of their prompts.", top, m->n_models,
                 offsetof(metrics_model, prompt));
    write_models(out, "model_output_tokens_total", "Tokens of their outputs.", top, m->n_models,
                 offsetof(metrics_model, output));
    free(top);
}

void metrics_write(const metrics *m, buf *out)
{
    prometheus_add_family(out, "http_requests_total", "counter", "Answers by route, kind of model and HTTP status.");
    for (size_t i = 0; i < m->n_answers; i++) {
        const metrics_answers *a = &m->answers[i];
        char status[12];
        snprintf(status, sizeof status, "%d", a->status);
        const prometheus_label label[] = {{"route", a->route}, {"kind", a->kind}, {"status", status}};
        prometheus_add_sample(out, "http_requests_total", label, 3, a->n);
    }
    prometheus_add(out, "prompt_tokens_total", "counter", "Tokens of prompts taken in.", m->prompt_tokens);
    prometheus_add(out, "cached_tokens_total", "counter", "Tokens of prompts that were in the KvCache already.",
                   m->cached_tokens);
    prometheus_add(out, "completion_tokens_total", "counter", "Tokens of output received.", m->completion_tokens);
    prometheus_add(out, "live_calls", "gauge", "Calls of clients that are being answered.", (uint64_t)m->live_calls);
    prometheus_add(out, "live_requests", "gauge", "Requests at the scheduler: one for each choice of a call.",
                   (uint64_t)m->live_requests);
    prometheus_add(out, "http_connections", "gauge", "Connections of clients.", (uint64_t)m->connections);
    prometheus_add(out, "request_memory_bytes", "gauge", "Memory of large requests and answers, of --max-memory.",
                   m->memory);
    prometheus_add(out, "client_disconnects_total", "counter", "Clients that left before their answer's end.",
                   m->disconnects);
    prometheus_add(out, "clients_cut_off_total", "counter", "Clients cut off because they did not read.", m->cut_off);
    prometheus_add(out, "scheduler_reconnections_total", "counter", "Times a lost link to the scheduler came back.",
                   m->reconnections);
    metrics_write_histogram(out, "time_to_first_token_seconds", "From a request's arrival to its first token.",
                            &m->first_token);
    metrics_write_histogram(out, "inter_token_seconds", "Between tokens of a request.", &m->next_token);
}
