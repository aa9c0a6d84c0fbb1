/* rng.h - counter-based randomness
 *
 * A draw is a pure function of (seed, counter): no state travels with a request, so a request
 * that moves to another device, or runs again, draws the same numbers. */
#ifndef PUNICA_BASE_RNG_H
#define PUNICA_BASE_RNG_H

#include <stdint.h>

/* A bijection of 64 bits in which every input bit moves half of the output bits. */
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns 64 well-mixed bits. */
static inline uint64_t rng_u64(uint64_t seed, uint64_t counter)
{
    return rng_mix(rng_mix(seed + 0x9e3779b97f4a7c15u) ^ (counter * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du));
}

/* Returns a number uniform in [0, 1), with 53 bits. */
static inline double rng_uniform(uint64_t seed, uint64_t counter)
{
    return (double)(rng_u64(seed, counter) >> 11) * 0x1p-53;
}

#endif
