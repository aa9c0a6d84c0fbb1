/* adapter_arg.c - see adapter_arg.h */
#include "registry/adapter_arg.h"

#include <string.h>

const char *adapter_arg_split(const char *arg, size_t *n_name, err *e)
{
    const char *equals = strchr(arg, '=');
    if (!equals || equals == arg || !equals[1]) {
        err_set(e, "--adapter takes NAME=DIR, not \"%s\"", arg);
        return NULL;
    }
    *n_name = (size_t)(equals - arg);
    return equals + 1;
}
