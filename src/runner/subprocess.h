/* subprocess.h - processes on this host: a pipe of messages each way, and standard error
 *
 * The program is our own (/proc/self/exe). Its standard error is logged line by line; the last line is the reason why
 * it ended. */
#ifndef PUNICA_RUNNER_SUBPROCESS_H
#define PUNICA_RUNNER_SUBPROCESS_H

#include <event2/event.h>

#include "runner/process.h"

/* loop is borrowed. */
process_starter subprocess_starter(struct event_base *loop);

#endif
