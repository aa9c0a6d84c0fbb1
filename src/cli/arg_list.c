/* arg_list.c - see arg_list.h */
#include "cli/arg_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

void arg_list_add(arg_list *l, const char *word)
{
    l->at = xgrow(l->at, &l->cap, l->n + 1, sizeof *l->at);
    l->at[l->n++] = xstrdup(word);
}

void arg_list_add_option(arg_list *l, const char *name, const char *fmt, ...)
{
    char *value;
    va_list args;
    va_start(args, fmt);
    CHECK(vasprintf(&value, fmt, args) >= 0);
    va_end(args);
    arg_list_add(l, name);
    arg_list_add(l, value);
    free(value);
}

void arg_list_free(const char *const *at, int n)
{
    for (int i = 0; i < n; i++)
        free((char *)at[i]);
    free((void *)at);
}
