/* options.c - see options.h */
#include "cli/options.h"

#include <ctype.h>
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
    case OPT_INTS: {
        const option_ints *l = o->out;
        for (int i = 0; i < *l->n; i++)
            buf_printf(to, "%s%d", i ? "," : "", l->at[i]);
        return;
    }
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

/* Returns how much of the usage is the command's name: the words in small letters that it begins with. */
static int name_length(const command_line *c)
{
    const char *end = c->usage + strcspn(c->usage, " ");
    while (end[0] == ' ' && islower((unsigned char)end[1]))
        end += 1 + strcspn(end + 1, " ");
    return (int)(end - c->usage);
}

static const option *find_option(const command_line *c, const char *name, size_t n)
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

static int set_ints(const option *o, const char *text, err *e)
{
    const option_ints *l = o->out;
    CHECK(o->max > o->min);
    *l->n = 0;
    for (const char *at = text; *at || *l->n == 0;) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || (*end && (*end != ',' || !end[1])) || (double)value < o->min || (double)value > o->max ||
            *l->n == l->most)
            return err_set(e, "--%s takes up to %d numbers from %.0f to %.0f separated by commas, not \"%s\"", o->name,
                           l->most, o->min, o->max, text);
        l->at[(*l->n)++] = (int)value;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int set(const option *o, const char *value, err *e)
{
    if (o->kind == OPT_INTS)
        return set_ints(o, value, e);
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
    const option *o = find_option(c, name, n);
    if (!o)
        return err_set(e, "unknown option --%.*s; see %.*s --help", (int)n, name, name_length(c), c->usage);
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
            return err_set(e, "unknown option %s; see %.*s --help", a, name_length(c), c->usage);
        } else if (n_words < c->n_positional) {
            c->positional[n_words++] = a;
        } else {
            return err_set(e, "unexpected argument \"%s\"; see %.*s --help", a, name_length(c), c->usage);
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

static bool is_given(const option *o)
{
    double x = 0;
    switch (o->kind) {
    case OPT_INT: x = *(const int *)o->out; break;
    case OPT_FLOAT: x = (double)*(const float *)o->out; break;
    case OPT_DOUBLE: x = *(const double *)o->out; break;
    case OPT_SIZE: x = (double)*(const size_t *)o->out; break;
    case OPT_FLAG: return *(const bool *)o->out;
    case OPT_STRING: return *(const char *const *)o->out != NULL;
    case OPT_U64:
    case OPT_LIST:
    case OPT_INTS: return true;
    }
    return o->min == o->max || (x >= o->min && x <= o->max);
}

static void write_one(const option *o, arg_list *to)
{
    char *name = xasprintf("--%s", o->name);
    buf value = {0};
    const option_list *l = o->out;
    if (o->kind == OPT_FLAG)
        arg_list_add(to, name);
    else if (o->kind == OPT_LIST)
        for (int i = 0; i < l->n; i++)
            arg_list_add_option(to, name, "%s", l->items[i]);
    else {
        if (o->kind == OPT_DOUBLE)
            buf_printf(&value, "%.17g", *(const double *)o->out); /* the help rounds */
        else
            add_value(&value, o);
        arg_list_add_option(to, name, "%s", value.data);
    }
    buf_free(&value);
    free(name);
}

void options_write(const option *options, arg_list *to)
{
    for (const option *o = options; o->name; o++)
        if (o->out && is_given(o))
            write_one(o, to);
}

int command_fail(const char *message)
{
    fprintf(stderr, "punica: %s\n", message);
    return 2;
}
