/* template.h - the special tokens put around a text: tokenizer.json's "post_processor"
 *
 * Only the template for a single text is used, not the one for pairs. Plain value. */
#ifndef PUNICA_TEXT_TEMPLATE_H
#define PUNICA_TEXT_TEMPLATE_H

#include "base/err.h"
#include "base/json.h"
#include "text/ids.h"

#define TEMPLATE_TEXT (-1) /* stands for the ids of the text */

typedef struct { ids items; } template; /* token ids and TEMPLATE_TEXT; owned */

/* Read "post_processor" (spec may be NULL). 0, or -1 with e set: t may then be deinitialised, but need not be. */
int template_init(template *t, const json_t *spec, err *e);
void template_deinit(template *t);

/* Make the template begin (end) with this id, or not begin (end) with it, as Llama's tokenizer
 * classes do when tokenizer_config.json has add_bos_token (add_eos_token). */
void template_set_first(template *t, int id, bool present);
void template_set_last(template *t, int id, bool present);

#endif
