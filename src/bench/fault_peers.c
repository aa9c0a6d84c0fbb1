/* fault_peers.c - see fault_cluster.h: frontends with their clients, runners with their workers */
#include "base/err.h"
#include "bench/fault_cluster.h"

static void send_to_scheduler(sim *s, int p, message *m)
{
    if (s->peer[p].up)
        sim_send(&s->net, s->peer[p].conn, SIDE_SCHEDULER, m);
    else
        message_free(m);
}

static void reconnect_later(sim *s, int p, double low, double high)
{
    sim_plan(&s->net, sim_uniform(&s->net, low, high), EVENT_CONNECT, p, 0, s->peer[p].epoch, NULL);
}

void peer_connect(sim *s, int p)
{
    if (s->peer[p].conn >= 0)
        return;
    if (!s->s) {
        reconnect_later(s, p, 0.1, 0.6);
        return;
    }
    message *hello = message_new(MESSAGE_HELLO);
    hello->instance = s->peer[p].instance;
    s->peer[p].conn = sim_connect(&s->net, p);
    sim_send(&s->net, s->peer[p].conn, SIDE_SCHEDULER, hello);
}

static void submit(sim *s, int id)
{
    client_request *r = &s->request[id];
    int token[400], n = s->truth[id].n_prompt + r->n_output;
    CHECK(n <= 400);
    for (int i = 0; i < n; i++)
        token[i] = fault_token((uint64_t)id, i);
    message *m = message_new(MESSAGE_SUBMIT);
    m->id = (uint64_t)id;
    m->arrival = r->arrival;
    message_set_tokens(m, token, n);
    m->n_prompt = s->truth[id].n_prompt;
    m->max_tokens = s->truth[id].max_tokens;
    m->again = r->n_submits++ > 0;
    send_to_scheduler(s, r->frontend, m);
}

static void announce(sim *s, int p, int local)
{
    message *m = message_new(MESSAGE_GPU_UP);
    m->gpu = local;
    m->start = s->peer[p].worker[local].epoch;
    s->peer[p].worker[local].announced = s->peer[p].up;
    send_to_scheduler(s, p, m);
}

/* The scheduler said hello: it gets everything again. */
static void peer_is_up(sim *s, int p)
{
    s->peer[p].up = true;
    sim_say(s, "%s: connected", sim_peer_name(s, p));
    for (int i = 1; i <= s->n_requests && !sim_is_runner(s, p); i++)
        if (s->request[i].state == REQUEST_LIVE && s->request[i].frontend == p)
            submit(s, i);
    for (int k = 0; k < s->n_workers && sim_is_runner(s, p); k++)
        if (s->peer[p].worker[k].w)
            announce(s, p, k);
    if (s->peer[p].draining)
        send_to_scheduler(s, p, message_new(MESSAGE_DRAIN));
}

static void plan_step(sim *s, int p, int k, double after)
{
    worker_place *w = &s->peer[p].worker[k];
    sim_plan(&s->net, after, EVENT_STEP, p, k, ++w->step, NULL);
}

/* A peer's link is lost: a runner's workers forget everything. */
void peer_lose(sim *s, int p)
{
    peer *q = &s->peer[p];
    q->conn = -1;
    q->up = false;
    sim_say(s, "%s: lost the scheduler", sim_peer_name(s, p));
    for (int k = 0; k < s->n_workers; k++) {
        q->worker[k].announced = false;
        if (q->worker[k].w)
            fault_worker_reset(q->worker[k].w);
    }
    if (q->alive)
        reconnect_later(s, p, 0.01, 1);
}

static void check_end(sim *s, int id, end_reason why)
{
    const client_request *r = &s->request[id];
    const fault_truth *t = &s->truth[id];
    bool all = r->n_output == t->n_output, right = false;
    switch (why) {
    case END_STOP:
        right = all && t->n_output < t->max_tokens;
        break;
    case END_LENGTH:
        right = all && t->n_output == t->max_tokens;
        break;
    case END_FAILED:
        right = t->fails;
        break;
    case END_QUEUE_FULL:
    case END_TOO_LATE:
        right = r->n_submits == 1;
        break;
    case END_TOO_LARGE:         /* or it was new to a scheduler that had not met the largest GPU yet */
        right = t->n_prompt + t->n_output > sim_capacity(s) || (r->n_submits == 1 && r->n_output == 0);
        break;
    case END_KILLS_WORKERS:
        s->stats->killers++;
        right = true;           /* the watch has seen to that */
        break;
    }
    s->stats->finished += all;
    if (!right)
        sim_violate(s, "request %d ended with reason %d after %d of %d tokens", id, (int)why, r->n_output, t->n_output);
}

