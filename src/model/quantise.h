/* quantise.h - weights to FP8, while a model is loaded */
#ifndef PUNICA_MODEL_QUANTISE_H
#define PUNICA_MODEL_QUANTISE_H

#include "backend/backend.h"
#include "base/pool.h"

/* Quantises the parts of w that are not F8 yet, each row by a scale of its own: the largest number of the row becomes
 * 448. The parts then point into the one block of memory that is returned, to be freed once they are not used any more;
 * NULL when all were F8. */
void *quantise_linear(linear *w, pool *cores);

#endif
