/* excuses.h - which errors a client may be given in place of an answer */
#ifndef PUNICA_SIM_EXCUSES_H
#define PUNICA_SIM_EXCUSES_H

#include "sim/cluster.h"

/* Returns whether the error that a client got is its own fault, or one that limits and faults allowed when it came. */
bool excuse_is_good(const cluster *c, const client *q);

/* Returns whether its output may end with "length" before it has all the tokens it asked for. */
bool excuse_for_end(const cluster *c, const client *q);

#endif
