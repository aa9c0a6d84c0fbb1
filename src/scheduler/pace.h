/* pace.h - which GPUs take much longer than they should
 *
 * A worker says of each step how many rows it had, how much context they read, and how long it took. A step is slow if
 * a larger one, with at least as many rows and as much context, has been done much faster on a device of the same
 * kind. So a long prompt is no fault, and nothing has to be known about models and devices beforehand. A GPU is slow
 * when two stretches of steps in a row are, or when it is silent in a step for much longer than any has ever taken; it
 * is well again after four stretches in a row that are not. */
#ifndef PUNICA_SCHEDULER_PACE_H
#define PUNICA_SCHEDULER_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pace pace;

typedef enum { PACE_SAME, PACE_SLOW, PACE_WELL } pace_news;

pace *pace_new(void);
void pace_free(pace *p);

/* Adds a GPU under the scheduler's number, or removes it. kind: the device in words, copied. A new GPU is taken to be
 * well, or, on probation, to be slow until a stretch of steps has shown that it is not. */
void pace_gpu_up(pace *p, double now, int gpu, const char *kind, bool on_probation);
void pace_gpu_gone(pace *p, int gpu);

/* Judges a step that a GPU has reported: has it become slow, or well again? rows 0: there was no
 * step. seconds below 0: how long the device took is not known. goes_on: it has more to do. */
pace_news pace_step(pace *p, double now, int gpu, int64_t rows, int64_t context, double seconds, bool goes_on);

/* Judges a GPU's silence: has it been in a step for too long? To be called a few times a second: if it was not called
 * for longer than that, this process did not run, and the silence says nothing. */
pace_news pace_look(pace *p, double now, int gpu);

bool pace_is_slow(const pace *p, int gpu);

/* Seconds of a step, as measured and as usual, in the stretch or the silence that was judged last. */
typedef struct { double took, usual; } pace_times;
pace_times pace_last(const pace *p, int gpu);

#endif
