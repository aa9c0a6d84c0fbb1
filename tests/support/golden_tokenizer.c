/* golden_tokenizer.c - see golden_tokenizer.h */
#include "support/golden_tokenizer.h"

#include <stdlib.h>

#include "base/mem.h"
#include "support/test.h"

tokenizer *golden_tokenizer(const char *name)
{
    err e;
    char *dir = xasprintf(GOLDEN "%s", name);
    tokenizer *t = tokenizer_load(dir, &e);
    if (!t)
        fail_msg("%s", e.msg);
    free(dir);
    return t;
}
