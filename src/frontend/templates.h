/* templates.h - the chat template of every model that clients may name: an adapter's own, else the base's
 *
 * Adapters come, go and change meanwhile: a template is used as long as the files it was loaded from stay the same. Any
 * thread may ask; a template that is taken stays until it is given back. */
#ifndef PUNICA_FRONTEND_TEMPLATES_H
#define PUNICA_FRONTEND_TEMPLATES_H

#include "frontend/catalog.h"
#include "text/chat.h"

typedef struct templates templates;

/* Loads the base's template: NULL with e set on failure; one that cannot be used is logged. dir: the base model's;
 * file: used instead of what is there and of what adapters bring, or NULL (text/chat.h). models is borrowed: until
 * templates_free(). */
templates *templates_new(const catalog *models, const char *dir, const char *file, err *e);
void templates_free(templates *t); /* all must have been given back */

/* Returns the template of a model whose files are in dir (NULL: where the catalog says); the base's, if the model is
 * not there or has none. To be given back. NULL with e set: the adapter's files are bad. */
const chat_template *templates_take(templates *t, const char *model, const char *dir, err *e);
void templates_give(templates *t, const chat_template *c);

/* Returns whether the model may have a template of its own: then whoever may write the adapter's folder decides how
 * long it takes. */
bool templates_may_be_own(const templates *t, const char *model, const char *dir);

#endif
