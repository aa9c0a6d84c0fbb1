/* subprocess.h - processes of this host: two pipes of messages, standard error, and an end
 *
 * The program is this one (/proc/self/exe). What it writes to standard error is passed on line by line; its last line
 * tells why it ended. */
#ifndef PUNICA_RUNNER_SUBPROCESS_H
#define PUNICA_RUNNER_SUBPROCESS_H

#include <event2/event.h>

#include "runner/process.h"

/* loop is borrowed. */
process_starter subprocess_starter(struct event_base *loop);

#endif
