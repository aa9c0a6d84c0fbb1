/* sim_loaders.c - see sim_loaders.h. A job's function runs when the job's time is over. */
#include "sim/sim_loaders.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static void start(jobs *w, job *j)
{
    sim_loaders *s = (sim_loaders *)w;
    s->load = xgrow(s->load, &s->load_cap, s->n_loads + 1, sizeof *s->load);
    size_t at = s->n_loads++;
    for (; at > 0 && s->load[at - 1].end > s->now + s->seconds; at--)
        s->load[at] = s->load[at - 1];
    s->load[at] = (sim_load){j, s->now + s->seconds};
}

static job *finished(jobs *w, bool wait)
{
    sim_loaders *s = (sim_loaders *)w;
    CHECK(!wait || s->n_loads > 0);
    if (wait && s->load[0].end > s->now)
        s->now = s->load[0].end;
    if (s->n_loads == 0 || s->load[0].end > s->now)
        return NULL;
    job *j = s->load[0].j;
    memmove(s->load, s->load + 1, --s->n_loads * sizeof *s->load);
    j->run(j);
    return j;
}

static job *take_back(jobs *w)
{
    sim_loaders *s = (sim_loaders *)w;
    return s->n_loads ? s->load[--s->n_loads].j : NULL;
}

void sim_loaders_init(sim_loaders *s, double seconds)
{
    static const jobs_ops ops = {.start = start, .finished = finished, .take_back = take_back};
    *s = (sim_loaders){.base.ops = &ops, .seconds = seconds};
}

void sim_loaders_deinit(sim_loaders *s)
{
    CHECK(s->n_loads == 0);
    free(s->load);
}
