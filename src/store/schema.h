/* schema.h - the tables of a store, and their migrations */
#ifndef PUNICA_STORE_SCHEMA_H
#define PUNICA_STORE_SCHEMA_H

#include "store/sql.h"

/* Makes the tables, or brings them up to date, in one transaction. -1 with e set, also when the store is of a later
 * release. */
int schema_migrate(sql *db, err *e);

#endif
