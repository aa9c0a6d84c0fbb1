/* cpu_sample.c - from logits to tokens
 *
 * Order: logprobs of the logits that the mask allows; bias, penalties and bans; greedy, or temperature, top-k, top-p,
 * min-p and a draw. The three filters each keep a prefix of one order (likelier first, then lower id), so together they
 * keep the shortest of the three. A prefix is found without sorting: weights lie in [0, 1], where the bits of a float
 * sort like the number, so a radix select in three passes finds the weight at which the prefix ends. The draw walks the
 * kept tokens by id. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"

enum { CHUNK = 1024 }; /* exponentials summed in float before they go to a double */

/* A prefix of the tokens: all of weight above `cut`, and the first `n_ties` of weight `cut`. */
typedef struct {
    float cut;
    int n_ties;
} prefix;

typedef struct {
    const cpu_kernels *k;
    const float *logits; /* [vocab] -INFINITY: masked */
    int vocab;
    const sample_spec *spec;
    float *z; /* [2 * vocab] scratch: changed logits, then weights; behind them the masked logits */
} sample_row;

/* y = exp((x - max) * by); its sum. */
static double exp_sum(const cpu_kernels *k, float *y, const float *x, float max, float by, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i += CHUNK)
        sum += k->exp_sum(y + i, x + i, max, by, n - i < CHUNK ? n - i : CHUNK);
    return sum;
}

/* Puts the n likeliest tokens into top, likeliest first, lower id first among equals; -1 where there are fewer. */
static void find_top(const float *logits, int vocab, token_logprob *top, int n)
{
    int have = 0;
    for (int i = 0; i < vocab; i++) {
        if (logits[i] == -INFINITY || (have == n && !(logits[i] > top[n - 1].logprob)))
            continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (token_logprob){i, logits[i]};
    }
    for (int i = have; i < n; i++)
        top[i] = (token_logprob){-1, -INFINITY};
}

static void fill_logprobs(const sample_row *r, float max, sample_result *out)
{
    int n = r->spec->n_logprobs < MAX_LOGPROBS ? r->spec->n_logprobs : MAX_LOGPROBS;
    double log_sum = max + log(exp_sum(r->k, r->z, r->logits, max, 1.0f, r->vocab));
    out->logprob = (float)(r->logits[out->token] - log_sum);
    if (n == 0)
        return;
    find_top(r->logits, r->vocab, out->top, n);
    for (int i = 0; i < n && out->top[i].token >= 0; i++)
        out->top[i].logprob = (float)(out->top[i].logprob - log_sum);
}

static int first_equal(const float *x, float value, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i] == value)
            return i;
    return -1;
}

static int has_penalty(const sample_spec *s)
{
    return s->n_seen > 0 && (s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0);
}

static void penalise(const sample_row *r)
{
    const sample_spec *s = r->spec;
    for (int i = 0; i < s->n_bias; i++)
        if (s->biased[i] >= 0 && s->biased[i] < r->vocab)
            r->z[s->biased[i]] += s->bias[i];
    for (int i = 0; has_penalty(s) && i < s->n_seen; i++) {
        if (s->seen[i] < 0 || s->seen[i] >= r->vocab)
            continue;
        float *z = &r->z[s->seen[i]];
        int count = s->seen_output[i];
        *z = *z < 0 ? *z * s->repetition_penalty : *z / s->repetition_penalty;
        if (count > 0)
            *z -= s->presence_penalty + s->frequency_penalty * (float)count;
    }
    for (int i = 0; i < s->n_banned; i++)
        if (s->banned[i] >= 0 && s->banned[i] < r->vocab)
            r->z[s->banned[i]] = -INFINITY;
}

/* The shortest prefix of at least max_count tokens or at least max_mass of weight. */
static prefix find_prefix(const float *w, int n, double max_count, double max_mass)
{
    enum { BITS = 10, BINS = 1 << BITS };
    double count[BINS], mass[BINS], count_above = 0, mass_above = 0;
    uint32_t known = 0; /* upper bits of the cut, found so far */
    for (int shift = 2 * BITS; shift >= 0; shift -= BITS) {
        memset(count, 0, sizeof count);
        memset(mass, 0, sizeof mass);
        for (int i = 0; i < n; i++) {
            uint32_t u = bits_of_float(w[i]);
            if (u >> shift >> BITS != known)
                continue;
            count[u >> shift & (BINS - 1)]++;
            mass[u >> shift & (BINS - 1)] += w[i];
        }
        int bin = BINS - 1, lowest = bin;
        for (; bin >= 0; bin--) {
            if (count[bin] == 0)
                continue;
            lowest = bin;
            if (count_above + count[bin] >= max_count || mass_above + mass[bin] >= max_mass)
                break;
            count_above += count[bin];
            mass_above += mass[bin];
        }
        if (bin < 0) /* the limits lie past the end: keep everything */
            return (prefix){0, n};
        known = known << BITS | (uint32_t)lowest;
    }
    prefix p = {float_of_bits(known), 1};
    while (count_above + p.n_ties < max_count && mass_above + (double)p.cut * p.n_ties < max_mass)
        p.n_ties++;
    return p;
}

