/* fault_worker.c - see fault_worker.h */
#include "bench/fault_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct {
    uint64_t id;
    uint32_t attempt;
    double arrival;
    int n_tokens, n_prompt, max_tokens;
    int n_pages;                /* held; 0: it waits */
} row;

struct fault_worker {
    fault_worker_setup is;
    message **inbox;            /* [n_inbox] owned */
    size_t n_inbox, inbox_cap;
    row *row;                   /* [n_rows] by arrival */
    size_t n_rows, row_cap;
    uint64_t n_seen;
    int pages_used;
    message_part *due;          /* [n_due] ends for the next report */
    size_t n_due, due_cap;
    buf violation;
};

int fault_token(uint64_t id, int index)
{
    return (int)(rng_u64(id, (uint64_t)index) % 30000);
}

fault_worker *fault_worker_new(const fault_worker_setup *s)
{
    fault_worker *w = XNEW(fault_worker);
    w->is = *s;
    return w;
}

static void clear_inbox(fault_worker *w)
{
    for (size_t i = 0; i < w->n_inbox; i++)
        message_free(w->inbox[i]);
    w->n_inbox = 0;
}

void fault_worker_free(fault_worker *w)
{
    if (!w)
        return;
    clear_inbox(w);
    free(w->inbox);
    free(w->row);
    free(w->due);
    buf_free(&w->violation);
    free(w);
}

void fault_worker_reset(fault_worker *w)
{
    clear_inbox(w);
    w->n_rows = 0;
    w->n_due = 0;
    w->pages_used = 0;
    w->n_seen = 0;
}

void fault_worker_send(fault_worker *w, message *m)
{
    w->inbox = xgrow(w->inbox, &w->inbox_cap, w->n_inbox + 1, sizeof *w->inbox);
    w->inbox[w->n_inbox++] = m;
}

static int pages_for(const fault_worker *w, int n_tokens)
{
    return (n_tokens + w->is.page_len - 1) / w->is.page_len;
}

static bool is_older(const row *a, double arrival, uint64_t id)
{
    return a->arrival < arrival || (a->arrival == arrival && a->id < id);
}

static void violate(fault_worker *w, const row *r, const char *what)
{
    if (!w->violation.len)
        buf_printf(&w->violation, "a worker got request %d as attempt %u: %s", (int)r->id, r->attempt, what);
}

/* The request must be the one its id says, with its first tokens, and have something left to do. */
static void check_add(fault_worker *w, const row *r, const message *m)
{
    const fault_truth *t = &w->is.truth[r->id];
    if (m->n_prompt != t->n_prompt || m->max_tokens != t->max_tokens)
        violate(w, r, "prompt or budget are not as submitted");
    if (m->n_tokens < m->n_prompt || m->n_tokens - m->n_prompt >= t->n_output)
        violate(w, r, "it has all its tokens");
    for (int i = 0; i < m->n_tokens; i++)
        if (m->token[i] != fault_token(m->id, i))
            violate(w, r, "a token is wrong");
    for (size_t i = 0; i < w->n_rows; i++)
        if (w->row[i].id == r->id)
            violate(w, r, "it is here already");
    if ((int)w->n_rows >= w->is.max_batch)
        violate(w, r, "the batch is full");
}

static void add(fault_worker *w, const message *m)
{
    row r = {m->id, m->attempt, m->arrival, m->n_tokens, m->n_prompt, m->max_tokens, 0};
    check_add(w, &r, m);
    w->row = xgrow(w->row, &w->row_cap, w->n_rows + 1, sizeof *w->row);
    size_t at = w->n_rows++;
    for (; at > 0 && !is_older(&w->row[at - 1], r.arrival, r.id); at--)
        w->row[at] = w->row[at - 1];
    w->row[at] = r;
}

static void remove_at(fault_worker *w, size_t at)
{
    w->pages_used -= w->row[at].n_pages;
    w->n_rows--;
    memmove(&w->row[at], &w->row[at + 1], (w->n_rows - at) * sizeof *w->row);
}

static void cancel(fault_worker *w, const message *m)
{
    for (size_t i = 0; i < w->n_rows; i++)
        if (w->row[i].id == m->id && w->row[i].attempt == m->attempt) {
            remove_at(w, i);
            return;
        }
}

/* Pages left, with those off that waiting requests will need. */
static int pages_free(const fault_worker *w)
{
    int n = w->is.n_pages - w->pages_used;
    for (size_t i = 0; i < w->n_rows; i++)
        if (w->row[i].n_pages == 0)
            n -= pages_for(w, w->row[i].n_tokens + 1);
    return n;
}

