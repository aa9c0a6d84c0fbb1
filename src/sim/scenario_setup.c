/* scenario_setup.c - see scenario_setup.h
 *
 * Each draw is a statement of its own: C does not define the order of several within one initializer. */
#include "sim/scenario_setup.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"

enum { MOST_CLIENTS = 40 };

static uint64_t draw(scenario_setup *s, rng_stream c, uint64_t below)
{
    return world_draw(&s->c->w, c, below);
}

static bool often(scenario_setup *s, rng_stream c, double share)
{
    return world_chance(&s->c->w, c, share);
}

static void make_machine(scenario_setup *s, int i, const sim_machine *like)
{
    sim_machine *m = &s->c->runner[i].machine;
    *m = *like;
    for (int a = 0; a < N_ADAPTERS; a++)
        m->disk[a] = (disk_file){s->c->newest[a], FILE_FINE};
}

static sim_machine draw_machine(scenario_setup *s)
{
    world *w = &s->c->w;
    const rng_stream c = RNG_CLUSTER;
    sim_machine m = {.disk_slow = 1};
    m.max_batch = 1 + (int)draw(s, c, often(s, c, 0.1) ? 30 : 6);
    m.n_pages = 8 + (int)draw(s, c, often(s, c, 0.5) ? 10 : 60);
    m.page_len = 1 + (int)draw(s, c, 4);
    m.n_slots = 1 + (int)draw(s, c, 4);
    m.runs_ahead = often(s, c, 0.5);
    m.prefill_rows = often(s, c, 0.5) ? 256 : 1 + (int)draw(s, c, 8);
    bool keeps_target = draw(s, c, 2) == 0;
    m.step_time = world_uniform(w, c, 0.01, 0.1);
    m.itl_target = keeps_target ? 0.05 : 0;
    m.load_time = world_uniform(w, c, 0.01, often(s, c, 0.7) ? 0.5 : 2);
    m.device_room = often(s, c, 0.5) ? 1 + (int)draw(s, c, 3) : 0;
    m.n_images = 1 + (int)draw(s, c, N_ADAPTERS);
    uint64_t more = (uint64_t)(m.step_time * 1e12); /* in place of a further draw, which would change all later ones */
    m.host_pages = more % 2 ? (int)(more / 2 % 50) : 0;
    if (m.max_batch > 6)
        m.n_pages += 8 * m.max_batch;
    return m;
}

static void make_machines(scenario_setup *s)
{
    const rng_stream c = RNG_CLUSTER;
    s->uneven = often(s, c, 0.1);
    s->c->n_machines = s->uneven ? MOST_MACHINES : 1 + (int)draw(s, c, MOST_MACHINES);
    int n_workers = 1 + (int)draw(s, c, MOST_WORKERS);
    sim_machine like = draw_machine(s);
    if (s->uneven)
        like.n_pages = 9;
    int differ = often(s, c, 0.5) ? 1 : often(s, c, 0.5) ? 20 : 60; /* pages */
    for (int i = 0; i < s->c->n_machines; i++) {
        make_machine(s, i, &like);
        s->c->runner[i].n_workers = n_workers;
        s->c->runner[i].machine.n_pages += (int)draw(s, c, (uint64_t)differ);
    }
    s->c->runner[0].machine.n_pages += s->uneven ? 60 : 0;
}

static sim_network_conditions draw_conditions(scenario_setup *s)
{
    const rng_stream c = RNG_CLUSTER;
    sim_network_conditions w;
    w.delay = often(s, c, 0.5) ? 0.001 : 0.02;
    w.spikes = often(s, c, 0.5) ? 0.01 : 0;
    w.choppy = often(s, c, 0.3) ? 0.5 : 0;
    w.buffer = often(s, c, 0.3) ? 200 : 64 << 10;
    w.noise = often(s, c, 0.2) ? 0.01 : 0;
    s->noisy = w.noise > 0;
    return w;
}

/* Half of the scenarios have tenants. */
static void draw_tenants(scenario_setup *s)
{
    const rng_stream c = RNG_TENANTS;
    s->c->n_tenants = often(s, c, 0.5) ? 2 + (int)draw(s, c, MOST_TENANTS - 1) : 0;
    for (int i = 0; i < s->c->n_tenants; i++) {
        s->c->tenant[i].weight = 1 + (int)draw(s, c, 5);
        s->c->tenant[i].in_flight = often(s, c, 0.1) ? 2 + (int)draw(s, c, 4) : 0;
    }
}

