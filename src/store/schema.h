/* schema.h - the tables of a store, and their migrations */
#ifndef PUNICA_STORE_SCHEMA_H
#define PUNICA_STORE_SCHEMA_H

#include "store/sql.h"

/* Makes the tables if there are none and make says so, or brings them up to date, in one transaction. Writes nothing if
 * they are. -1 with e set, also when there are none or the store is of a later release. */
int schema_migrate(sql *db, bool make, err *e);

#endif
