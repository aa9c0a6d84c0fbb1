/* adapter_names.h - the subcommands of `punica adapter` that work on a host's disk cache and on names, of the cache or
 * of a store
 *
 * Each is a command of its own: argv[0] is its name, the result an exit code. */
#ifndef PUNICA_CLI_ADAPTER_NAMES_H
#define PUNICA_CLI_ADAPTER_NAMES_H

int adapter_fetch(int argc, char **argv);
int adapter_add(int argc, char **argv);
int adapter_list(int argc, char **argv);
int adapter_show(int argc, char **argv);
int adapter_rollback(int argc, char **argv);
int adapter_remove(int argc, char **argv);

#endif
