/* allowed_errors.h - which errors a client may be given in place of an answer */
#ifndef PUNICA_SIM_ALLOWED_ERRORS_H
#define PUNICA_SIM_ALLOWED_ERRORS_H

#include "sim/cluster.h"

/* Returns whether the error that a client got is due to its own request, or to limits or faults at that time. */
bool error_is_allowed(const cluster *c, const client *q);

/* Returns whether a client's output may end with "length" before it has all the tokens that the client asked for. */
bool short_output_is_allowed(const cluster *c, const client *q);

#endif
