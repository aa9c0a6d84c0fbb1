/* wire_end.h - why a request ended: the scheduler's end_reason and the wire's EndReason
 *
 * The one place where the two sets meet, so that scheduler.h does not depend on the wire. Workers and frontends use
 * EndReason itself. */
#ifndef PUNICA_SCHEDULER_WIRE_END_H
#define PUNICA_SCHEDULER_WIRE_END_H

#include "net/wire.pb-c.h"
#include "scheduler/scheduler.h"

EndReason wire_end_pack(end_reason why);

/* Reads what a worker reported. False if it is no end that workers report. */
bool wire_end_read_report(EndReason why, end_reason *out);

#endif
