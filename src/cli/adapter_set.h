/* adapter_set.h - the adapters named on a command line: NAME=DIR
 *
 * All are opened and checked at once, so that a bad one is reported before any work; their weights
 * reach the backend when the engine asks for them. */
#ifndef PUNICA_CLI_ADAPTER_SET_H
#define PUNICA_CLI_ADAPTER_SET_H

#include "cli/options.h"
#include "engine/adapter_slots.h"
#include "model/adapter.h"
#include "model/config.h"

typedef struct {
    int n;
    char **name;       /* [n] */
    const char **dir;  /* [n] its folder, borrowed from the arguments */
    adapter **adapter; /* [n] */
    backend *be;       /* borrowed: must outlive the set */
} adapter_set;

/* Opens all adapters of args. Returns -1 with nothing left open when an argument or an adapter is bad. */
int adapter_set_open(adapter_set *s, const option_list *args, const model_config *base, backend *be, err *e);
void adapter_set_close(adapter_set *s);

bool adapter_set_has(const adapter_set *s, const char *name);

/* Returns the set as an engine's source of adapters; the set must outlive the engine. */
adapter_source adapter_set_source(adapter_set *s);

#endif
