/* sched_wire.h - the scheduler's structs and the wire's messages, converted into each other
 *
 * What is returned borrows: it points into what was given. Packing casts away const, as it only reads. Why a request
 * ended is converted by wire_end.h. */
#ifndef PUNICA_SCHEDULER_SCHED_WIRE_H
#define PUNICA_SCHEDULER_SCHED_WIRE_H

#include "net/wire.pb-c.h"
#include "scheduler/scheduler.h"

/* Return the message of a command: one function for each command_kind. */
Request sched_wire_add(const command *c);
Cancel sched_wire_cancel(const command *c);
Tokens sched_wire_tokens(const command *c);
End sched_wire_end(const command *c);

/* Reads a request as a frontend sent it; arrival: by our own clock. False if it has more tokens than can be counted. */
bool sched_wire_read_submit(const Request *r, double arrival, submission *out);

/* Reads a GPU as its runner announced it. False if its numbers make no sense. The caller sets on_probation. */
bool sched_wire_read_gpu(const GpuUp *up, gpu_info *out);

/* Memory for the reports of a message. Zero-initialise. */
typedef struct {
    report_tokens *tokens;
    report_end *ends;
    size_t tokens_cap, ends_cap;
} step_scratch;

void step_scratch_deinit(step_scratch *m);

/* Reads a worker's report of a step; *out is valid until the scratch memory is used again. False if it has an end that
 * workers do not report. */
bool sched_wire_read_step(const Step *step, step_scratch *m, gpu_report *out);

#endif
