/* arg_list.h - a command line in the making, for a process of ours that is to be started */
#ifndef PUNICA_CLI_ARG_LIST_H
#define PUNICA_CLI_ARG_LIST_H

#include <stddef.h>

/* All zero: empty. Strings are owned. */
typedef struct {
    const char **at; /* [n] */
    size_t n, cap;
} arg_list;

void arg_list_add(arg_list *l, const char *word);

/* "--name value", the value printed by fmt. */
void arg_list_add_option(arg_list *l, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Of the array of a list. */
void arg_list_free(const char *const *at, int n);

#endif
