/* child.c - see child.h */
#include "base/child.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int spawn(pid_t *pid, const char *path, char *const argv[], const child_fd *fds, int n)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usual;
    int highest = STDERR_FILENO;
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < n; i++) {
        posix_spawn_file_actions_adddup2(&actions, fds[i].ours, fds[i].its);
        highest = fds[i].its > highest ? fds[i].its : highest;
    }
    posix_spawn_file_actions_addclosefrom_np(&actions, highest + 1);
    int status = posix_spawn(pid, path, &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return status;
}

int child_start(child *c, const char *path, char *const argv[], const child_fd *fds, int n, err *e)
{
    *c = (child){.fd = -1};
    int status = spawn(&c->pid, path, argv, fds, n);
    if (status)
        return err_set(e, "cannot start %s: %s", path, strerror(status));
    c->fd = pidfd_open(c->pid, 0);
    if (c->fd >= 0)
        return 0;
    err_set(e, "cannot watch %s: %s", path, strerror(errno));
    child_kill(c);
    waitpid(c->pid, NULL, 0);
    return -1;
}

int child_wait(child *c, char how[32])
{
    siginfo_t info = {0};
    CHECK(c->pid);
    waitid(P_PIDFD, (id_t)c->fd, &info, WEXITED);
    c->pid = 0;
    bool exited = info.si_code == CLD_EXITED;
    c->signal = exited ? 0 : info.si_status;
    snprintf(how, 32, exited ? "exit code %d" : "killed by signal %d", info.si_status);
    return exited && info.si_status == 0 ? 0 : -1;
}

bool child_is_stopped(const child *c)
{
    siginfo_t info = {0};
    return c->pid && waitid(P_PIDFD, (id_t)c->fd, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == c->pid;
}

void child_kill(const child *c)
{
    if (c->pid)
        kill(c->pid, SIGKILL);
}

void child_forget(child *c)
{
    if (c->fd >= 0)
        close(c->fd);
    *c = (child){.fd = -1};
}
