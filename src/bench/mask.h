/* mask.h - `punica bench mask`: the cost of following a grammar: of compiling it, and of a batch's masks */
#ifndef PUNICA_BENCH_MASK_H
#define PUNICA_BENCH_MASK_H

typedef struct {
    int vocab; /* tokens of a made-up vocabulary */
    int batch, threads, steps;
} mask_options;

mask_options mask_options_default(void);

void mask_run(const mask_options *o);

#endif