static prefix shorter(prefix a, prefix b)
{
    if (a.cut != b.cut)
        return a.cut > b.cut ? a : b;
    return a.n_ties < b.n_ties ? a : b;
}

static int in_prefix(float w, const prefix *p, int *ties_left)
{
    return w > p->cut || (w == p->cut && w > 0 && (*ties_left)-- > 0);
}

static double mass_of(const float *w, int n, prefix p)
{
    double mass = 0;
    int ties_left = p.n_ties;
    for (int i = 0; i < n; i++)
        if (in_prefix(w[i], &p, &ties_left))
            mass += w[i];
    return mass;
}

/* The token at which the running sum of kept weights passes u times their total. */
static int draw_from(const float *w, int n, prefix p, double u)
{
    double left = u * mass_of(w, n, p);
    int token = -1, ties_left = p.n_ties;
    for (int i = 0; i < n; i++) {
        if (!in_prefix(w[i], &p, &ties_left))
            continue;
        token = i;
        left -= w[i];
        if (left < 0)
            break;
    }
    return token;
}

static int draw(const sample_row *r, const float *z, float max)
{
    const sample_spec *s = r->spec;
    int n = r->vocab;
    float by = 1 / fmaxf(s->temperature, 1e-30f); /* finite, so that 0 * by is 0 */
    double total = exp_sum(r->k, r->z, z, max, by, n);
    prefix p = {0, n};
    if (s->top_k > 0 && s->top_k < n) {
        p = find_prefix(r->z, n, s->top_k, INFINITY);
        total = mass_of(r->z, n, p);
    }
    if (s->top_p < 1)
        p = shorter(p, find_prefix(r->z, n, INFINITY, s->top_p * total));
    if (s->min_p > 0)
        p = shorter(p, (prefix){s->min_p < 1 ? s->min_p : 1, n});
    return draw_from(r->z, n, p, rng_uniform(s->seed, s->position));
}

/* The chosen token, or -1 when none may be chosen. max: of the logits as they are. */
static int choose(const sample_row *r, float max)
{
    const sample_spec *s = r->spec;
    const float *z = r->logits;
    if (has_penalty(s) || s->n_banned > 0 || s->n_bias > 0) {
        memcpy(r->z, r->logits, (size_t)r->vocab * sizeof(float));
        penalise(r);
        z = r->z;
        max = r->k->max(z, r->vocab, 0);
        if (!isfinite(max))
            return -1;
    }
    return s->temperature > 0 ? draw(r, z, max) : first_equal(z, max, r->vocab);
}

static int rank_of(const sample_row *r, int token)
{
    int rank = 1;
    for (int i = 0; i < r->vocab; i++)
        rank += r->logits[i] > r->logits[token];
    return rank;
}

/* Makes the row's logits -INFINITY where the mask forbids; the result lies in `allowed`. */
static void apply_mask(sample_row *r, float *allowed)
{
    for (int i = 0; i < r->vocab; i++)
        allowed[i] = r->spec->mask[i >> 5] >> (i & 31) & 1 ? r->logits[i] : -INFINITY;
    r->logits = allowed;
}

typedef struct {
    cpu_backend *cpu;
    const tensor *logits;
    const sample_spec *spec;
    sample_result *out;
} sample_call;

static void sample_item(void *arg, int row, int thread)
{
    const sample_call *c = arg;
    sample_row r = {
        .k = c->cpu->k,
        .vocab = c->logits->cols,
        .spec = &c->spec[row],
        .z = c->cpu->per_thread[thread].data,
        .logits = (const float *)c->logits->data + (size_t)row * (size_t)c->logits->cols,
    };
    sample_result *out = &c->out[row];
    *out = (sample_result){.token = -1};
    float max = r.k->max(r.logits, r.vocab, 1);
    if (!isfinite(max))
        return;
    if (r.spec->given) {
        out->token = r.spec->token;
        out->rank = rank_of(&r, out->token);
        fill_logprobs(&r, max, out);
        return;
    }
    if (r.spec->mask) {
        apply_mask(&r, r.z + r.vocab);
        max = r.k->max(r.logits, r.vocab, 0);
        if (!isfinite(max))
            return;
    }
    out->token = choose(&r, max);
    if (out->token >= 0 && r.spec->n_logprobs >= 0)
        fill_logprobs(&r, max, out);
}

void cpu_sample(backend *be, const tensor *logits, const sample_spec *spec, int n)
{
    cpu_backend *cpu = cpu_of(be);
    unsigned at = cpu->n_sampled++ % 3;
    CHECK(n <= logits->rows && cpu->n_sampled - cpu->n_collected <= 2);
    cpu->drawn[at] = xgrow(cpu->drawn[at], &cpu->drawn_cap[at], (size_t)n + 1, sizeof(sample_result)); /* never NULL */
    cpu_reserve_per_thread(cpu, 2 * (size_t)logits->cols);
    sample_call c = {cpu, logits, spec, cpu->drawn[at]};
    pool_run(cpu->pool, n, sample_item, &c);
}

const sample_result *cpu_collect(backend *be, err *e)
{
    (void)e;
    cpu_backend *cpu = cpu_of(be);
    CHECK(cpu->n_collected != cpu->n_sampled);
    return cpu->drawn[cpu->n_collected++ % 3];
}
