/* ledger.c - see ledger.h */
#include "frontend/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"

struct ledger {
    uint64_t generation; /* counts up when rows are taken; from 1 */
    size_t max_rows;
    store_usage *row; /* [n_rows] strings are owned */
    size_t n_rows, cap;
    map *by_key;
};

ledger *ledger_new(size_t max_rows)
{
    ledger *l = XNEW(ledger);
    *l = (ledger){.generation = 1, .max_rows = max_rows, .by_key = map_new(64)};
    return l;
}

void ledger_rows_free(store_usage *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((char *)rows[i].tenant);
        free((char *)rows[i].adapter);
        free((char *)rows[i].digest);
    }
    free(rows);
}

void ledger_free(ledger *l)
{
    if (!l)
        return;
    ledger_rows_free(l->row, l->n_rows);
    map_free(l->by_key);
    free(l);
}

size_t ledger_n_rows(const ledger *l)
{
    return l->n_rows;
}

static size_t find_row(ledger *l, const ledger_key *k)
{
    char hex[DIGEST_HEX] = "";
    if (k->version)
        digest_to_hex(k->version, hex);
    buf key = {0};
    buf_printf(&key, "%s\n%s\n%s\n%" PRId64, k->tenant, hex, k->adapter, k->hour);
    int64_t row = (int64_t)l->n_rows;
    if (!map_get(l->by_key, key.data, key.len, &row)) {
        map_put(l->by_key, key.data, key.len, row);
        l->row = xgrow(l->row, &l->cap, l->n_rows + 1, sizeof *l->row);
        l->row[l->n_rows++] = (store_usage){
            .tenant = xstrdup(k->tenant), .adapter = xstrdup(k->adapter), .digest = xstrdup(hex), .hour = k->hour};
    }
    buf_free(&key);
    return (size_t)row;
}

/* Returns the row of a key; once there are max_rows, that of its tenant and hour alone. */
static size_t row_of(ledger *l, const ledger_key *k)
{
    const ledger_key rest = {.tenant = k->tenant, .adapter = "", .hour = k->hour};
    return find_row(l, l->n_rows < l->max_rows ? k : &rest);
}

void ledger_add(ledger *l, ledger_place *at, const ledger_key *k, int64_t requests, int64_t prompt, int64_t cached,
                int64_t output)
{
    if (at->generation != l->generation || l->row[at->row].hour != k->hour)
        *at = (ledger_place){l->generation, row_of(l, k)};
    store_usage *u = &l->row[at->row];
    u->requests += requests;
    u->prompt += prompt;
    u->cached += cached;
    u->output += output;
}

static int by_key(const void *pa, const void *pb)
{
    const store_usage *a = pa, *b = pb;
    int d = strcmp(a->tenant, b->tenant);
    d = d ? d : strcmp(a->adapter, b->adapter);
    d = d ? d : strcmp(a->digest, b->digest);
    return d ? d : (a->hour > b->hour) - (a->hour < b->hour);
}

store_usage *ledger_take(ledger *l, size_t *n)
{
    store_usage *rows = l->row;
    *n = l->n_rows;
    if (*n)
        qsort(rows, *n, sizeof *rows, by_key);
    map_free(l->by_key);
    *l = (ledger){.generation = l->generation + 1, .max_rows = l->max_rows, .by_key = map_new(64)};
    return rows;
}
