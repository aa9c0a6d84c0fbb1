/* store_args.h - the option that names the store, for all commands that have it, and the name of their user */
#ifndef PUNICA_CLI_STORE_ARGS_H
#define PUNICA_CLI_STORE_ARGS_H

#define STORE_ENVIRONMENT "PUNICA_STORE"
#define STORE_HELP "tenants, keys and usage: FILE (SQLite) or postgres://... (environment " STORE_ENVIRONMENT ")"

enum { STORE_USER = 80 };

/* Writes the user of this process, whatever its environment says, to `who`, for records and the audit log. Returns
 * `who`. */
const char *store_args_name_user(char who[STORE_USER]);

#endif
