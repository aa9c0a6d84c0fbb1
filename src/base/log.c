/* log.c - see log.h
 *
 * A line is written at once if possible. Otherwise it stays in `kept`, later lines queue up behind it, and a thread is
 * started that ends when `kept` is empty again. So normally there is no thread, and nothing is lost however the process
 * ends.
 *
 * O_NONBLOCK belongs to the open file description, which other processes share (a shell, the program at the other end):
 * setting it on standard error would change it for them. A pipe or a terminal is opened once more instead; for a socket
 * each send has a flag. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { MAX_KEPT = 256 << 10, LAST_WAIT_MS = 500 };

static _Atomic log_level limit = LOG_INFO;
static struct {
    void (*take)(void *ctx, const char *text);
    void *ctx;
} sink; /* of one thread */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct {
    dev_t device; /* which file standard error was when it was last looked at */
    ino_t inode;
    bool is_socket, may_block; /* may_block: it could not be opened once more, so poll() asks before each write */
    int fd;                    /* where lines are written; 0: not looked at yet */
} out;
static struct {
    char at[MAX_KEPT];
    size_t n;
    unsigned long long n_lost; /* lines, since the last one that was kept */
    bool has_writer, flushed_at_exit;
} kept;

void log_set_level(log_level level)
{
    limit = level;
}

void log_set_sink(void (*take)(void *ctx, const char *text), void *ctx)
{
    sink.take = take;
    sink.ctx = ctx;
}

int log_parse_level(const char *name, log_level *level, err *e)
{
    for (int i = 0; i <= LOG_DEBUG; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *level = (log_level)i;
            return 0;
        }
    return err_set(e, "unknown log level \"%s\"; known: error, warn, info, debug", name);
}

/* Finds out where to write: standard error may have become another file since the last line. */
static void look_at_output(void)
{
    struct stat is;
    if (fstat(STDERR_FILENO, &is) || (out.fd && is.st_dev == out.device && is.st_ino == out.inode))
        return;
    if (out.fd > STDERR_FILENO)
        close(out.fd);
    out.device = is.st_dev;
    out.inode = is.st_ino;
    out.is_socket = S_ISSOCK(is.st_mode);
    out.may_block = false;
    out.fd = STDERR_FILENO;
    if (!S_ISFIFO(is.st_mode) && !S_ISCHR(is.st_mode))
        return;
    int again = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    out.may_block = again < 0;
    out.fd = again < 0 ? STDERR_FILENO : again;
}

static bool is_ready(int fd, int wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, wait_ms) > 0;
}

/* Writes as much as is taken without blocking. Returns how much; -1 with errno EAGAIN: nothing. */
static ssize_t write_some(const char *bytes, size_t n)
{
    if (out.is_socket)
        return send(out.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (out.may_block && !is_ready(out.fd, 0)) {
        errno = EAGAIN;
        return -1;
    }
    if (out.may_block && n > PIPE_BUF)
        n = PIPE_BUF; /* a pipe that is ready has room for this much */
    return write(out.fd, bytes, n);
}

/* Returns the length of the first line, newline included. */
static size_t line_length(const char *at, size_t n)
{
    const char *end = memchr(at, '\n', n);
    return end ? (size_t)(end - at) + 1 : n;
}

static void drop_first(size_t n)
{
    kept.n -= n;
    memmove(kept.at, kept.at + n, kept.n);
}

/* Writes what is kept, line by line: a pipe takes each whole or not at all. True when nothing is left. */
static bool write_kept(void)
{
    size_t done = 0;
    while (done < kept.n) {
        size_t n = line_length(kept.at + done, kept.n - done);
        ssize_t sent = write_some(kept.at + done, n);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        kept.n_lost += sent < 0 && errno != EPIPE; /* e.g. a full disk; after EPIPE nobody reads the count */
        done += sent < 0 ? n : (size_t)sent;
    }
    drop_first(done);
    return kept.n == 0;
}

static void keep(const char *bytes, size_t n)
{
    memcpy(kept.at + kept.n, bytes, n);
    kept.n += n;
}

/* Writes "2026-03-01T12:00:00.123Z info "; returns its length. */
static size_t write_head(char *line, size_t size, log_level level)
{
    struct tm utc;
    double now = clock_wall();
    time_t seconds = (time_t)now;
    gmtime_r(&seconds, &utc);
    size_t n = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &utc);
    return n +
           (size_t)snprintf(line + n, size - n, ".%03dZ %s ", (int)((now - (double)seconds) * 1e3), level_names[level]);
}

