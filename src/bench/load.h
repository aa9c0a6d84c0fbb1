/* load.h - `punica bench load`: how much loading adapters slows down steps that decode meanwhile, and how long a load
 * takes beside the copy alone */
#ifndef PUNICA_BENCH_LOAD_H
#define PUNICA_BENCH_LOAD_H

#include "base/err.h"
#include "model/model.h"

typedef struct {
    const char *device, *shape;
    int tp; /* ranks that the model is split over */
    dtype type;
    weights_form form;
    int rank, batch, context;
} load_options;

load_options load_options_default(void);

int load_run(const load_options *o, err *e);

#endif
