/* prometheus.c - see prometheus.h */
#include "base/prometheus.h"

#include <inttypes.h>

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