/* Writes a line about lost lines, to stand in their place, if there are any. Returns its length, or 0. */
static size_t write_loss(char *line, size_t size)
{
    if (kept.n_lost == 0)
        return 0;
    size_t n = write_head(line, size, LOG_WARN);
    return n + (size_t)snprintf(line + n, size - n, "%llu lines of this log were lost: nobody took them in time\n",
                                kept.n_lost);
}

/* Appends a line to what is kept, behind a line about those lost before it; the line is lost if there is no room. */
static void queue(const char *line, size_t n)
{
    char loss[160];
    size_t n_loss = write_loss(loss, sizeof loss);
    if (kept.n + n_loss + n > MAX_KEPT) {
        kept.n_lost++;
        return;
    }
    kept.n_lost = 0;
    keep(loss, n_loss);
    keep(line, n);
}

/* The writer thread: runs until nothing is kept and lost lines have been reported. */
static void *write_later(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (bool told = false; !write_kept() || (kept.n_lost > 0 && !told);) {
        if (kept.n == 0) {
            queue("", 0);
            told = true;
            continue;
        }
        int fd = out.fd;
        pthread_mutex_unlock(&lock);
        is_ready(fd, 1000); /* with a timeout: standard error may become another file meanwhile */
        pthread_mutex_lock(&lock);
        look_at_output();
    }
    kept.has_writer = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Starts the writer thread with all signals blocked: they stay with the threads that handle them now. */
static void start_writer(void)
{
    sigset_t all, before;
    pthread_t thread;
    if (kept.has_writer)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    kept.has_writer = pthread_create(&thread, NULL, write_later, NULL) == 0;
    if (kept.has_writer)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!kept.flushed_at_exit)
        kept.flushed_at_exit = atexit(log_flush) == 0;
}

void log_write(const char *line, size_t n)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    look_at_output();
    queue(line, n);
    if (!write_kept())
        start_writer();
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* Also called in a signal handler, where the interrupted thread may hold the lock: so it gives up after 100 tries. */
void log_flush(void)
{
    int tries = 0;
    while (pthread_mutex_trylock(&lock) && tries++ < 100)
        usleep(1000);
    if (tries > 100)
        return;
    double until = clock_now() + LAST_WAIT_MS / 1e3;
    while (!write_kept() && clock_now() < until)
        is_ready(out.fd, LAST_WAIT_MS / 10);
    pthread_mutex_unlock(&lock);
}

static void on_crash(int number)
{
    log_flush();
    raise(number); /* SA_RESETHAND has restored the default action */
}

void log_catch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGBUS};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction was, on = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
        if (sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
            sigaction(numbers[i], &on, NULL); /* not over a sanitizer's handler, which says more */
    }
}

int log_open_file(const char *path, err *e)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC, 0640);
    if (fd < 0)
        return err_set(e, "cannot open log file %s: %s", path, strerror(errno));
    pthread_mutex_lock(&lock);
    dup2(fd, STDERR_FILENO);
    pthread_mutex_unlock(&lock);
    close(fd);
    return 0;
}

/* Characters that would break the line, or a terminal, become '?'. */
static void make_printable(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = '?';
}

void log_line(log_level level, const char *fmt, ...)
{
    if (level > limit)
        return;
    char line[1200];
    size_t n = write_head(line, sizeof line, level);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
    va_end(args);
    size_t room = sizeof line - n - 2, end = n + (more < 0 ? 0 : (size_t)more < room ? (size_t)more : room);
    make_printable(line + n, end - n);
    if (sink.take) {
        line[end] = '\0';
        sink.take(sink.ctx, line + n);
        return;
    }
    line[end] = '\n';
    log_write(line, end + 1);
}
