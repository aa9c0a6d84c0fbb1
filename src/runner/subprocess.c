/* subprocess.c - see subprocess.h
 *
 * When the process ends, everything that it had written is read first. */
#include "runner/subprocess.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/frames.h"

enum { FIRST_FREE_FD = 10, MAX_LINE = 1000 };

typedef struct {
    process base; /* first */
    process_events events;
    child c;
    frame_reader in;         /* what it writes */
    struct bufferevent *out; /* what it reads */
    int err_fd;
    buf line;                         /* of its standard error, incomplete */
    char last_line[sizeof(err) + 16]; /* room for a whole message of ours */
    bool broken;                      /* it wrote something that is not a message, and was killed */
    bool given_up;                    /* we killed it, and nobody had stopped it before */
    struct event *on_message, *on_error, *on_end;
} subprocess;

/* Makes a pipe whose ends are above the child's descriptor numbers, and are closed on exec. */
static int make_pipe(int fd[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC))
        return -1;
    for (int i = 0; i < 2; i++) {
        fd[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FIRST_FREE_FD);
        close(low[i]);
    }
    return fd[0] < 0 || fd[1] < 0 ? -1 : 0;
}

static void close_pipe(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* Logs a complete line and keeps it as last_line. */
static void end_line(subprocess *p)
{
    buf_add_char(&p->line, '\n');
    log_write(p->line.data, p->line.len);
    if (p->line.len > 1)
        snprintf(p->last_line, sizeof p->last_line, "%.*s", (int)p->line.len - 1, p->line.data);
    buf_clear(&p->line);
}

/* Reads standard error. False when there is nothing more to read now. */
static bool read_errors(subprocess *p)
{
    char part[4096];
    ssize_t n = read(p->err_fd, part, sizeof part);
    for (ssize_t i = 0; i < n; i++) {
        if (part[i] == '\n' || p->line.len >= MAX_LINE)
            end_line(p);
        if (part[i] != '\n')
            buf_add_char(&p->line, part[i]);
    }
    if (n == 0)
        event_del(p->on_error);
    return n > 0;
}

static void errors_readable(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    read_errors(ctx);
}

static void give_up(subprocess *p, const char *why)
{
    log_error("worker process %d: %s; it is killed", (int)p->c.pid, why);
    p->broken = p->given_up = true;
    event_del(p->on_message);
    child_kill(&p->c);
}

/* Reads messages. False when there is nothing more to read now. */
static bool read_messages(subprocess *p)
{
    err e;
    int got = frame_reader_fill(&p->in, &e);
    if (got < 0 && !frame_reader_is_stuck(&p->in)) {
        log_debug("worker process %d: %s", (int)p->c.pid, e.msg);
        event_del(p->on_message);
        child_kill(&p->c); /* unless it has ended, it is of no use without the pipe */
    }
    size_t n;
    for (const void *bytes; got > 0 && !p->broken && (bytes = frame_reader_next(&p->in, &n));)
        if (!p->events.message(p->events.ctx, bytes, n))
            give_up(p, "it wrote what is no message");
    if (!p->broken && frame_reader_is_stuck(&p->in))
        give_up(p, "it wrote a message that is too large");
    return got > 0 && !p->broken;
}

static void messages_readable(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    read_messages(ctx);
}

static void process_ended(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    subprocess *p = ctx;
    char how[32], why[sizeof p->last_line + sizeof how + 4];
    child_wait(&p->c, how);
    while (read_messages(p))
        continue;
    while (read_errors(p))
        continue;
    if (p->line.len)
        end_line(p);
    event_del(p->on_message);
    event_del(p->on_error);
    bool has_reason = *p->last_line && strncmp(how, "exit", 4) == 0;
    snprintf(why, sizeof why, "%s%s%s", how, has_reason ? ": " : "", has_reason ? p->last_line : "");
    p->events.ended(p->events.ctx, why, p->c.signal == SIGKILL && !p->given_up);
}

/* Makes the loop watch our ends of the pipes and the end of the process. */
static void watch(subprocess *p, struct event_base *loop, int out)
{
    fcntl(p->in.fd, F_SETFL, O_NONBLOCK);
    fcntl(p->err_fd, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    p->out = bufferevent_socket_new(loop, out, BEV_OPT_CLOSE_ON_FREE);
    p->on_message = event_new(loop, p->in.fd, EV_READ | EV_PERSIST, messages_readable, p);
    p->on_error = event_new(loop, p->err_fd, EV_READ | EV_PERSIST, errors_readable, p);
    p->on_end = event_new(loop, p->c.fd, EV_READ, process_ended, p);
    CHECK(p->out && p->on_message && p->on_error && p->on_end);
    bufferevent_disable(p->out, EV_READ);
    bufferevent_enable(p->out, EV_WRITE);
    event_add(p->on_message, NULL);
    event_add(p->on_error, NULL);
    event_add(p->on_end, NULL);
}

static void send_message(process *base, const void *message, size_t n)
{
    buf frame = {0};
    frame_add(&frame, message, n);
    bufferevent_write(((subprocess *)base)->out, frame.data, frame.len);
    buf_free(&frame);
}

static void kill_process(process *base)
{
    subprocess *p = (subprocess *)base;
    p->given_up = !child_is_stopped(&p->c);
    child_kill(&p->c);
}

static void free_process(process *base)
{
    subprocess *p = (subprocess *)base;
    char how[32];
    child_kill(&p->c);
    if (p->c.pid)
        child_wait(&p->c, how);
    event_free(p->on_message);
    event_free(p->on_error);
    event_free(p->on_end);
    bufferevent_free(p->out);
    child_forget(&p->c);
    close(p->in.fd);
    close(p->err_fd);
    frame_reader_deinit(&p->in);
    buf_free(&p->line);
    free(p);
}

static process *start(void *loop, char *const argv[], const process_events *events, err *e)
{
    static const process_ops ops = {.send = send_message, .kill = kill_process, .free = free_process};
    int down[2] = {-1, -1}, up[2] = {-1, -1}, errors[2] = {-1, -1};
    child c;
    int status = make_pipe(down) || make_pipe(up) || make_pipe(errors)
                     ? err_set(e, "cannot make a pipe: %s", strerror(errno))
                     : 0;
    const child_fd fds[] = {{down[0], WORKER_IN_FD}, {up[1], WORKER_OUT_FD}, {errors[1], STDERR_FILENO}};
    if (status || child_start(&c, "/proc/self/exe", argv, fds, sizeof fds / sizeof *fds, e)) {
        close_pipe(down);
        close_pipe(up);
        close_pipe(errors);
        return NULL;
    }
    close(down[0]);
    close(up[1]);
    close(errors[1]);
    subprocess *p = XNEW(subprocess);
    *p = (subprocess){.base = {&ops, (int)c.pid}, .events = *events, .c = c, .in.fd = up[0], .err_fd = errors[0]};
    watch(p, loop, down[1]);
    return &p->base;
}

process_starter subprocess_starter(struct event_base *loop)
{
    return (process_starter){.start = start, .ctx = loop};
}
