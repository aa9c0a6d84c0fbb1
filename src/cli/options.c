/* options.c - see options.h */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void print_help(const command_line *c)
{
    printf("usage: %s\n\n%s\n\n", c->usage, c->about);
    for (const option *o = c->options; o->name; o++) {
        if (!o->out) {
            printf("\n%s:\n", o->name);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        printf("  %-26s %s\n", left, o->help);
    }
    printf("  %-26s %s\n", "--help", "show this and exit");
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
        if (end == text || *end || errno || text[0] == '-')
            return err_set(e, "--%s takes a number of 0 or more, not \"%s\"", o->name, text);
        *(uint64_t *)o->out = n;
        return 0;
    }
    bool whole = o->kind == OPT_INT || o->kind == OPT_SIZE;
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

/* One "--name", "--name value" or "--name=value" at argv[*i]; *i moves past a separate value. */
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

int options_parse(const command_line *c, int argc, char **argv, err *e)
{
    int n_words = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            print_help(c);
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

int command_fail(const char *message)
{
    fprintf(stderr, "punica: %s\n", message);
    return 2;
}
