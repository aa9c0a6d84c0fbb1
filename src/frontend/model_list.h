/* model_list.h - the list of all models that can be served as JSON, made on a thread
 *
 * The directory of adapters is looked through for it, which takes a while when there are thousands. Whoever asks while
 * it is looked through waits for the next time: the answer is never older than the question, and one look at a time
 * serves all. */
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
void model_list_free(model_list *l); /* nobody may be asking, and the threads are freed before */

/* Look through it for nobody: what cannot be served is then in the log. */
void model_list_look(model_list *l);

/* Of those in seen, which is kept meanwhile. tell is called once, from the loop. */
model_asker *model_list_ask(model_list *l, model_view *seen, void (*tell)(void *ctx, const buf *json), void *ctx);
void model_list_forget(model_list *l, model_asker *a); /* tell will not be called */

#endif
