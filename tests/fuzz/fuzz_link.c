/* fuzz_link.c - what may come to a scheduler's port
 *
 * The first byte says from whom: a stranger (the rest are the bytes of a connection), or a frontend or a runner that
 * has proved itself (the rest are messages, each behind two bytes of length). Whatever comes, the scheduler goes on and
 * answers the next who comes. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "net/event_loop.h"
#include "net/link.h"
#include "scheduler/sched_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct { event_loop *loop; sched_server *server; bool is_up, is_down; } scene;

static void on_up(void *ctx, net_link *l, const Hello *h)
{
    (void)l;
    (void)h;
    ((scene *)ctx)->is_up = true;
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)ctx;
    (void)l;
    (void)m;
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)l;
    (void)why;
    ((scene *)ctx)->is_down = true;
}

static void turn(scene *s, int times)
{
    while (times-- > 0)
        event_base_loop(s->loop->events, EVLOOP_NONBLOCK);
}

static const credentials secret = {.secret = {"fuzz fuzz"}};

static net_link *connect_as(scene *s, Hello__Role role)
{
    link_options o = link_options_default();
    o.own = &secret;
    o.role = role;
    o.name = "fuzz";
    o.instance = loop_random_id(&s->loop->base);
    link_events events = {on_up, on_message, on_down, s};
    err e;
    s->is_up = s->is_down = false;
    net_link *l = link_connect(&s->loop->base, sched_server_address(s->server), &o, &events, &e);
    CHECK(l);
    for (int i = 0; i < 1000 && !s->is_up; i++)
        turn(s, 1);
    CHECK(s->is_up);
    return l;
}

static void play_member(scene *s, Hello__Role role, const uint8_t *data, size_t size)
{
    net_link *l = connect_as(s, role);
    while (size >= 2 && !s->is_down) {
        size_t n = (size_t)data[0] | (size_t)data[1] << 8;
        n = n < size - 2 ? n : size - 2;
        link_send_packed(l, data + 2, n);
        data += 2 + n;
        size -= 2 + n;
        turn(s, 3);
    }
    turn(s, 3);
    link_free(l);
}

static void play_stranger(scene *s, const uint8_t *data, size_t size)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", sched_server_address(s->server) + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    turn(s, 1);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n <= 0)
            break;
        done += (size_t)n;
        turn(s, 2);
    }
    turn(s, 3);
    close(fd);
    turn(s, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    log_set_level(LOG_ERROR);
    char at[64];
    snprintf(at, sizeof at, "unix:/tmp/punica-fuzz-%d", (int)getpid());
    sched_server_options o = sched_server_options_default();
    o.listen = at;
    o.link.own = &secret;
    err e;
    scene s = {.loop = event_loop_new()};
    s.server = sched_server_new(&s.loop->base, &o, &e);
    CHECK(s.server);
    if (data[0] % 3 == 0)
        play_stranger(&s, data + 1, size - 1);
    else
        play_member(&s, data[0] % 3 == 1 ? HELLO__ROLE__FRONTEND : HELLO__ROLE__RUNNER, data + 1, size - 1);
    link_free(connect_as(&s, HELLO__ROLE__FRONTEND));
    sched_server_free(s.server);
    event_loop_free(s.loop);
    return 0;
}
