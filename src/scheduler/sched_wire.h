/* sched_wire.h - the scheduler's structs and the wire's messages, each made of the other
 *
 * Everything is lent: what is returned points into what was given. Casts away const where it packs, as packing only
 * reads. Why a request ended is converted by wire_end.h. */
#ifndef PUNICA_SCHEDULER_SCHED_WIRE_H
#define PUNICA_SCHEDULER_SCHED_WIRE_H

#include "net/wire.pb-c.h"
#include "scheduler/scheduler.h"

/* Of a command, in the order of command_kind. */
Request sched_wire_add(const command *c);
Cancel sched_wire_cancel(const command *c);
Tokens sched_wire_tokens(const command *c);
End sched_wire_end(const command *c);

/* A request as a frontend sent it; arrival: by our own clock. False: it has more tokens than can be counted. */
bool sched_wire_read_submit(const Request *r, double arrival, submission *out);

/* A GPU as its runner announced it. False: its numbers make no sense. The caller sets on_probation. */
bool sched_wire_read_gpu(const GpuUp *up, gpu_info *out);

/* Memory for the reports of a message. All zero: none. */
typedef struct {
    report_tokens *tokens;
    report_end *ends;
    size_t tokens_cap, ends_cap;
} step_scratch;

void step_scratch_deinit(step_scratch *m);

/* A worker's report of a step; *out is valid until the scratch memory is used again. False: it has an end that workers
 * do not report. */
bool sched_wire_read_step(const Step *step, step_scratch *m, gpu_report *out);

#endif
