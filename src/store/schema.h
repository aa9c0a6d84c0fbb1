/* schema.h - the tables of a store, and how an older one is brought up to date */
#ifndef PUNICA_STORE_SCHEMA_H
#define PUNICA_STORE_SCHEMA_H

#include "store/sql.h"

/* Makes or changes tables until they are those of this release; all at once or not at all. -1 too where the store is of
 * a later release. */
int schema_migrate(sql *db, err *e);

#endif
