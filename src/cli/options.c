/* options.c - see options.h */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static void add_value(buf *to, const option *o)
{
    switch (o->kind) {
    case OPT_INT: buf_printf(to, "%d", *(const int *)o->out); return;
    case OPT_SIZE: buf_printf(to, "%zu", *(const size_t *)o->out); return;
    case OPT_U64: buf_printf(to, "%llu", (unsigned long long)*(const uint64_t *)o->out); return;
    case OPT_FLOAT: buf_printf(to, "%g", (double)*(const float *)o->out); return;
    case OPT_DOUBLE: buf_printf(to, "%g", *(const double *)o->out); return;
    case OPT_STRING:
        CHECK(*(const char *const *)o->out);
        buf_add_str(to, *(const char *const *)o->out);
        return;
    case OPT_FLAG:
    case OPT_LIST: CHECK(false); /* they have no value to print */
    }
}

static void add_row(buf *to, const option *o)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    buf_printf(to, "  %-26s ", left);
    for (const char *c = o->help; *c; c++) {
        if (*c == '%')
            add_value(to, o);
        else
            buf_add_char(to, *c);
    }
    buf_add_char(to, '\n');
}

static void write_help(buf *to, const command_line *c)
{
    const option help = {"help", OPT_FLAG, .help = "show this and exit"};
    buf_printf(to, "usage: %s\n\n%s\n\n", c->usage, c->about);
    for (const option *o = c->options; o->name; o++) {
        if (o->out)
            add_row(to, o);
        else
            buf_printf(to, "\n%s:\n", o->name);
    }
    add_row(to, &help);
}

static const option *find(const command_line *c, const char *name, size_t n)
{
    for (const option *o = c->options; o->name; o++)
        if (o->out && strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    return NULL;
}

static int set_number(const option *o, const char *text, err *e)
{
    char *end;
    errno = 0;
    if (o->kind == OPT_U64) {
        unsigned long long n = strtoull(text, &end, 10);
        if (end == text || *end || errno || strchr(text, '-'))
            return err_set(e, "--%s takes a number of 0 or more, not \"%s\"", o->name, text);
        *(uint64_t *)o->out = n;
        return 0;
    }
    bool whole = o->kind == OPT_INT || o->kind == OPT_SIZE;
    CHECK(o->kind != OPT_SIZE || (o->min >= 0 && o->max > o->min));
    double x = whole ? (double)strtol(text, &end, 10) : strtod(text, &end);
    if (end == text || *end || errno || !isfinite(x))
        return err_set(e, "--%s takes %s, not \"%s\"", o->name, whole ? "an integer" : "a number", text);
    if (o->min != o->max && (x < o->min || x > o->max))
        return err_set(e, "--%s must be between %g and %g, not %s", o->name, o->min, o->max, text);
    if (o->kind == OPT_INT && (x < -2147483648.0 || x > 2147483647.0))
        return err_set(e, "--%s: %s is too large", o->name, text);
    if (o->kind == OPT_INT)
        *(int *)o->out = (int)x;
    else if (o->kind == OPT_SIZE)
        *(size_t *)o->out = (size_t)x;
    else if (o->kind == OPT_DOUBLE)
        *(double *)o->out = x;
    else
        *(float *)o->out = (float)x;
    return 0;
}

static int set(const option *o, const char *value, err *e)
{
    if (o->kind == OPT_STRING) {
        *(const char **)o->out = value;
        return 0;
    }
    if (o->kind == OPT_LIST) {
        option_list *l = o->out;
        l->items = xrealloc(l->items, (size_t)(l->n + 1) * sizeof *l->items);
        l->items[l->n++] = value;
        return 0;
    }
    return set_number(o, value, e);
}

/* Reads one "--name", "--name value" or "--name=value" at argv[*i]; moves *i to a separate value. */
static int parse_one(const command_line *c, int argc, char **argv, int *i, err *e)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const option *o = find(c, name, n);
    if (!o)
        return err_set(e, "unknown option --%.*s; see --help", (int)n, name);
    if (o->kind == OPT_FLAG) {
        if (equals)
            return err_set(e, "--%s takes no value", o->name);
        *(bool *)o->out = true;
        return 0;
    }
    if (!equals && *i + 1 >= argc)
        return err_set(e, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
    return set(o, equals ? equals + 1 : argv[++*i], e);
}

/* help was written before any option is read, since it shows the defaults. */
static int parse_all(const command_line *c, int argc, char **argv, const buf *help, err *e)
{
    int n_words = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            fputs(help->data, stdout);
            return 1;
        }
        if (a[0] == '-' && a[1] == '-' && a[2]) {
            if (parse_one(c, argc, argv, &i, e))
                return -1;
        } else if (a[0] == '-' && a[1]) {
            return err_set(e, "unknown option %s; see --help", a);
        } else if (n_words < c->n_positional) {
            c->positional[n_words++] = a;
        } else {
            return err_set(e, "unexpected argument \"%s\"; see --help", a);
        }
    }
    if (n_words < c->n_positional - c->n_optional)
        return err_set(e, "too few arguments; usage: %s", c->usage);
    return 0;
}

int options_parse(const command_line *c, int argc, char **argv, err *e)
{
    buf help = {0};
    write_help(&help, c);
    int status = parse_all(c, argc, argv, &help, e);
    buf_free(&help);
    return status;
}

int command_fail(const char *message)
{
    fprintf(stderr, "punica: %s\n", message);
    return 2;
}
