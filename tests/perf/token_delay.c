/* token_delay.c - how long a token takes from its worker's pipe to its client, with many streams at once
 *
 *   token_delay HOST PORT STREAMS TOKENS STEP_CLOCK_FILE
 *
 * Opens that many streams of that many tokens and notes when each event arrives at its socket, by the kernel's clock:
 * how long one thread takes to read many sockets is not the server's delay. step_clock.c has noted when the
 * worker wrote each step, and when it had drawn its tokens; steps are far apart compared with the delay, so an event
 * belongs to the last step before it. What is told is over the time in which all streams run. See token_delay.sh. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RING = 1 << 20, MAX_STREAMS = 4096 };

typedef struct {
    int fd;
    int n_events;
    uint64_t *at;
} stream;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* As read(); *at: when the last of it arrived, by the monotonic clock. */
static ssize_t read_stamped(int fd, char *out, size_t room, uint64_t *at)
{
    char control[256];
    struct iovec part = {.iov_base = out, .iov_len = room};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, 0);
    uint64_t behind = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
    *at = now_ns(CLOCK_MONOTONIC);
    for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            *at = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - behind;
        }
    return n;
}

static int open_stream(const char *host, int port, int n_tokens)
{
    char body[512], request[1024];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("connect");
        exit(1);
    }
    /* ignore_eos: all streams run to their length */
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"demo\",\"prompt\":\"On March 5, 2021, Eva from Rome bought 3 green lamps.\","
                     "\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true,\"temperature\":0}",
                     n_tokens);
    n = snprintf(request, sizeof request, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n,
                 body);
    if (write(fd, request, (size_t)n) != n)
        exit(1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Note the events that have arrived. Whether the stream has ended. */
static int take(stream *s, int max)
{
    char piece[65536];
    int ended = 0;
    uint64_t t;
    for (ssize_t n; (n = read_stamped(s->fd, piece, sizeof piece - 1, &t)) > 0;) {
        piece[n] = 0;
        for (const char *p = piece; (p = strstr(p, "data: {")); p++)
            if (s->n_events < max)
                s->at[s->n_events++] = t;
        ended |= strstr(piece, "[DONE]") != NULL;
    }
    return ended;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t last_before(const uint64_t *step, uint64_t n, uint64_t t)
{
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (step[middle] <= t)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? step[low - 1] : t;
}

static void tell(const stream *s, int n_streams, const char *from_what, const uint64_t *step, uint64_t n_steps)
{
    uint64_t from = 0, until = UINT64_MAX, *delay = malloc(sizeof *delay * RING), n = 0;
    for (int i = 0; i < n_streams; i++) {
        from = s[i].at[0] > from ? s[i].at[0] : from;
        until = s[i].at[s[i].n_events - 1] < until ? s[i].at[s[i].n_events - 1] : until;
    }
    for (int i = 0; i < n_streams; i++)
        for (int k = 0; k < s[i].n_events; k++)
            if (s[i].at[k] > from && s[i].at[k] < until && n < RING)
                delay[n++] = s[i].at[k] - last_before(step, n_steps, s[i].at[k]);
    if (n == 0) {
        free(delay);
        return;
    }
    qsort(delay, n, sizeof *delay, compare);
    uint64_t steps = 0;
    for (uint64_t i = 0; i < n_steps; i++)
        steps += step[i] > from && step[i] < until;
    printf("%d streams, %llu tokens, a step every %.2f ms: delay from %s: median %.0f us, 90 %% %.0f, 99 %% %.0f, 99.9 "
           "%% %.0f, largest %.0f\n",
           n_streams, (unsigned long long)n, (double)(until - from) / 1e6 / (double)(steps ? steps : 1), from_what,
           (double)delay[n / 2] / 1e3, (double)delay[n * 9 / 10] / 1e3, (double)delay[n * 99 / 100] / 1e3,
           (double)delay[n * 999 / 1000] / 1e3, (double)delay[n - 1] / 1e3);
    free(delay);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: token_delay HOST PORT STREAMS TOKENS STEP_CLOCK_FILE\n");
        return 2;
    }
    int n_streams = atoi(argv[3]), n_tokens = atoi(argv[4]), left = n_streams, epoll = epoll_create1(0);
    static stream s[MAX_STREAMS];
    for (int i = 0; i < n_streams; i++) {
        s[i] = (stream){.fd = open_stream(argv[1], atoi(argv[2]), n_tokens),
                        .at = calloc((size_t)n_tokens + 2, sizeof *s[i].at)};
        epoll_ctl(epoll, EPOLL_CTL_ADD, s[i].fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = &s[i]});
    }
    while (left > 0) {
        struct epoll_event ready[64];
        int n = epoll_wait(epoll, ready, 64, 30000);
        if (n <= 0)
            return 1;
        for (int i = 0; i < n; i++)
            left -= take(ready[i].data.ptr, n_tokens + 2);
    }
    int file = open(argv[5], O_RDONLY);
    const uint64_t *ring = mmap(NULL, 2 * (RING + 1) * sizeof *ring, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || ring == MAP_FAILED)
        return 1;
    tell(s, n_streams, "the worker's write", ring + 1, ring[0]);
    if (ring[RING + 1])
        tell(s, n_streams, "the draw", ring + RING + 2, ring[RING + 1]);
    return 0;
}
