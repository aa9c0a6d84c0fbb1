/* budget.h - memory that many share, with a limit for all of them
 *
 * Whoever wants more than it is given for nothing takes it from the budget first, and is refused when there is not
 * enough; so what strangers send never takes the process to its end. Nor does it end what runs: a quarter is for that
 * alone. Any thread. */
#ifndef PUNICA_BASE_BUDGET_H
#define PUNICA_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct budget {
    size_t limit; /* bytes; of a part: see its whole */
    atomic_size_t used;
    struct budget *whole; /* borrowed; NULL: this is no part */
    atomic_int n_parts;   /* of a whole: those with something taken */
} budget;

/* A budget with parts, one for each who takes from it. The last quarter of what something new may have is for those
 * with less than an equal part, one more counted in, so that nobody shuts others out. A part is found by a name's hash:
 * the few who share one by chance share its bound, and a part lives as long as the whole, whoever is gone. */
enum { BUDGET_PARTS = 1024 };
typedef struct { budget whole, part[BUDGET_PARTS]; } shared_budget;

void shared_budget_init(shared_budget *b, size_t limit);
budget *shared_budget_part(shared_budget *b, const char *name); /* name NULL: the whole; b NULL: NULL */

/* For something new. False, with nothing taken, when so much is not left. b may be NULL: no limit. */
bool budget_take(budget *b, size_t n);

/* The same for what has begun, and would be lost: of all there is. */
bool budget_take_more(budget *b, size_t n);
void budget_give(budget *b, size_t n);

/* Take it in any case: what is there already counts, and others are refused. */
void budget_charge(budget *b, size_t n);

/* Bytes with the budget that their memory is taken from. Zero but for `of`; free with charged_buf_free(). A small one
 * takes nothing: it belongs to what every client is given. */
typedef struct {
    buf bytes;
    budget *of; /* borrowed; NULL: no limit */
    size_t taken;
} charged_buf;

#define CHARGED_BUF_FREE (16u << 10) /* bytes of one that takes nothing */

/* Append; expected: how long it will be in the end as far as is known, so that no more than that is reserved. False,
 * with nothing changed, when the budget refuses. */
bool charged_buf_add(charged_buf *b, const void *bytes, size_t n, size_t expected);

/* Take room for all that is to come, n bytes in the end; the same. What is reserved so takes half of the budget at the
 * most, so that small ones find room beside large ones. */
bool charged_buf_reserve(charged_buf *b, size_t n);
void charged_buf_free(charged_buf *b);

#endif