static void finish_report(const fault_worker *w, message *m)
{
    m->n_seen = w->n_seen;
    m->pages_free = pages_free(w);
}

message *fault_worker_take_in(fault_worker *w)
{
    if (w->n_inbox == 0)
        return NULL;
    for (size_t i = 0; i < w->n_inbox; i++)
        if (w->inbox[i]->kind == MESSAGE_ADD)
            add(w, w->inbox[i]);
        else
            cancel(w, w->inbox[i]);
    w->n_seen += w->n_inbox;
    clear_inbox(w);
    message *m = message_new(MESSAGE_STEP);
    finish_report(w, m);
    return m;
}

static void end_row(fault_worker *w, size_t at, message *m, outcome why)
{
    message_add_part(m, (message_part){.id = w->row[at].id, .attempt = w->row[at].attempt, .is_end = true, .why = (int)why});
    remove_at(w, at);
}

static void end_later(fault_worker *w, size_t at)
{
    w->due = xgrow(w->due, &w->due_cap, w->n_due + 1, sizeof *w->due);
    w->due[w->n_due++] = (message_part){.id = w->row[at].id, .attempt = w->row[at].attempt, .is_end = true, .why = OUTCOME_LENGTH};
    remove_at(w, at);
}

/* The oldest start as long as there are pages for them and one more for everybody. */
static void admit(fault_worker *w)
{
    int n_active = 0;
    for (size_t i = 0; i < w->n_rows; i++)
        n_active += w->row[i].n_pages > 0;
    for (size_t i = 0; i < w->n_rows; i++) {
        row *r = &w->row[i];
        if (r->n_pages > 0)
            continue;
        if (pages_for(w, r->n_tokens + 1) + n_active > w->is.n_pages - w->pages_used)
            return;
        r->n_pages = pages_for(w, r->n_tokens);
        w->pages_used += r->n_pages;
        n_active++;
    }
}

/* Pages for every active row's tokens; the newest active one goes when there are none. */
static void make_room(fault_worker *w, message *m)
{
    for (size_t i = 0; i < w->n_rows; i++)
        while (i < w->n_rows && w->row[i].n_pages > 0 && w->row[i].n_pages < pages_for(w, w->row[i].n_tokens)) {
            if (w->pages_used < w->is.n_pages) {
                w->row[i].n_pages++;
                w->pages_used++;
                continue;
            }
            size_t newest = w->n_rows - 1;
            while (w->row[newest].n_pages == 0)
                newest--;
            end_row(w, newest, m, OUTCOME_EVICTED);
        }
}

/* Row `at` makes a token, and may be done with it; true: it is gone. */
static bool make_token(fault_worker *w, size_t at, message *m)
{
    row *r = &w->row[at];
    const fault_truth *t = &w->is.truth[r->id];
    int index = r->n_tokens - r->n_prompt;
    if (t->fails) {
        end_row(w, at, m, OUTCOME_FAILED);
        return true;
    }
    message_add_part(m, (message_part){.id = r->id, .attempt = r->attempt, .index = index, .token = fault_token(r->id, r->n_tokens)});
    r->n_tokens++;
    if (index + 1 < t->n_output)
        return false;
    if (t->n_output == t->max_tokens && w->is.late_ends)
        end_later(w, at);
    else
        end_row(w, at, m, t->n_output == t->max_tokens ? OUTCOME_LENGTH : OUTCOME_STOP);
    return true;
}

message *fault_worker_step(fault_worker *w)
{
    message *m = message_new(MESSAGE_STEP);
    for (size_t i = 0; i < w->n_due; i++)
        message_add_part(m, w->due[i]);
    w->n_due = 0;
    make_room(w, m);
    admit(w);
    for (size_t i = 0; i < w->n_rows; i++)
        if (w->row[i].n_pages > 0 && w->is.truth[w->row[i].id].kills_at == w->row[i].n_tokens - w->row[i].n_prompt) {
            message_free(m);
            return NULL;
        }
    for (size_t i = 0; i < w->n_rows;)
        if (w->row[i].n_pages == 0 || !make_token(w, i, m))
            i++;
    CHECK(w->pages_used >= 0 && w->pages_used <= w->is.n_pages);
    finish_report(w, m);
    return m;
}

bool fault_worker_is_empty(const fault_worker *w)
{
    return w->n_rows == 0 && w->n_inbox == 0 && w->n_due == 0 && w->pages_used == 0;
}

const char *fault_worker_violation(const fault_worker *w)
{
    return w->violation.len ? w->violation.data : NULL;
}
