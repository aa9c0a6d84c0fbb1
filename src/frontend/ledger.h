/* ledger.h - tokens by tenant, version of adapter and hour, until they are in the store
 *
 * Bounded: once there are max_rows different rows, what comes is added up by tenant and hour alone, so that no token is
 * lost while a store is down for days. One thread. */
#ifndef PUNICA_FRONTEND_LEDGER_H
#define PUNICA_FRONTEND_LEDGER_H

#include "base/digest.h"
#include "store/store.h"

typedef struct ledger ledger;

typedef struct {
    const char *tenant, *adapter;
    const digest *version;
    int64_t hour;
} ledger_key; /* version NULL: the base */

/* Remembers the row of a key, for whoever adds to it again and again. Zero-initialise. */
typedef struct {
    uint64_t generation;
    size_t row;
} ledger_place;

ledger *ledger_new(size_t max_rows);
void ledger_free(ledger *l);

/* Adds usage to the row of k. `at` is used with one k only, of which the hour may change. */
void ledger_add(ledger *l, ledger_place *at, const ledger_key *k, int64_t requests, int64_t prompt, int64_t cached,
                int64_t output);

size_t ledger_n_rows(const ledger *l);

/* Returns all rows, sorted as a store wants them, and empties the ledger. The caller frees them: ledger_rows_free(). */
store_usage *ledger_take(ledger *l, size_t *n);
void ledger_rows_free(store_usage *rows, size_t n);

#endif
