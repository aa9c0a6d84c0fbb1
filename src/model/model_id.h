/* model_id.h - a base model's identity as one word, which frontends and runners compare */
#ifndef PUNICA_MODEL_MODEL_ID_H
#define PUNICA_MODEL_MODEL_ID_H

#include "base/err.h"

/* Returns "llama-0123456789abcdef": the model_type and a digest of config.json and tokenizer.json of a model directory.
 * The weights are not read: a frontend need not have them. Owned by the caller; NULL with e set. */
char *model_id_of(const char *dir, err *e);

#endif
