/* fuzz_link.c - what may come to a scheduler's port
 *
 * The first byte says from whom: a stranger (the rest are the bytes of a connection), or a frontend or a runner that
 * has proved itself (the rest are messages, each behind two bytes of length); and whether there are seconds between
 * them, so that timers fire. Whatever comes, the scheduler goes on and answers the next who comes. Network and time are
 * the simulation's: an execution makes no system call and waits for nothing, and the same bytes always do the same. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "net/link.h"
#include "scheduler/sched_server.h"
#include "sim/network.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    world w;
    sim_process scheduler, peer;
    sched_server *server;
    double pause; /* seconds after each message */
    bool is_up, is_down;
} scene;

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

static void set_flag(void *ctx)
{
    *(bool *)ctx = true;
}

/* Let so many seconds pass. */
static void pass(scene *s, double seconds)
{
    bool is_over = false;
    sim_task end = {.run = set_flag, .ctx = &is_over};
    world_plan(&s->w, &end, seconds);
    while (!is_over)
        world_run_next(&s->w);
}

static const credentials secret = {.secret = {"fuzz fuzz"}};

static net_link *connect_as(scene *s, Hello__Role role)
{
    link_options o = link_options_default();
    o.own = &secret;
    o.role = role;
    o.name = "fuzz";
    o.instance = loop_random_id(&s->peer.base);
    link_events events = {on_up, on_message, on_down, s};
    err e;
    s->is_up = s->is_down = false;
    net_link *l = link_connect(&s->peer.base, s->scheduler.name, &o, &events, &e);
    CHECK(l);
    pass(s, 0.01);
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
        pass(s, s->pause);
    }
    link_free(l);
}

static void play_stranger(scene *s, const uint8_t *data, size_t size)
{
    err e;
    dialer *d = sim_network_dialer_new(&s->peer.base, s->scheduler.name, NULL, &e);
    net_stream *stream = dialer_dial(d, &(stream_events){0}, &e);
    pass(s, 0.01);
    stream_write(stream, data, size);
    pass(s, s->pause);
    stream_free(stream);
    dialer_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    log_set_level(LOG_ERROR);
    scene s = {.pause = data[0] / 3 % 4 == 3 ? 2 : 0.01};
    world_init(&s.w, data[0], false);
    sim_network_set_conditions(s.w.net, &(sim_network_conditions){.delay = 1e-5, .choppy = 0.2, .buffer = 1 << 16});
    sim_process_init(&s.scheduler, &s.w, "scheduler", 0);
    sim_process_init(&s.peer, &s.w, "fuzz", 0);
    sched_server_options o = sched_server_options_default();
    o.listen = s.scheduler.name;
    o.link.own = &secret;
    err e;
    s.server = sched_server_new(&s.scheduler.base, &o, &e);
    CHECK(s.server);
    if (data[0] % 3 == 0)
        play_stranger(&s, data + 1, size - 1);
    else
        play_member(&s, data[0] % 3 == 1 ? HELLO__ROLE__FRONTEND : HELLO__ROLE__RUNNER, data + 1, size - 1);
    link_free(connect_as(&s, HELLO__ROLE__FRONTEND));
    sched_server_free(s.server);
    world_deinit(&s.w);
    return 0;
}
