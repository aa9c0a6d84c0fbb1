/* sampling_defaults.h - how tokens are drawn where a request does not say: OpenAI's defaults, or those of the model's
 * makers
 *
 * generation_config.json says what a model works best with. As with vLLM its temperature, top_p, top_k, min_p and
 * repetition_penalty are the defaults of every request, and max_new_tokens is a limit on all outputs. A plain value. */
#ifndef PUNICA_FRONTEND_SAMPLING_DEFAULTS_H
#define PUNICA_FRONTEND_SAMPLING_DEFAULTS_H

#include "base/buf.h"
#include "base/err.h"

typedef struct {
    float temperature, top_p, min_p, repetition_penalty;
    int top_k;      /* 0: off */
    int max_tokens; /* of every output; INT32_MAX: no limit */
} sampling_defaults;

sampling_defaults sampling_defaults_openai(void);

/* Reads the defaults. from: "auto", the model's own file if it has one; "none" or "vllm", OpenAI's; else a directory
 * with the file. -1 with e set when the file cannot be read, or has a value that no request may have. */
int sampling_defaults_read(sampling_defaults *d, const char *from, const char *model_dir, err *e);

/* Appends what differs from OpenAI's defaults, "temperature 0.6, top_k 20", for a log. */
void sampling_defaults_write(const sampling_defaults *d, buf *out);

#endif
