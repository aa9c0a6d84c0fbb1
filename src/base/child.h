/* child.h - a child process, started and watched without a signal handler
 *
 * Its exit is reported by a file descriptor, so that this works in any program and on any event loop. */
#ifndef PUNICA_BASE_CHILD_H
#define PUNICA_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* pid 0: it has been waited for. fd: readable once it has exited. signal: the one that killed it, known once it has
 * been waited for; 0: none. */
typedef struct {
    pid_t pid;
    int fd, signal;
} child;
typedef struct { int ours, its; } child_fd; /* our file descriptor, and its number in the child */

/* Runs path with argv, which ends with NULL, and our environment. The child gets our three standard file descriptors
 * and the n of fds, under their numbers there; nothing above the highest. SIGPIPE has its default action. Release c
 * with child_forget(). */
int child_start(child *c, const char *path, char *const argv[], const child_fd *fds, int n, err *e);

/* Waits for the child, which must not have been waited for, and writes into `how` what became of it: "exit code 2",
 * "killed by signal 9". 0 for exit code 0, else -1. */
int child_wait(child *c, char how[32]);

bool child_is_stopped(const child *c); /* by a signal, and not continued since */
void child_kill(const child *c);       /* sends SIGKILL; the child must still be waited for */
void child_forget(child *c);           /* closes fd; the child goes on if it has not been waited for */

#endif
