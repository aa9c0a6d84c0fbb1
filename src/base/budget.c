/* budget.c - see budget.h */
#include "base/budget.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

void shared_budget_init(shared_budget *b, size_t limit)
{
    *b = (shared_budget){.whole.limit = limit};
    for (int i = 0; i < BUDGET_PARTS; i++)
        b->part[i].whole = &b->whole;
}

budget *shared_budget_part(shared_budget *b, const char *name)
{
    if (!b || !name)
        return b ? &b->whole : NULL;
    uint64_t hash = 0;
    for (; *name; name++)
        hash = rng_mix(hash ^ (unsigned char)*name);
    return &b->part[hash % BUDGET_PARTS];
}

static bool add_within(budget *b, size_t limit, size_t n)
{
    size_t used = atomic_load(&b->used);
    do {
        if (n > limit || used > limit - n)
            return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + n));
    return true;
}

static void add_to_part(budget *p, size_t n)
{
    if (p->whole && n > 0 && atomic_fetch_add(&p->used, n) == 0)
        atomic_fetch_add(&p->whole->n_parts, 1);
}

enum { FOR_LARGE = 2, FOR_NEW = 3, FOR_BEGUN = 4 }; /* quarters of a whole that work of a kind may take */

static size_t quarters_of(const budget *whole, int quarters)
{
    return whole->limit - whole->limit / 4 * (size_t)(4 - quarters);
}

/* Returns whether a part has no more than an equal share of the limit with n bytes more. */
static bool is_within_share(budget *p, size_t limit, size_t n)
{
    size_t mine = atomic_load(&p->used);
    int others = atomic_load(&p->whole->n_parts) - (mine > 0);
    size_t equal = limit / (size_t)(others + 2);
    return n <= equal && mine <= equal - n;
}

/* Takes n bytes from b as long as no more than `quarters` quarters of the whole are taken. A part may take the last
 * quarter of these only within its equal share. Within it a part may take a large buffer from all that is for new work:
 * else many small buffers of another might keep it out. */
static bool take_quarters(budget *b, int quarters, size_t n)
{
    if (!b)
        return true;
    budget *whole = b->whole ? b->whole : b;
    size_t limit = quarters_of(whole, quarters);
    if (b->whole && quarters < FOR_BEGUN)
        limit = is_within_share(b, limit, n) ? quarters_of(whole, FOR_NEW) : limit - limit / 4;
    if (!add_within(whole, limit, n))
        return false;
    add_to_part(b, n);
    return true;
}

bool budget_take(budget *b, size_t n)
{
    return take_quarters(b, FOR_NEW, n);
}

bool budget_take_more(budget *b, size_t n)
{
    return take_quarters(b, FOR_BEGUN, n);
}

void budget_give(budget *b, size_t n)
{
    if (!b || n == 0)
        return;
    atomic_fetch_sub(b->whole ? &b->whole->used : &b->used, n);
    if (b->whole && atomic_fetch_sub(&b->used, n) == n)
        atomic_fetch_sub(&b->whole->n_parts, 1);
}

void budget_charge(budget *b, size_t n)
{
    if (!b)
        return;
    atomic_fetch_add(b->whole ? &b->whole->used : &b->used, n);
    add_to_part(b, n);
}

/* Returns room for `need` bytes and a NUL: twice the old size, but no more than is expected. */
static size_t next_size(size_t size, size_t need, size_t expected)
{
    size_t twice = size ? 2 * size : 4096;
    size_t most = expected + 1 < twice ? expected + 1 : twice;
    return most > need ? most : need + 1;
}

static bool take_large(budget *b, size_t n)
{
    return take_quarters(b, FOR_LARGE, n);
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
