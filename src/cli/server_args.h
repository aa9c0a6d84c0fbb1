/* server_args.h - the options of serve, frontend, scheduler and runner, from one table
 *
 * serve is the other three in one process, so each of its options is one of theirs. server_args_init() sets the
 * defaults from the roles' own, and the help prints them from there. */
#ifndef PUNICA_CLI_SERVER_ARGS_H
#define PUNICA_CLI_SERVER_ARGS_H

#include "cli/cluster_args.h"
#include "cli/listen_args.h"
#include "cli/options.h"
#include "cli/source_args.h"
#include "frontend/frontend.h"
#include "runner/runner.h"
#include "scheduler/sched_server.h"

typedef enum { SERVER_ALL = 1, SERVER_FRONTEND = 2, SERVER_SCHEDULER = 4, SERVER_RUNNER = 8 } server_kind;

#define LINK_USAGE "(--secret-file FILE | --tls-ca FILE --tls-cert FILE --tls-key FILE)"
#define SIGHUP_HELP "SIGHUP reads secret and certificates again and opens the log file anew."

typedef struct {
    frontend_options front;
    sched_server_options sched;
    runner_options runner;
    worker_args workers; /* its model and adapters are those of a frontend, too */
    listen_args at;
    source_args sources;
    cluster_role role;
    const char *scheduler;  /* where it is */
    const char *model_name; /* what clients call the base model; NULL: its directory's name */
    const char *log_level;
    const char *http, *scale_hook; /* of a scheduler */
    double hook_every;
} server_args;

/* Sets the defaults. Call server_args_deinit() in any case. */
void server_args_init(server_args *a);
void server_args_deinit(server_args *a);

/* Reads the options of one kind of server; returns as options_parse(). `line` has no options of its own. */
int server_args_parse(server_args *a, server_kind kind, command_line line, int argc, char **argv, err *e);

/* Checks what was read, puts a frontend's share of it into a->front, and sets up the log. 0, or -1 with e set. */
int server_args_check(server_args *a, server_kind kind, err *e);

/* Runs a command that is one kind of server: parse reads its options and returns as options_parse(), run serves: 0, or
 * -1 with e set. Returns the exit code. */
int server_args_command(int argc, char **argv, int (*parse)(server_args *a, int argc, char **argv, err *e),
                        int (*run)(server_args *a, err *e));

#endif