void scenario_setup_draw_cluster(scenario_setup *s)
{
    cluster *k = s->c;
    world *w = &k->w;
    const rng_stream c = RNG_CLUSTER;
    sim_network_conditions conditions = draw_conditions(s);
    sim_network_set_conditions(w->net, &conditions);
    s->choppy = conditions.choppy > 0;
    for (int a = 0; a < N_ADAPTERS; a++)
        for (int i = 0; i < MOST_FRONTENDS; i++)
            k->front[i].content[a] = k->newest[a] = rng_u64(w->seed, (uint64_t)a) | 1;
    k->n_fronts = 1 + (int)draw(s, c, MOST_FRONTENDS);
    make_machines(s);
    k->link = link_options_default();
    static const credentials known = {.secret = {"known to all"}};
    k->link.own = &known;
    if (often(s, c, 0.3)) {
        k->link.ping_every = 0.3;
        k->link.silence = 1.5;
    }
    if (often(s, c, 0.2))
        k->link.max_unsent = 1000;
    k->policy = scheduler_options_default();
    k->policy.max_queue = often(s, c, 0.3) ? 3 + (int)draw(s, c, 5) : 1000;
    k->policy.max_wait = often(s, c, 0.2) ? world_uniform(w, c, 0.5, 4) : 0;
    k->policy.max_no_gpu = often(s, c, 0.3) ? world_uniform(w, c, 1, 6) : 60;
    k->policy.max_aside = often(s, c, 0.5) ? world_uniform(w, c, 0.1, 2) : 60;
    k->policy.consolidate_every = often(s, c, 0.7) ? 0.3 : 0;
    k->policy.move_again_after = often(s, c, 0.5) ? 1 : 0;
    k->policy.light_share = world_uniform(w, c, 0.2, 1);
    k->policy.prefill_rate = 10000;
    k->policy.step_time = k->runner[0].machine.step_time;
    k->patience = often(s, c, 0.2) ? world_uniform(w, c, 1.5, 5) : 300;
    k->keep_alive = often(s, c, 0.3) ? 0.3 : 10;
    k->hang_seconds = 4;
    k->max_live = often(s, c, 0.1) ? 5 : 1000;
    k->gone_adapter = often(s, c, 0.25) ? (int)draw(s, c, N_ADAPTERS) : -1;
    draw_tenants(s);
}

/* Draws a client's tenant and priority; the first tenant has most of the clients. */
static void draw_asker(scenario_setup *s, client_request *q)
{
    const rng_stream c = RNG_TENANTS;
    int n = s->c->n_tenants;
    q->tenant = n == 0 ? -1 : often(s, c, 0.4) ? 0 : (int)draw(s, c, (uint64_t)n);
    q->priority = often(s, c, 0.2) ? (int)draw(s, c, 3) - 1 : 0;
}

/* Draws a request: prompt and output have up to `most` tokens together; large: it may outgrow every GPU. */
static void draw_request(scenario_setup *s, client_request *q, int most, bool killers, bool large)
{
    const rng_stream c = RNG_REQUESTS;
    most = large ? most + 6 : most;
    most = most < TOY_CONTEXT ? most : TOY_CONTEXT - 1;
    q->is_killer = killers && often(s, c, 0.08);
    q->n_prompt = 2 + (int)draw(s, c, (uint64_t)(often(s, c, s->uneven ? 0.5 : 0.2) ? most - 3 : most / 2));
    /* The length of a prefix that it shares with other requests. */
    int n_common = often(s, c, 0.4) ? (int)draw(s, c, (uint64_t)q->n_prompt + 1) : 0;
    for (int i = 0; i < q->n_prompt; i++)
        q->prompt[i] = i < n_common ? 'a' + i % 26 : ' ' + 1 + (int)draw(s, c, 90);
    q->prompt[0] = 'A';
    int room = most - q->n_prompt < 24 && !large ? most - q->n_prompt : 24;
    q->max_tokens = 1 + (int)draw(s, c, (uint64_t)(room > 1 ? room : 1));
    if (q->is_killer) {
        q->prompt[0] = TOY_KILLER;
        q->prompt[1] = 2 + (int)draw(s, c, (uint64_t)(q->n_prompt + q->max_tokens));
    }
    q->n_choices = often(s, c, 0.1) ? 2 : 1;
    q->seed = draw(s, c, 1u << 30);
    if (q->is_killer && q->seed % 4 == 0)
        q->prompt[0] = TOY_RUNNER_KILLER;
    q->adapter = (int)draw(s, c, N_ADAPTERS + 1) - 1;
    q->stream = often(s, c, 0.7);
    if (often(s, c, 0.2))
        snprintf(q->stop, sizeof q->stop, "%c", 'a' + (char)draw(s, c, 26));
    else if (often(s, c, 0.2))
        q->min_tokens = 1 + (int)draw(s, c, (uint64_t)client_most_output(q));
    q->penalized = often(s, c, 0.15);
    q->alternates = q->seed % 6 == 0;
    q->scored = !q->stream && q->seed % 3 == 0;
    q->max_tokens = q->scored && q->seed % 5 == 0 && !q->min_tokens ? 0 : q->max_tokens;
    draw_asker(s, q);
}

/* Makes late client i: the first ones ask the base and each adapter; the others ask for much and leave. */
static void make_late_client(scenario_setup *s, client *q, int i)
{
    int most = cluster_capacity(s->c) - 1;
    q->comes_late = true;
    draw_request(s, &q->request, i <= N_ADAPTERS && most > 8 ? 8 : most, false, false);
    q->request.adapter = i <= N_ADAPTERS ? i - 1 : q->request.adapter;
}

void scenario_setup_draw_clients(scenario_setup *s)
{
    cluster *k = s->c;
    const rng_stream c = RNG_REQUESTS;
    bool killers = often(s, c, 0.4), large = often(s, c, 0.2);
    s->n_early = often(s, c, 0.2) ? 1 + (int)draw(s, c, 4) : 5 + (int)draw(s, c, MOST_CLIENTS - 5);
    k->n_clients = s->n_early + LATE_CLIENTS;
    k->client = XNEW_ARRAY(client, (size_t)k->n_clients);
    for (int i = 0; i < k->n_clients; i++) {
        client *q = &k->client[i];
        *q = (client){.in = &k->w, .number = i, .frontend = (int)draw(s, c, (uint64_t)k->n_fronts)};
        if (i < s->n_early)
            draw_request(s, &q->request, cluster_capacity(k) - 1, killers, large && often(s, c, 0.2));
        else
            make_late_client(s, q, i - s->n_early);
    }
}
