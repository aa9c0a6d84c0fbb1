/* openapi.h - the description of the API that GET /openapi.json gives
 *
 * routes.c says which paths there are; here is what can be said of them, by path. */
#ifndef PUNICA_FRONTEND_OPENAPI_H
#define PUNICA_FRONTEND_OPENAPI_H

#include <stdbool.h>

#include "base/json.h"

/* Return a description without paths, owned by the caller. keyed: clients must show a key. */
json_t *openapi_new(const char *version, bool keyed);

/* Add a path. One that ends with / has a parameter behind that. */
void openapi_add(json_t *api, const char *path, const char *method);

#endif
