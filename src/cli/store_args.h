/* store_args.h - where the store is: what all commands that use it say of it; and who uses them */
#ifndef PUNICA_CLI_STORE_ARGS_H
#define PUNICA_CLI_STORE_ARGS_H

#define STORE_ENVIRONMENT "PUNICA_STORE"
#define STORE_HELP "tenants, keys and usage: FILE (SQLite) or postgres://... (environment " STORE_ENVIRONMENT ")"

enum { STORE_USER = 80 };

/* Who is at the keyboard, for records and the audit log: the user of this process, whatever its environment says.
 * Returns who. */
const char *store_args_name_user(char who[STORE_USER]);

#endif
