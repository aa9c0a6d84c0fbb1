/* metrics.c - see metrics.h */
#include "frontend/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* From a fast GPU's step to a long wait in the queue. */
static const double bounds[HISTOGRAM_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15,
                                                 0.3,   0.6,    1.2,   2.5,  5,    10,   30,   60};

void metrics_deinit(metrics *m)
{
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

void histogram_add(histogram *h, double seconds)
{
    int i = 0;
    while (i < HISTOGRAM_BUCKETS && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
}

static void write_head(buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP punica_%s %s\n# TYPE punica_%s %s\n", name, help, name, type);
}

static void write_number(buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    write_head(out, name, type, help);
    buf_printf(out, "punica_%s %llu\n", name, (unsigned long long)value);
}

static void write_histogram(buf *out, const char *name, const char *help, const histogram *h)
{
    write_head(out, name, "histogram", help);
    unsigned long long n = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        buf_printf(out, "punica_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], n += h->count[i]);
    n += h->count[HISTOGRAM_BUCKETS];
    buf_printf(out, "punica_%s_bucket{le=\"+Inf\"} %llu\n", name, n);
    buf_printf(out, "punica_%s_sum %.9g\npunica_%s_count %llu\n", name, h->sum, name, n);
}

void metrics_write(const metrics *m, buf *out)
{
    write_head(out, "http_requests_total", "counter", "Answers by route, kind of model and HTTP status.");
    for (size_t i = 0; i < m->n_answers; i++)
        buf_printf(out, "punica_http_requests_total{route=\"%s\",kind=\"%s\",status=\"%d\"} %llu\n", m->answers[i].route,
                   m->answers[i].kind, m->answers[i].status, (unsigned long long)m->answers[i].n);
    write_number(out, "prompt_tokens_total", "counter", "Tokens of prompts taken in.", m->prompt_tokens);
    write_number(out, "cached_tokens_total", "counter", "Tokens of prompts that were in the KvCache already.", m->cached_tokens);
    write_number(out, "completion_tokens_total", "counter", "Tokens of output received.", m->completion_tokens);
    write_number(out, "live_calls", "gauge", "Calls of clients that are being answered.", (uint64_t)m->live_calls);
    write_number(out, "live_requests", "gauge", "Requests at the scheduler: one for each choice of a call.",
                 (uint64_t)m->live_requests);
    write_number(out, "http_connections", "gauge", "Connections of clients.", (uint64_t)m->connections);
    write_number(out, "request_memory_bytes", "gauge", "Memory of large requests and answers, of --max-memory.", m->memory);
    write_number(out, "client_disconnects_total", "counter", "Clients that left before their answer's end.", m->disconnects);
    write_number(out, "clients_cut_off_total", "counter", "Clients cut off because they did not read.", m->cut_off);
    write_number(out, "scheduler_reconnections_total", "counter", "Times a lost link to the scheduler came back.",
                 m->reconnections);
    write_histogram(out, "time_to_first_token_seconds", "From a request's arrival to its first token.", &m->first_token);
    write_histogram(out, "inter_token_seconds", "Between tokens of a request.", &m->next_token);
}
