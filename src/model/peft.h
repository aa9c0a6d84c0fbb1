/* peft.h - adapter_config.json: which modules a LoRA adapter changes, at what rank and scale
 *
 * Answers as PEFT would, by the name a module has in Transformers ("model.layers.3.mlp.up_proj"). A configuration whose
 * adapter could not be served correctly is refused when it is read: every key is either understood, known to have no
 * effect on inference, or unset. */
#ifndef PUNICA_MODEL_PEFT_H
#define PUNICA_MODEL_PEFT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct peft_config peft_config;

/* rank and scale mean something only when the module is adapted. */
typedef struct {
    bool adapted;
    int rank;
    double scale;
} peft_module;

/* Parses the text of the file. NULL with e set; free with peft_config_free(). */
peft_config *peft_config_parse(const char *text, size_t n, err *e);
void peft_config_free(peft_config *c);

/* Finds out what the configuration says about a module. -1 with e set when one of its patterns takes too long to match
 * (all lookups together get a few seconds from the time of parsing), or when the scale is not a finite float. */
int peft_config_lookup(const peft_config *c, const char *module, peft_module *out, err *e);

bool peft_config_rslora(const peft_config *c);
const char *peft_config_base_name(const peft_config *c); /* or "". Borrowed: while c lives */

#endif
