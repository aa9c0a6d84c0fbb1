/* send_floor.c - how soon any server could have a step's tokens at its clients: the floor of token_delay.sh
 *
 *   cc -O2 -D_GNU_SOURCE -pthread -o send_floor tests/perf/send_floor.c && ./send_floor [STREAMS] [STEPS]
 *
 * Does only what no server can do without: a step's byte comes through a pipe, and an event of 190 bytes goes to each of
 * STREAMS connections over loopback, sent by 1, 2, 4 and so on threads which share them. No JSON, no queues, no clients
 * that wake up: their sockets are read when the step is over, and the kernel stamps when bytes came. The threads are
 *
 *   asleep   one waits in read(), the others for it on a condition variable
 *   noticed  likewise, but a notice comes NOTICE_SECONDS ahead, after which they spin until the step comes
 *   awake    they spin all the time
 *
 * Prints the delay from the write into the pipe to an event's stamp. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STREAMS = 4096, MAX_THREADS = 64, EVENT = 190 };
#define STEP_SECONDS 12e-3
#define NOTICE_SECONDS 80e-6
#define SETTLE_SECONDS 4e-3 /* after which a step's events have all come */

typedef enum { ASLEEP, NOTICED, AWAKE, N_MODES } mode;
static const char *const mode_name[N_MODES] = {"asleep", "noticed", "awake"};

static struct {
    mode how;
    int n_streams, n_threads, pipe[2], out[MAX_STREAMS], in[MAX_STREAMS];
    _Atomic int noticed, step, next, done; /* number of the last notice, and of the last step; its streams claimed, and
                                             the threads that are through with it */
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t woken;
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(1);
}