static void take_results(sim *s, int p, const message *m)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        const message_part *part = &m->part[i];
        client_request *r = &s->request[part->id];
        if (r->state != REQUEST_LIVE || r->frontend != p)
            continue;           /* cancelled meanwhile */
        if (part->is_end) {
            sim_say(s, "%s: request %d ends, reason %d", sim_peer_name(s, p), (int)part->id, part->why);
            check_end(s, (int)part->id, (end_reason)part->why);
            r->state = REQUEST_ENDED;
            continue;
        }
        if (part->index != r->n_output)
            sim_violate(s, "the client of request %d got token %d where %d was due", (int)part->id, part->index, r->n_output);
        else if (part->token != fault_token(part->id, s->truth[part->id].n_prompt + part->index))
            sim_violate(s, "the client of request %d got a wrong token %d", (int)part->id, part->index);
        r->n_output++;
        s->stats->tokens++;
    }
}

void client_arrive(sim *s, int id)
{
    client_request *r = &s->request[id];
    if (!s->peer[r->frontend].alive) {
        r->state = REQUEST_LOST;
        return;
    }
    r->state = REQUEST_LIVE;
    r->arrival = s->net.now + s->peer[r->frontend].skew;
    sim_say(s, "%s: request %d comes, %d + %d tokens%s", sim_peer_name(s, r->frontend), id, s->truth[id].n_prompt, s->truth[id].n_output,
        s->truth[id].kills_at >= 0 ? ", a killer" : "");
    if (s->peer[r->frontend].up)
        submit(s, id);
}

void client_cancel(sim *s, int id)
{
    client_request *r = &s->request[id];
    if (r->state != REQUEST_LIVE)
        return;
    r->state = REQUEST_CANCELLED;
    s->stats->cancelled++;
    sim_say(s, "%s: request %d is cancelled", sim_peer_name(s, r->frontend), id);
    message *m = message_new(MESSAGE_CANCEL);
    m->id = (uint64_t)id;
    send_to_scheduler(s, r->frontend, m);
}

void worker_start(sim *s, int p, int k)
{
    worker_place *w = &s->peer[p].worker[k];
    fault_worker_setup setup = sim_worker_setup(s, p);
    w->w = fault_worker_new(&setup);
    w->epoch++;
    w->hung = false;
    w->slow = 1;
    sim_say(s, "%s: worker %d is ready", sim_peer_name(s, p), k);
    announce(s, p, k);
    plan_step(s, p, k, 0);
}

/* Its process is gone, if there was one; what was planned for it is void. */
static void end_worker(worker_place *w)
{
    fault_worker_free(w->w);
    w->w = NULL;
    w->epoch++;
}

/* The process ends; its runner learns of it a little later. */
void worker_kill(sim *s, int p, int k)
{
    worker_place *w = &s->peer[p].worker[k];
    if (!w->w)
        return;
    sim_say(s, "%s: worker %d dies", sim_peer_name(s, p), k);
    end_worker(w);
    sim_plan(&s->net, sim_uniform(&s->net, 0, 0.05), EVENT_DEATH, p, k, w->epoch, NULL);
}

void worker_learn_death(sim *s, int p, int k)
{
    worker_place *w = &s->peer[p].worker[k];
    if (w->announced) {
        message *m = message_new(MESSAGE_GPU_GONE);
        m->gpu = k;
        m->died = true;
        send_to_scheduler(s, p, m);
    }
    w->announced = false;
    sim_plan(&s->net, sim_uniform(&s->net, 0.1, 2), EVENT_WORKER_UP, p, k, w->epoch, NULL);
}

static void report(sim *s, int p, int k, message *m)
{
    m->gpu = k;
    if (s->peer[p].worker[k].announced)
        send_to_scheduler(s, p, m);
    else
        message_free(m);
}

