/* options.h - command line options from a table, with the help text made from the same table */
#ifndef PUNICA_CLI_OPTIONS_H
#define PUNICA_CLI_OPTIONS_H

#include <stdbool.h>

#include "base/err.h"
#include "cli/arg_list.h"

/* A macro's number in a text. */
#define AS_TEXT(number) AS_TEXT_OF(number)
#define AS_TEXT_OF(x) #x

typedef enum {
    OPT_FLAG,
    OPT_INT,
    OPT_FLOAT,
    OPT_DOUBLE,
    OPT_SIZE,
    OPT_U64,
    OPT_STRING,
    OPT_LIST,
    OPT_INTS
} option_kind;

/* A list collects every use of the option. items borrowed from argv; the array owned. */
typedef struct {
    const char **items;
    int n;
} option_list;

/* Numbers separated by commas, which replace the default ones. */
typedef struct {
    int *at, *n; /* at: [most] */
    int most;
} option_ints;

typedef struct {
    const char *name; /* without the dashes; a heading in the help when out is NULL */
    option_kind kind;
    void *out;        /* bool, int, float, double, size_t, uint64_t, const char *, option_list, option_ints */
    const char *arg;  /* what stands after it in the help, e.g. "DIR" */
    const char *help; /* each '%' in it stands for the value that out has before the command line is read */
    double min, max;  /* for numbers; both 0: no limits, which sizes must have */
} option;

typedef struct {
    const char *usage;       /* "punica tokenize --model DIR [options]" */
    const char *about;       /* a paragraph */
    const option *options;   /* ends with name NULL */
    int n_positional;        /* how many words without dashes are expected */
    int n_optional;          /* how many of them may be missing */
    const char **positional; /* [n_positional], filled */
} command_line;

/* Reads the command line. 0: go on. 1: --help was printed, exit 0. -1: e says what is wrong, exit 2. */
int options_parse(const command_line *c, int argc, char **argv, err *e);

/* Appends what stands in the variables of the options, so that options_parse() reads the same from it. Left out are
 * strings that are NULL, flags that are not set, and numbers beyond their limits: these stand for "not given". */
void options_write(const option *options, arg_list *to);

/* Prints "punica: message" on stderr; returns 2, the exit code of wrong usage and bad input. */
int command_fail(const char *message);

#endif
