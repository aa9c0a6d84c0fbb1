/* adapter_arg.h - an adapter named on a command line: NAME=DIR */
#ifndef PUNICA_REGISTRY_ADAPTER_ARG_H
#define PUNICA_REGISTRY_ADAPTER_ARG_H

#include <stddef.h>

#include "base/err.h"

/* Splits arg at its first '='. Returns DIR, which is the rest of arg; the first *n_name bytes of arg are NAME. NULL
 * with e set when there is no '=', or one of the two is empty. */
const char *adapter_arg_split(const char *arg, size_t *n_name, err *e);

#endif