static void connect_streams(void)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    must(bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 64) == 0, "listen");
    getsockname(listener, (struct sockaddr *)&at, &n);
    for (int i = 0; i < s.n_streams; i++) {
        s.in[i] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(s.in[i], (struct sockaddr *)&at, sizeof at) == 0, "connect");
        must((s.out[i] = accept(listener, NULL, NULL)) >= 0, "accept");
        setsockopt(s.in[i], SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        setsockopt(s.out[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(s.in[i], F_SETFL, O_NONBLOCK);
    }
}

/* Makes `to` the given number and wakes the other threads. */
static void announce(_Atomic int *to, int number)
{
    atomic_store(to, number);
    if (s.how == AWAKE)
        return;
    pthread_mutex_lock(&s.lock);
    pthread_cond_broadcast(&s.woken);
    pthread_mutex_unlock(&s.lock);
}

static void send_events(void)
{
    static const char event[EVENT];
    for (int i; (i = atomic_fetch_add(&s.next, 1)) < s.n_streams;)
        must(send(s.out[i], event, EVENT, 0) == EVENT, "send");
    atomic_fetch_add(&s.done, 1);
}

/* The first thread reads the pipe: 'n' is a notice, 's' a step. */
static void *reader_main(void *arg)
{
    (void)arg;
    for (char what; !s.stop;) {
        ssize_t n = read(s.pipe[0], &what, 1);
        if (n != 1)
            continue;
        if (what == 'n') {
            fcntl(s.pipe[0], F_SETFL, O_NONBLOCK);
            announce(&s.noticed, s.noticed + 1);
            continue;
        }
        atomic_store(&s.next, 0);
        announce(&s.step, s.step + 1);
        send_events();
        if (s.how == NOTICED)
            fcntl(s.pipe[0], F_SETFL, 0);
    }
    return NULL;
}

static void *helper_main(void *arg)
{
    (void)arg;
    for (int seen = 0; !s.stop;) {
        while (s.step == seen && s.how != AWAKE && !s.stop && s.noticed <= seen) {
            pthread_mutex_lock(&s.lock);
            while (s.step == seen && s.noticed <= seen && !s.stop)
                pthread_cond_wait(&s.woken, &s.lock);
            pthread_mutex_unlock(&s.lock);
        }
        if (s.step == seen)
            continue;
        seen = s.step;
        send_events();
    }
    return NULL;
}

static void spin_until(double t)
{
    while (now() < t)
        ;
}

/* Appends the delays of the step that began at `from`; returns how many. */
static int read_events(double from, double *delay)
{
    int n = 0;
    for (int i = 0; i < s.n_streams; i++) {
        char bytes[4096], control[256];
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(s.in[i], &m, 0) <= 0)
            continue;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                struct timespec t;
                memcpy(&t, CMSG_DATA(c), sizeof t);
                delay[n++] = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 - from;
            }
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Plays the worker, which is awake when it writes. Returns the number of delays. */
static int run_steps(int n_steps, double *delay)
{
    int n = 0;
    for (int i = 0; i < n_steps; i++) {
        struct timespec pause = {0, (long)((STEP_SECONDS - SETTLE_SECONDS) * 1e9)};
        nanosleep(&pause, NULL);
        double begin = now() + 3 * NOTICE_SECONDS;
        spin_until(begin - NOTICE_SECONDS);
        if (s.how == NOTICED)
            must(write(s.pipe[1], "n", 1) == 1, "write");
        spin_until(begin);
        atomic_store(&s.done, 0);
        begin = now();
        must(write(s.pipe[1], "s", 1) == 1, "write");
        pause.tv_nsec = (long)(SETTLE_SECONDS * 1e9);
        nanosleep(&pause, NULL);
        while (s.done < s.n_threads)
            sched_yield();
        n += read_events(begin, delay + n);
    }
    return n;
}

static void measure(mode how, int n_threads, int n_steps)
{
    pthread_t thread[MAX_THREADS];
    double *delay = malloc((size_t)n_steps * (size_t)s.n_streams * sizeof *delay);
    s.how = how;
    s.n_threads = n_threads;
    s.stop = false;
    s.step = s.noticed = 0;
    must(pipe(s.pipe) == 0, "pipe");
    fcntl(s.pipe[0], F_SETFL, how == AWAKE ? O_NONBLOCK : 0);
    for (int i = 0; i < n_threads; i++)
        must(pthread_create(&thread[i], NULL, i ? helper_main : reader_main, NULL) == 0, "pthread_create");
    int n = run_steps(n_steps, delay);
    s.stop = true;
    announce(&s.noticed, s.noticed);
    close(s.pipe[1]); /* ends the reader's read() */
    for (int i = 0; i < n_threads; i++)
        pthread_join(thread[i], NULL);
    close(s.pipe[0]);
    qsort(delay, (size_t)n, sizeof *delay, compare);
    printf("%-8s %2d threads: median %4.0f us, 90 %% %4.0f, 99 %% %4.0f, largest %5.0f (%d events)\n", mode_name[how],
           n_threads, delay[n / 2] * 1e6, delay[n / 10 * 9] * 1e6, delay[n / 100 * 99] * 1e6, delay[n - 1] * 1e6, n);
    fflush(stdout);
    free(delay);
}

int main(int argc, char **argv)
{
    cpu_set_t cores;
    must(sched_getaffinity(0, sizeof cores, &cores) == 0, "sched_getaffinity");
    int n_steps = argc > 2 ? atoi(argv[2]) : 400, most = CPU_COUNT(&cores) - 1; /* one is the worker's */
    s.n_streams = argc > 1 ? atoi(argv[1]) : 64;
    if (s.n_streams < 1 || s.n_streams > MAX_STREAMS || n_steps < 1) {
        fprintf(stderr, "usage: send_floor [STREAMS] [STEPS]\n");
        return 2;
    }
    connect_streams();
    for (int how = 0; how < N_MODES; how++)
        for (int n = 1; n <= most && n <= MAX_THREADS; n *= 2)
            measure((mode)how, n, n_steps);
    return 0;
}
