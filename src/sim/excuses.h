/* excuses.h - what a client may be told in place of an answer */
#ifndef PUNICA_SIM_EXCUSES_H
#define PUNICA_SIM_EXCUSES_H

#include "sim/cluster.h"

/* Whether the error that a client got is one that it can be blamed for, or that was agreed on, when it came. */
bool excuse_is_good(const cluster *c, const client *q);

/* Whether its output may end, as by its length, before it has all the tokens it asked for. */
bool excuse_for_end(const cluster *c, const client *q);

#endif
