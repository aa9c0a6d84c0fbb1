/* budget.h - a memory limit shared by many users
 *
 * A user takes memory from the budget before it allocates more than its free allowance, and is refused when too little
 * is left: so clients cannot make the process run out of memory. The last quarter is reserved for work that has already
 * begun, so new work cannot end it. Any thread. */
#ifndef PUNICA_BASE_BUDGET_H
#define PUNICA_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct budget {
    size_t limit; /* bytes; unused in a part: its whole has the limit */
    atomic_size_t used;
    struct budget *whole; /* borrowed; NULL: this is not a part */
    atomic_int n_parts;   /* in a whole: how many parts have taken something */
} budget;

/* A budget with a part for each user. Of what new work may take, the last quarter is for users that have taken less
 * than an equal share (counting one user more than there are), so that nobody shuts others out. A part is found by the
 * hash of a name: users whose names collide share one bound. Parts live as long as the whole. */
enum { BUDGET_PARTS = 1024 };
typedef struct { budget whole, part[BUDGET_PARTS]; } shared_budget;

void shared_budget_init(shared_budget *b, size_t limit);
budget *shared_budget_part(shared_budget *b, const char *name); /* borrowed. name NULL: the whole; b NULL: NULL */

/* Takes n bytes for new work. False, with nothing taken, when too little is left. b may be NULL: no limit. */
bool budget_take(budget *b, size_t n);

/* Takes n bytes for work that has begun and would be lost: it may use the whole limit. Otherwise as budget_take(). */
bool budget_take_more(budget *b, size_t n);
void budget_give(budget *b, size_t n); /* gives back n bytes that were taken */

/* Takes n bytes even beyond the limit, for memory that is allocated already; later takers are refused. */
void budget_charge(budget *b, size_t n);

/* A buffer whose memory is taken from a budget. Zero-initialise all but `of`; free with charged_buf_free(). A small one
 * takes nothing: it is within each client's free allowance. */
typedef struct {
    buf bytes;
    budget *of; /* borrowed; NULL: no limit */
    size_t taken;
} charged_buf;

#define CHARGED_BUF_FREE (16u << 10) /* up to this many bytes take nothing */

/* Appends n bytes. expected: the final length as far as is known, so that growing does not reserve more. False, with
 * nothing changed, when the budget refuses. */
bool charged_buf_add(charged_buf *b, const void *bytes, size_t n, size_t expected);

/* Reserves room for a final length of n bytes. False, with nothing changed, when the budget refuses. Such reservations
 * are refused once half of the budget is taken, so that small buffers find room beside large ones; only those within a
 * user's equal share of that half are not. */
bool charged_buf_reserve(charged_buf *b, size_t n);
void charged_buf_free(charged_buf *b);

#endif
