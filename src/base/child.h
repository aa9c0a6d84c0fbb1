/* child.h - another program, started and watched without a handler of signals
 *
 * Its end is told by a file descriptor, so that it works in any program and on any event loop. */
#ifndef PUNICA_BASE_CHILD_H
#define PUNICA_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* fd: readable once it has ended; pid 0: it has been waited for; signal: that ended it, from then on; 0: none */
typedef struct {
    pid_t pid;
    int fd, signal;
} child;
typedef struct { int ours, its; } child_fd;

/* Run path with argv, which ends with NULL, and our environment. Of our file descriptors it gets the three standard
 * ones and those of fds, n of them, under its numbers; nothing above the highest. SIGPIPE is as by default. */
int child_start(child *c, const char *path, char *const argv[], const child_fd *fds, int n, err *e);

/* Wait for it, if that has not been done, and write into how what became of it: "exit code 2", "killed by signal 9". 0
 * when that is exit code 0. */
int child_wait(child *c, char how[32]);

bool child_is_stopped(const child *c); /* by a signal, and not continued since */
void child_kill(const child *c);       /* SIGKILL; it has still to be waited for */
void child_forget(child *c);           /* it goes on, if it has not been waited for */

#endif
