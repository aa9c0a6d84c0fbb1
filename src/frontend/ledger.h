/* ledger.h - tokens by tenant, version of adapter and hour, until they are in the store
 *
 * Of a bounded size: once there are too many different rows, what comes is added up by tenant and hour alone, so that
 * no token is lost while a store is down for days. One thread. */
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

/* Remembers where the row of a key is, for who adds to the same again and again. Zero-initialise. */
typedef struct {
    uint64_t generation;
    size_t row;
} ledger_place;

ledger *ledger_new(size_t max_rows);
void ledger_free(ledger *l);

/* k is that of the calls before with the same place, but for its hour. */
void ledger_add(ledger *l, ledger_place *at, const ledger_key *k, int64_t requests, int64_t prompt, int64_t cached,
                int64_t output);

size_t ledger_n_rows(const ledger *l);

/* All rows, sorted as a store wants them; the ledger is empty afterwards. Owned by the caller: ledger_rows_free(). */
store_usage *ledger_take(ledger *l, size_t *n);
void ledger_rows_free(store_usage *rows, size_t n);

#endif
