/* prometheus.c - see prometheus.h */
#include "base/prometheus.h"

#include <inttypes.h>
#include <string.h>

void prometheus_add_family(buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP punica_%s %s\n# TYPE punica_%s %s\n", name, help, name, type);
}

/* Adds a label's value. Newlines, quotes and backslashes are escaped; other control characters become '?'. */
static void add_value(buf *out, const char *value)
{
    for (; *value; value++)
        if (*value == '\n')
            buf_add_str(out, "\\n");
        else if (*value == '"' || *value == '\\')
            buf_printf(out, "\\%c", *value);
        else
            buf_add_char(out, (unsigned char)*value < ' ' ? '?' : *value);
}

void prometheus_add_sample(buf *out, const char *name, const prometheus_label *label, int n, uint64_t value)
{
    buf_printf(out, "punica_%s", name);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%c%s=\"", i == 0 ? '{' : ',', label[i].name);
        add_value(out, label[i].value);
        buf_add_char(out, '"');
    }
    buf_printf(out, "%s %" PRIu64 "\n", n > 0 ? "}" : "", value);
}

void prometheus_add(buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    prometheus_add_family(out, name, type, help);
    prometheus_add_sample(out, name, NULL, 0, value);
}

void prometheus_add_histogram(buf *out, const char *name, const char *help, const double *bound, const uint64_t *count,
                              int n, double sum)
{
    uint64_t so_far = 0;
    prometheus_add_family(out, name, "histogram", help);
    for (int i = 0; i < n; i++)
        buf_printf(out, "punica_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bound[i], so_far += count[i]);
    so_far += count[n];
    buf_printf(out, "punica_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, so_far);
    buf_printf(out, "punica_%s_sum %.9g\npunica_%s_count %" PRIu64 "\n", name, sum, name, so_far);
}

void prometheus_add_top(buf *out, const char *name, const char *help, const char *label, const prometheus_item *item,
                        size_t n, uint64_t more)
{
    prometheus_add_family(out, name, "counter", help);
    for (size_t i = 0; i < n; i++) {
        if (i < PROMETHEUS_NAMED && strcmp(item[i].name, "other") != 0)
            prometheus_add_sample(out, name, &(prometheus_label){label, item[i].name}, 1, item[i].value);
        else
            more += item[i].value;
    }
    prometheus_add_sample(out, name, &(prometheus_label){label, "other"}, 1, more);
}
