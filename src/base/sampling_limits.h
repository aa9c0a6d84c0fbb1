/* sampling_limits.h - what sampling parameters may be, whether from a call, a command line or a model's file */
#ifndef PUNICA_BASE_SAMPLING_LIMITS_H
#define PUNICA_BASE_SAMPLING_LIMITS_H

#define MAX_TEMPERATURE 100
#define MIN_TOP_P 1e-6
#define MIN_REPETITION_PENALTY 1e-6
#define MAX_REPETITION_PENALTY 100
#define MAX_PENALTY 2 /* of presence and frequency, either sign */

#endif
