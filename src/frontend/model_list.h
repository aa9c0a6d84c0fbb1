/* model_list.h - the list of all models that can be served, as JSON, made on a thread
 *
 * Making it is a search of the directories of adapters, which is slow when there are thousands. Whoever asks during a
 * search waits for the next one: the answer is never older than the question, and one search at a time serves all. */
#ifndef PUNICA_FRONTEND_MODEL_LIST_H
#define PUNICA_FRONTEND_MODEL_LIST_H

#include <stdatomic.h>

#include "base/buf.h"
#include "frontend/adapter_checks.h"
#include "frontend/background.h"
#include "frontend/model_view.h"

typedef struct model_list model_list;
typedef struct model_asker model_asker;

/* All borrowed. created: seconds since the epoch. */
model_list *model_list_new(background *threads, const catalog *models, adapter_checks *checks, int64_t created,
                           const atomic_int *context);
void model_list_free(model_list *l); /* nobody may be asking; the threads must be freed before */

/* Makes the list for nobody, so that adapters that cannot be served are logged. */
void model_list_look(model_list *l);

/* Asks for the list of the models in seen, which is kept meanwhile; NULL: of all. done is called once, later from the
 * loop; then the asker is freed. */
model_asker *model_list_ask(model_list *l, model_view *seen, void (*done)(void *ctx, const buf *json), void *ctx);
void model_list_forget(model_list *l, model_asker *a); /* done will not be called */

#endif
