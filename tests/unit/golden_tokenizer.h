/* golden_tokenizer.h - the tokenizers that tools/golden_tokenizer.py made */
#ifndef PUNICA_TESTS_GOLDEN_TOKENIZER_H
#define PUNICA_TESTS_GOLDEN_TOKENIZER_H

#include <stdlib.h>

#include "base/mem.h"
#include "test.h"
#include "text/tokenizer.h"

#define GOLDEN TEST_DATA "/golden/tokenizer/"

static tokenizer *load_golden(const char *name)
{
    err e;
    char *dir = xasprintf(GOLDEN "%s", name);
    tokenizer *t = tokenizer_load(dir, &e);
    if (!t)
        fail_msg("%s", e.msg);
    free(dir);
    return t;
}

#endif
