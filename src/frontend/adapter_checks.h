/* adapter_checks.h - which adapters cannot be served, and why
 *
 * A folder may hold something that is no adapter for this base: an unknown kind, other shapes, no weights. The headers
 * of its files tell. They are read once: what was found is remembered as long as inode, size and times of the files
 * stay the same. What is wrong is logged when it is found. Any thread may ask. */
#ifndef PUNICA_FRONTEND_ADAPTER_CHECKS_H
#define PUNICA_FRONTEND_ADAPTER_CHECKS_H

#include "frontend/catalog.h"

/* check returns 0, or -1 with e set when the folder holds nothing that can be served; any thread. NULL: all are
 * good. */
typedef struct {
    int (*check)(void *ctx, const char *dir, err *e);
    void *ctx;
} adapter_checker;

typedef struct adapter_checks adapter_checks;

/* models: borrowed until adapter_checks_free(). */
adapter_checks *adapter_checks_new(const catalog *models, adapter_checker by);
void adapter_checks_free(adapter_checks *c);

typedef enum { CHECK_UNKNOWN, CHECK_GOOD, CHECK_BAD } check_state;

/* Return what is known of the adapter, reading nothing but its files' times. c NULL: CHECK_GOOD. CHECK_BAD: e says why,
 * and names no folder. */
check_state adapter_checks_know(adapter_checks *c, const char *adapter, err *e);

/* Do the same, but read the headers of an unknown adapter: never CHECK_UNKNOWN. */
check_state adapter_checks_look(adapter_checks *c, const char *adapter, err *e);

/* Put the names that can be served before those that cannot, each in the order they had. Returns how many can. */
int adapter_checks_sort(adapter_checks *c, char **names, int n);

/* Remove the names that cannot be served, and free them. Returns how many are left. */
int adapter_checks_filter(adapter_checks *c, char **names, int n);

#endif
