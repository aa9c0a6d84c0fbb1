/* sched_wire.c - see sched_wire.h */
#include "scheduler/sched_wire.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/wire_end.h"

static const double LONGEST_RETRY = 3600; /* seconds; what is longer is cut to it */
enum { MAX_GPUS_OF_RUNNER = 1024, MAX_BATCH = 65536, MAX_PAGE_LEN = 65536 };

Request sched_wire_add(const command *c)
{
    const submission *w = c->what;
    Request r = REQUEST__INIT;
    r.id = c->id;
    r.attempt = c->attempt;
    r.arrival = w->arrival;
    r.adapter = (char *)(w->adapter ? w->adapter : "");
    r.n_tokens = (size_t)w->n_tokens;
    r.tokens = (uint32_t *)w->token;
    r.n_prompt = (uint32_t)w->n_prompt;
    r.max_tokens = (uint32_t)w->max_tokens;
    r.n_to_score = (uint32_t)w->n_to_score;
    r.n_scored = (uint32_t)w->n_scored;
    r.sampling = (ProtobufCBinaryData){w->sampling_bytes, (uint8_t *)w->sampling};
    r.digest = (ProtobufCBinaryData){w->digest_bytes, (uint8_t *)w->digest};
    return r;
}

Cancel sched_wire_cancel(const command *c)
{
    Cancel cancel = CANCEL__INIT;
    cancel.id = c->id;
    cancel.attempt = c->attempt;
    return cancel;
}

Tokens sched_wire_tokens(const command *c)
{
    const report_tokens *t = c->tokens;
    Tokens out = TOKENS__INIT;
    out.id = c->id;
    out.index = (uint32_t)t->index;
    out.n_tokens = (size_t)t->n;
    out.tokens = (uint32_t *)t->token;
    out.logprobs = (ProtobufCBinaryData){t->extra_bytes, (uint8_t *)t->extra};
    out.cached = t->cached;
    return out;
}

End sched_wire_end(const command *c)
{
    End out = END__INIT;
    out.id = c->id;
    out.why = wire_end_pack(c->why);
    out.message = (char *)(c->message ? c->message : "");
    out.retry_after = c->why == END_QUEUE_FULL || c->why == END_TOO_LATE ? 1 : c->retry_after;
    return out;
}

/* Clamps to INT_MAX: numbers so large are refused further on. */
static int int_of(uint32_t x)
{
    return x <= INT_MAX ? (int)x : INT_MAX;
}

bool sched_wire_read_submit(const Request *r, double arrival, submission *out)
{
    if (r->n_tokens > INT_MAX)
        return false;
    *out = (submission){.id = r->id,
                        .arrival = arrival,
                        .adapter = *r->adapter ? r->adapter : NULL,
                        .token = (const int *)r->tokens,
                        .n_tokens = (int)r->n_tokens,
                        .n_prompt = int_of(r->n_prompt),
                        .max_tokens = int_of(r->max_tokens),
                        .n_to_score = int_of(r->n_to_score),
                        .n_scored = int_of(r->n_scored),
                        .sampling = r->sampling.data,
                        .sampling_bytes = r->sampling.len,
                        .digest = r->digest.data,
                        .digest_bytes = r->digest.len,
                        .tenant = *r->tenant ? r->tenant : NULL,
                        .weight = r->weight,
                        .priority = r->priority,
                        .again = r->again};
    return true;
}

bool sched_wire_read_gpu(const GpuUp *up, gpu_info *out)
{
    if (up->gpu >= MAX_GPUS_OF_RUNNER || !*up->uuid || up->max_batch < 1 || up->max_batch > MAX_BATCH ||
        up->n_pages < 1 || up->page_len < 1 || up->page_len > MAX_PAGE_LEN || up->max_tokens < 1)
        return false;
    *out = (gpu_info){.uuid = up->uuid,
                      .device = up->device,
                      .max_batch = int_of(up->max_batch),
                      .n_pages = int_of(up->n_pages),
                      .page_len = int_of(up->page_len),
                      .max_tokens = int_of(up->max_tokens)};
    return true;
}

static report_tokens tokens_of(const Tokens *t)
{
    return (report_tokens){.id = t->id,
                           .attempt = t->attempt,
                           .index = int_of(t->index),
                           .n = (int)t->n_tokens,
                           .token = (const int *)t->tokens,
                           .extra = t->logprobs.data,
                           .extra_bytes = t->logprobs.len,
                           .cached = t->cached};
}

/* Reads an end. False if workers report no such end. */
static bool read_end(const End *e, report_end *out)
{
    double later = e->retry_after > 0 ? fmin(e->retry_after, LONGEST_RETRY) : 0; /* NaN: 0 */
    *out = (report_end){.id = e->id, .attempt = e->attempt, .message = e->message, .retry_after = later};
    return wire_end_read_report(e->why, &out->why);
}

bool sched_wire_read_step(const Step *step, step_scratch *m, gpu_report *out)
{
    m->tokens = xgrow(m->tokens, &m->tokens_cap, step->n_tokens + 1, sizeof *m->tokens);
    m->ends = xgrow(m->ends, &m->ends_cap, step->n_ends + 1, sizeof *m->ends);
    for (size_t i = 0; i < step->n_tokens; i++)
        m->tokens[i] = tokens_of(step->tokens[i]);
    for (size_t i = 0; i < step->n_ends; i++)
        if (!read_end(step->ends[i], &m->ends[i]))
            return false;
    *out = (gpu_report){.n_seen = step->n_seen,
                        .pages_free = step->pages_free,
                        .host = {step->host_pages, step->pages_saved, step->pages_fetched},
                        .n_tokens = (int)step->n_tokens,
                        .n_ends = (int)step->n_ends,
                        .tokens = m->tokens,
                        .ends = m->ends};
    return true;
}

void step_scratch_deinit(step_scratch *m)
{
    free(m->tokens);
    free(m->ends);
}
