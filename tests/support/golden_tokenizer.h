/* golden_tokenizer.h - the tokenizers that tools/golden_tokenizer.py made */
#ifndef PUNICA_TESTS_SUPPORT_GOLDEN_TOKENIZER_H
#define PUNICA_TESTS_SUPPORT_GOLDEN_TOKENIZER_H

#include "text/tokenizer.h"

#define GOLDEN TEST_DATA "/golden/tokenizer/"

/* Loads one of them, by its folder's name; the test fails if it cannot. Free with tokenizer_free(). */
tokenizer *golden_tokenizer(const char *name);

#endif
