/* commands.h - the subcommands. Each takes its own arguments (argv[0] is the command's name) and
 * returns the exit code: 0, 1 when the job failed, 2 for wrong usage or bad input files. */
#ifndef PUNICA_CLI_COMMANDS_H
#define PUNICA_CLI_COMMANDS_H

int cmd_serve(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_tenant(int argc, char **argv);
int cmd_adapter(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_frontend(int argc, char **argv);
int cmd_scheduler(int argc, char **argv);
int cmd_runner(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_fetcher(int argc, char **argv);

#endif
