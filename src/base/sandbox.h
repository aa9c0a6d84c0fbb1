/* sandbox.h - giving up what a process does not need, so that whoever takes it over has gained little
 *
 * By what Linux has for everybody: no new privileges, capabilities dropped, seccomp filters, Landlock. What the kernel
 * does not have (or a container does not let us use) is left out and logged. What is given up does not come back, also
 * not for programs that are started later. */
#ifndef PUNICA_BASE_SANDBOX_H
#define PUNICA_BASE_SANDBOX_H

#include <stdbool.h>

/* Of a frontend, scheduler, runner or all of them, before it has threads: no new privileges, of root's rights only
 * those to read files and to listen on low ports, and none of the system calls by which one traces other processes,
 * mounts, loads modules and the like. Unless it starts programs, it cannot do so any more. */
void sandbox_role(bool starts_programs);

/* Of a worker, before it has threads: files cannot be written, made, renamed or removed, but in /dev, /proc and, if not
 * NULL, in the folder `cache`. */
void sandbox_worker_files(const char *cache);

/* Of a worker that is set up, in all its threads: no network (unless it uses one: NCCL connects the GPUs of one worker
 * as it needs them), no programs, no processes, no signals to others; and what sandbox_role() gives up. */
void sandbox_worker_calls(bool uses_network);

#endif
