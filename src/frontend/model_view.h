/* model_view.h - which models a tenant may name; for it, no others exist
 *
 * Immutable, so that threads may look at it; kept and released on the loop's thread only. */
#ifndef PUNICA_FRONTEND_MODEL_VIEW_H
#define PUNICA_FRONTEND_MODEL_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

typedef struct model_view model_view;

/* Returns a new view, of which the caller is a keeper; the last to release it frees it. owner: the tenant, who sees all
 * of its own, TENANT/NAME. grant: [n] of the tenant. base: what clients call the base model; may: the tenant sees it
 * too. All is copied. */
model_view *model_view_new(const char *owner, const char *base, bool may, const store_grant *grant, size_t n);
/* Returns whether a new view of the same tenant would be the same as v. */
bool model_view_is(const model_view *v, bool may, const store_grant *grant, size_t n);

model_view *model_view_keep(model_view *v); /* v; NULL stays NULL */
void model_view_release(model_view *v);

const char *model_view_owner(const model_view *v); /* borrowed; NULL if v is */

/* Returns whether the name, or the base model, may be named. v NULL: everything may. */
bool model_view_has(const model_view *v, const char *name);
bool model_view_has_base(const model_view *v);

#endif
