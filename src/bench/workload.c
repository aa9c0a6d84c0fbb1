/* workload.c - see workload.h */
#include "bench/workload.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

static const char *const names[N_WORKLOADS] = {"none", "identical", "uniform", "skewed", "distinct"};

const char *workload_name(workload w)
{
    return names[w];
}

int workload_find(const char *name, workload *w, err *e)
{
    for (int i = 0; i < N_WORKLOADS; i++)
        if (strcmp(name, names[i]) == 0) {
            *w = (workload)i;
            return 0;
        }
    return err_set(e, "unknown workload \"%s\"; known: none, identical, uniform, skewed, distinct, all", name);
}

/* Deals out n in shares of 1, 1/1.5, 1/1.5^2, ..., rounded to sum to n, at least one for every adapter used. Returns
 * how many adapters there are. */
static int assign_skewed(int n, bench_request *out)
{
    int adapter = 0, given = 0;
    for (double share = n / 3.0; given < n; share /= 1.5, adapter++) {
        int k = (int)(share + 0.5) < 1 ? 1 : (int)(share + 0.5);
        for (int i = 0; i < k && given < n; i++)
            out[given++].adapter = adapter;
    }
    return adapter;
}

static int assign_adapters(workload w, int n, bench_request *out)
{
    int n_adapters = w == WORKLOAD_UNIFORM ? (int)ceil(sqrt(n)) : w == WORKLOAD_DISTINCT ? n : 1;
    if (w == WORKLOAD_SKEWED)
        return assign_skewed(n, out);
    for (int i = 0; i < n; i++)
        out[i].adapter = w == WORKLOAD_NONE ? -1 : i % n_adapters;
    return w == WORKLOAD_NONE ? 0 : n_adapters;
}

static double normal(uint64_t seed, uint64_t counter)
{
    double u = 1 - rng_uniform(seed, 2 * counter), v = rng_uniform(seed, 2 * counter + 1);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static void set_lengths(bench_request *r, int prompt_len, int gen_len, int max_len, uint64_t seed, uint64_t i)
{
    double drawn = -1 + 18 * exp(0.8 * normal(seed ^ 0x70726f6d, i));
    int prompt = drawn < 1 ? 1 : drawn > max_len / 2 ? max_len / 2 : (int)drawn;
    r->prompt_len = prompt_len ? prompt_len : prompt;
    int room = max_len - r->prompt_len;
    r->gen_len = gen_len ? gen_len : 1 + (int)(rng_uniform(seed ^ 0x67656e, i) * (room > 1 ? room - 1 : 1));
}

int workload_make(workload w, int n, int prompt_len, int gen_len, int max_len, uint64_t seed, bench_request *out)
{
    int n_adapters = assign_adapters(w, n, out);
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(rng_u64(seed, (uint64_t)i) % (uint64_t)(i + 1)), swap = out[i].adapter;
        out[i].adapter = out[k].adapter;
        out[k].adapter = swap;
    }
    for (int i = 0; i < n; i++)
        set_lengths(&out[i], prompt_len, gen_len, max_len, seed, (uint64_t)i);
    return n_adapters;
}
