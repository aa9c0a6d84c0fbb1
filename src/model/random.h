/* random.h - random weights for benchmarks, in any stored type */
#ifndef PUNICA_MODEL_RANDOM_H
#define PUNICA_MODEL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

/* Fills n words of 8 bytes with random signs and mantissas under one exponent: values in ±[2^exponent, 2^(exponent +
 * 1)). */
void random_fill(uint64_t *bits, size_t n, dtype type, int exponent, uint64_t seed);

/* The same in backend memory, for any number of bytes; repeats every 32 MiB. */
void random_upload(backend *be, void *dst, size_t bytes, dtype type, int exponent);

#endif
