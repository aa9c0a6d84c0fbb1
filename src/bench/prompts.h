/* prompts.h - `punica bench prompts`: prompts that come in while requests decode
 *
 * Some requests (streams) decode all the time. Then some prompts come in at once, each for one token. Measured: how
 * fast they are computed, in tokens and as a share of the device's rate of large products; when the first token of each
 * comes; and the time between the streams' tokens meanwhile, beside that without prompts. */
#ifndef PUNICA_BENCH_PROMPTS_H
#define PUNICA_BENCH_PROMPTS_H

#include "model/model.h"

#define MAX_PROMPT_SIZES 8

typedef struct {
    const char *shape, *device, *csv; /* csv: file to write, NULL: none */
    dtype type;
    weights_form form;
    kv_form kv;
    int tp, threads, rank, itl_target;          /* itl_target: milliseconds */
    int streams, context;                       /* requests that decode, and the tokens each begins with */
    int prompts;                                /* that come at once */
    int n_lens, len[MAX_PROMPT_SIZES];          /* tokens of each, measured one after the other */
    int n_adapters, adapters[MAX_PROMPT_SIZES]; /* dealt out to streams and prompts, likewise; 0: the base model */
} prompts_options;

prompts_options prompts_options_default(void);

int prompts_run(const prompts_options *o, err *e);

#endif
