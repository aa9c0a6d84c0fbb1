/* budget.c - see budget.h */
#include "base/budget.h"

#include <string.h>

#include "base/mem.h"

static bool take_within(budget *b, size_t limit, size_t n)
{
    size_t used = atomic_load(&b->used);
    do {
        if (n > limit || used > limit - n)
            return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + n));
    return true;
}

bool budget_take(budget *b, size_t n)
{
    return !b || take_within(b, b->limit - b->limit / 4, n);
}

bool budget_take_more(budget *b, size_t n)
{
    return !b || take_within(b, b->limit, n);
}

void budget_give(budget *b, size_t n)
{
    if (b)
        atomic_fetch_sub(&b->used, n);
}

void budget_charge(budget *b, size_t n)
{
    if (b)
        atomic_fetch_add(&b->used, n);
}

/* Room for `need` bytes and a NUL: twice what there was, but not more than is expected. */
static size_t next_size(size_t size, size_t need, size_t expected)
{
    size_t twice = size ? 2 * size : 4096;
    size_t most = expected + 1 < twice ? expected + 1 : twice;
    return most > need ? most : need + 1;
}

static bool take_large(budget *b, size_t n)
{
    return !b || take_within(b, b->limit / 2, n);
}

static bool reserve(charged_buf *b, size_t need, size_t expected, bool (*take)(budget *b, size_t n))
{
    if (need < b->bytes.cap)
        return true;
    size_t size = next_size(b->bytes.cap, need, expected), owed = size > CHARGED_BUF_FREE ? size : 0;
    if (owed > b->taken && !take(b->of, owed - b->taken))
        return false;
    b->taken = owed;
    b->bytes.data = xrealloc(b->bytes.data, size);
    b->bytes.cap = size;
    return true;
}

bool charged_buf_add(charged_buf *b, const void *bytes, size_t n, size_t expected)
{
    if (!reserve(b, b->bytes.len + n, expected, budget_take))
        return false;
    buf_add(&b->bytes, bytes, n);
    return true;
}

bool charged_buf_reserve(charged_buf *b, size_t n)
{
    return reserve(b, n, n, take_large);
}

void charged_buf_free(charged_buf *b)
{
    buf_free(&b->bytes);
    budget_give(b->of, b->taken);
    b->taken = 0;
}
