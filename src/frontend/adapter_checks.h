/* adapter_checks.h - which adapters cannot be served, and why
 *
 * A folder may hold what is no adapter of this base: a kind that is not served, other shapes, no weights. Its files'
 * headers tell; they are read once, and what was found is remembered as long as the files are the same by inode, size
 * and times. What is wrong is logged when it is found. Any thread may ask. */
#ifndef PUNICA_FRONTEND_ADAPTER_CHECKS_H
#define PUNICA_FRONTEND_ADAPTER_CHECKS_H

#include "frontend/catalog.h"

/* -1 with e set when the folder holds nothing that can be served. Any thread. */
typedef struct {
    int (*check)(void *ctx, const char *dir, err *e);
    void *ctx;
} adapter_checker;

typedef struct adapter_checks adapter_checks;

/* models: borrowed until adapter_checks_free(). */
adapter_checks *adapter_checks_new(const catalog *models, adapter_checker by);
void adapter_checks_free(adapter_checks *c);

typedef enum { CHECK_UNKNOWN, CHECK_GOOD, CHECK_BAD } check_state;

/* Without reading anything but times. c NULL: all are good. CHECK_BAD: e says why, and names no folder. */
check_state adapter_checks_know(adapter_checks *c, const char *adapter, err *e);

/* Read the headers unless they are known: never CHECK_UNKNOWN. */
check_state adapter_checks_look(adapter_checks *c, const char *adapter, err *e);

/* Put the names that can be served before those that cannot, each in the order they had. Returns how many can. */
int adapter_checks_sort(adapter_checks *c, char **names, int n);

/* Of a list of names, leave those that can be served; the others are freed. Returns how many there are. */
int adapter_checks_filter(adapter_checks *c, char **names, int n);

#endif
