/* sandbox.h - giving up privileges that a process does not need, so that an attacker who takes it over gains little
 *
 * Uses what Linux offers unprivileged processes: no_new_privs, dropped capabilities, seccomp filters, Landlock. What
 * the kernel lacks (or a container forbids) is left out and logged. What is given up is gone for good, also for
 * programs started later. */
#ifndef PUNICA_BASE_SANDBOX_H
#define PUNICA_BASE_SANDBOX_H

#include <stdbool.h>

/* Restricts a frontend, scheduler, runner or all of them; call before it has threads. Leaves no new privileges, of
 * root's capabilities only those to read files and to listen on low ports, and none of the system calls that trace
 * other processes, mount, load modules and the like. Unless starts_programs, it cannot start programs either. */
void sandbox_role(bool starts_programs);

/* Restricts a worker; call before it has threads. Files cannot be written, made, renamed or removed, except in /dev,
 * /proc and, if not NULL, in the folder `cache`. */
void sandbox_worker_files(const char *cache);

/* Restricts a worker that is set up, in all its threads: no network (unless uses_network: NCCL connects the GPUs of one
 * worker as needed), no programs, no new processes, no signals to others, and none of the system calls that
 * sandbox_role() refuses. */
void sandbox_worker_calls(bool uses_network);

#endif
