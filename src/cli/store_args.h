/* store_args.h - where the store is: what all commands that use it say of it */
#ifndef PUNICA_CLI_STORE_ARGS_H
#define PUNICA_CLI_STORE_ARGS_H

#define STORE_ENVIRONMENT "PUNICA_STORE"
#define STORE_HELP "tenants, keys and usage: FILE (SQLite) or postgres://... (environment " STORE_ENVIRONMENT ")"

#endif
