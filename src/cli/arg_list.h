/* arg_list.h - builds the arguments of a process that we start */
#ifndef PUNICA_CLI_ARG_LIST_H
#define PUNICA_CLI_ARG_LIST_H

#include <stddef.h>

/* All zero: empty. Strings are owned. */
typedef struct {
    const char **at; /* [n] */
    size_t n, cap;
} arg_list;

void arg_list_add(arg_list *l, const char *word);

/* Adds the two words of "--name value"; name has its dashes, fmt prints the value. */
void arg_list_add_option(arg_list *l, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Frees the array of a list and its strings. */
void arg_list_free(const char *const *at, int n);

#endif
