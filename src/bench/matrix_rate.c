/* matrix_rate.c - see matrix_rate.h */
#include "bench/matrix_rate.h"

#include "base/clock.h"
#include "bench/median.h"
#include "model/random.h"

enum { LEAST = 256, MOST = 8192, N_RUNS = 5 };

typedef struct { tensor x, w, y; } square;

static int make_tensor(backend *be, tensor *t, int n, err *e)
{
    *t = (tensor){.type = be->act, .rows = n, .cols = n};
    if (!(t->data = be->ops->alloc(be, tensor_bytes(t), e)))
        return -1;
    random_upload(be, t->data, tensor_bytes(t), be->act, -6);
    return 0;
}

static void drop(backend *be, square *s)
{
    tensor *all[] = {&s->x, &s->w, &s->y};
    for (int i = 0; i < 3; i++)
        if (all[i]->data)
            be->ops->release(be, all[i]->data);
}

/* Seconds of one product. */
static double time_product(backend *be, square *s, err *e)
{
    linear w = {.n = 1, .part = {{.w = s->w}}};
    double start = clock_now();
    be->ops->linear(be, &s->y, &s->x, &w);
    return be->ops->sync(be, e) ? -1 : clock_now() - start;
}

/* Seconds of a product of [n, n] matrices, the median after a first one. */
static double time_size(backend *be, int n, err *e)
{
    square s = {0};
    double seconds[N_RUNS] = {0};
    int status = make_tensor(be, &s.x, n, e) || make_tensor(be, &s.w, n, e) || make_tensor(be, &s.y, n, e) ||
                         time_product(be, &s, e) < 0
                     ? -1
                     : 0;
    for (int i = 0; i < N_RUNS && status == 0; i++)
        status = (seconds[i] = time_product(be, &s, e)) < 0 ? -1 : 0;
    drop(be, &s);
    return status ? -1 : median(seconds, N_RUNS);
}

double matrix_rate(backend *be, err *e)
{
    double rate = 0, seconds = 0;
    for (int n = LEAST; n <= MOST && seconds >= 0 && seconds < 2e-3; n *= 2) {
        seconds = time_size(be, n, e);
        double now = 2.0 * n * n * n / seconds;
        rate = now > rate ? now : rate;
    }
    return seconds < 0 ? -1 : rate;
}
