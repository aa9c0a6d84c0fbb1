/* devices.h - what this build can run a model on */
#ifndef PUNICA_BACKEND_DEVICES_H
#define PUNICA_BACKEND_DEVICES_H

#include "backend/backend.h"
#include "base/buf.h"

/* Opens a backend by name: "cpu", "cuda" (the first GPU), "cuda:N" or "cuda:N-M", for weights of this type (a GPU
 * computes in F16 for F16 weights, in BF16 for others). n_ranks: of tensor parallelism, 1 for none; they have a GPU
 * each, or share the one device that is named. n_threads: of the CPU, 0 for all cores. NULL with e set. */
backend *backend_open(const char *device, int n_ranks, dtype weights, int n_threads, err *e);

/* Frees a backend with all of its group. be may be NULL. */
void backend_close(backend *be);

/* Returns the first GPU of "cuda", "cuda:N" or "cuda:N-M" and sets *n to how many there are; for "cpu" -1 and 1. -2
 * with e set for any other name. */
int backend_device_range(const char *device, int *n, err *e);

/* Writes a device's identity, unique in the world: "GPU-5ee0..." by the driver's name; "" for a device that has
 * none. */
void backend_device_uuid(const char *device, char *out, size_t n);

/* Appends a line for each device. */
void backend_list_devices(buf *out);

#endif