/* A runner that drains leaves when its workers have nothing any more. */
static void leave_if_empty(sim *s, int p)
{
    peer *q = &s->peer[p];
    if (!q->draining || !q->up)
        return;
    for (int k = 0; k < s->n_workers; k++)
        if (q->worker[k].w && !fault_worker_is_empty(q->worker[k].w))
            return;
    sim_say(s, "%s: is empty and leaves", sim_peer_name(s, p));
    q->alive = false;
    sim_close(&s->net, q->conn, SIDE_PEER);
    peer_lose(s, p);
    for (int k = 0; k < s->n_workers; k++)
        end_worker(&q->worker[k]);
    sim_plan(&s->net, sim_uniform(&s->net, 0.5, 4), EVENT_RESTART, p, 0, ++q->epoch, NULL);
}

void worker_step(sim *s, int p, int k)
{
    worker_place *w = &s->peer[p].worker[k];
    if (w->hung)
        return;
    message *seen = fault_worker_take_in(w->w);
    if (seen)
        report(s, p, k, seen);
    message *done = fault_worker_step(w->w);
    if (!done) {
        worker_kill(s, p, k);
        return;
    }
    report(s, p, k, done);
    if (fault_worker_violation(w->w))
        sim_violate(s, "%s", fault_worker_violation(w->w));
    w->idle = fault_worker_is_empty(w->w);
    plan_step(s, p, k, w->idle ? 1 : s->step_time * w->slow * sim_uniform(&s->net, 0.7, 1.3));
    leave_if_empty(s, p);
}

static void runner_hears(sim *s, int p, message *m)
{
    worker_place *w = &s->peer[p].worker[m->gpu];
    if (!w->w || !w->announced || w->epoch != m->start) {        /* meant for a worker that has died */
        message_free(m);
        return;
    }
    fault_worker_send(w->w, m);
    if (w->idle && !w->hung) {
        w->idle = false;
        plan_step(s, p, m->gpu, 0);
    }
}

/* Takes the message. */
void peer_hear(sim *s, int p, int conn, message *m)
{
    bool is_command = m->kind == MESSAGE_ADD || m->kind == MESSAGE_CANCEL;
    if (s->peer[p].conn == conn && is_command && sim_is_runner(s, p)) {
        runner_hears(s, p, m);
        return;
    }
    if (s->peer[p].conn != conn)
        ;
    else if (m->kind == MESSAGE_HELLO)
        peer_is_up(s, p);
    else if (m->kind == MESSAGE_RESULTS)
        take_results(s, p, m);
    else if (m->kind == MESSAGE_CLOSE)
        peer_lose(s, p);
    message_free(m);
}

void peer_start(sim *s, int p)
{
    peer *q = &s->peer[p];
    q->alive = true;
    q->up = false;
    q->draining = false;
    q->conn = -1;
    q->epoch++;
    q->instance = ++s->last_instance;
    q->skew = sim_uniform(&s->net, -0.5, 0.5);
    sim_say(s, "%s: starts", sim_peer_name(s, p));
    peer_connect(s, p);
    for (int k = 0; k < s->n_workers && sim_is_runner(s, p); k++)
        sim_plan(&s->net, sim_uniform(&s->net, 0, 1), EVENT_WORKER_UP, p, k, ++q->worker[k].epoch, NULL);
}

/* Killed: whatever it had is gone, and its link breaks. */
void peer_crash(sim *s, int p)
{
    peer *q = &s->peer[p];
    if (!q->alive)
        return;
    q->alive = false;
    if (q->conn >= 0)
        sim_break(&s->net, q->conn, 0, sim_uniform(&s->net, 0, 3));
    q->conn = -1;
    q->up = false;
    for (int i = 1; i <= s->n_requests && !sim_is_runner(s, p); i++)
        if (s->request[i].frontend == p && s->request[i].state == REQUEST_LIVE)
            s->request[i].state = REQUEST_LOST;
    for (int k = 0; k < s->n_workers; k++) {
        q->worker[k].announced = false;
        end_worker(&q->worker[k]);
    }
    sim_plan(&s->net, sim_uniform(&s->net, 0.2, 4), EVENT_RESTART, p, 0, ++q->epoch, NULL);
}

void peer_drain(sim *s, int p)
{
    if (!s->peer[p].alive || s->peer[p].draining)
        return;
    s->peer[p].draining = true;
    send_to_scheduler(s, p, message_new(MESSAGE_DRAIN));
}
