/* templates.h - the chat template of every model that clients may name: an adapter's own, else the base's
 *
 * Adapters come, go and change while we serve: what was loaded is used as long as the files it came from are the same.
 * Any thread may ask; a template that is taken stays until it is given back. */
#ifndef PUNICA_FRONTEND_TEMPLATES_H
#define PUNICA_FRONTEND_TEMPLATES_H

#include "frontend/catalog.h"
#include "text/chat.h"

typedef struct templates templates;

/* dir: the base model's; file: used instead of what is there and of what adapters bring, or NULL (text/chat.h). models
 * is borrowed: until templates_free(). A base without a template that can be used is told in the log. */
templates *templates_new(const catalog *models, const char *dir, const char *file, err *e);
void templates_free(templates *t); /* all must have been given back */

/* For the model of this name, whose files are in dir (NULL: where the catalog says); one that is not there gets the
 * base's. NULL with e set: the adapter's files are bad. */
const chat_template *templates_take(templates *t, const char *model, const char *dir, err *e);
void templates_give(templates *t, const chat_template *c);

/* Whether the model has a template of its own, perhaps: whoever may write an adapter's folder decides what that takes.
 */
bool templates_may_be_own(const templates *t, const char *model, const char *dir);

#endif
