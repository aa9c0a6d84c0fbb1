/* cuda_sample.cu - from logits to tokens on the device; the rules are those of cpu/cpu_sample.c
 *
 * A cluster works on one row: 8 blocks on Hopper, elsewhere one. Every warp owns adjacent token ids of the
 * vocabulary, in order. The warps exchange words of 64 bits by all_gather(). A greedy row is read once and takes
 * one all_gather(). A row that is changed or drawn from has its changed logits, then its weights, in shared memory
 * (in device memory where they do not fit). Results are written straight into pinned host memory.
 *
 * Weights, e^((logit - max) / temperature), are computed by the CPU's own exponential, and counts and sums of weights
 * with equal leading bits are exact integers. So sums differ from the CPU's only in the last bits of a double, and
 * draws agree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/kernel.cuh"
extern "C" {
#include "base/mem.h"
#include "base/rng.h"
}

enum {
    SAMPLE_CLUSTER = 8, /* the largest portable cluster size */
    SAMPLE_WARPS = 16,  /* of a block; no measurement is kept of this and RADIX_BITS */
    SAMPLE_THREADS = 32 * SAMPLE_WARPS,
    RADIX_BITS = 8, /* of a weight, found at a time: see find_prefix */
    RADIX_BINS = 1 << RADIX_BITS,
    SAMPLE_SLOTS = 3, /* see struct sampler */
};

typedef unsigned long long word;

/* A sample_spec as the device reads it. seen, banned, biased, mask: offsets into the list of ints behind the specs. */
typedef struct {
    double u;  /* uniform in [0, 1) */
    int draws; /* 0: greedy */
    float by;  /* 1 / temperature */
    int top_k;
    float top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int n_seen, seen; /* tokens, then as many counts */
    int n_banned, banned;
    int n_bias, biased; /* tokens, then as many floats */
    int mask;           /* -1: none */
    int n_logprobs;
    int given; /* the token to score in place of a draw; -1: none */
} row_spec;

typedef struct {
    const float *logits;     /* [rows, vocab] */
    int vocab, ids_per_warp; /* token ids of a warp */
    const row_spec *spec;    /* [rows] */
    const int *list;
    float *z;              /* [rows, blocks * SAMPLE_WARPS * ids_per_warp]; NULL: in shared memory */
    sample_result *result; /* [rows] pinned host memory */
    int *drawn;            /* [rows] */
} sample_job;

/* A prefix of the tokens in order of weight: those of weight above `cut`, and the first n_ties, by id, of weight
 * `cut`. */
typedef struct {
    float cut;
    int n_ties;
} prefix;

template <int BLOCKS> struct gather_words { word gathered[2][BLOCKS * SAMPLE_WARPS]; };

template <int BLOCKS> struct sample_shared {
    unsigned low[2][RADIX_BINS], high[2][RADIX_BINS]; /* a histogram, see find_prefix */
    double total[RADIX_BINS];
    word top[BLOCKS * SAMPLE_WARPS][MAX_LOGPROBS]; /* used in block 0 */
};

/* One thread's view of its row. */
template <int BLOCKS> struct row_view {
    gather_words<BLOCKS> *words;
    sample_shared<BLOCKS> *shared;
    row_spec spec;
    const float *logits;  /* [vocab] */
    float *z;             /* changed logits, then weights, of this block's ids */
    int vocab, base, end; /* this block's ids are [base, end), */
    int from, to;         /* this warp's [from, to) */
    int lane, warp;       /* warp: numbered through the cluster */
    int buffer;           /* the one of two that all_gather() used last */
};

/* Returns a key that sorts by value, then lower id first; 0 is below all keys. */
static __device__ __forceinline__ word key_of(float x, int id)
{
    unsigned u = __float_as_uint(x + 0.0f); /* -0 equals 0 */
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (word)u << 32 | (0xffffffffu - (unsigned)id);
}

static __device__ __forceinline__ float value_of(word key)
{
    unsigned u = (unsigned)(key >> 32);
    return __uint_as_float(u >> 31 ? u & 0x7fffffffu : ~u);
}

static __device__ __forceinline__ int id_of(word key)
{
    return (int)(0xffffffffu - (unsigned)key);
}

static __device__ __forceinline__ word warp_max_word(word x)
{
    for (int i = 16; i > 0; i >>= 1) {
        word other = __shfl_xor_sync(0xffffffffu, x, i);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ double warp_sum_double(double x)
{
    for (int i = 16; i > 0; i >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* All-gather over the warps of the cluster: returns the words of all, in order of ids. They stay valid until the second
 * all_gather() after this one. */
template <int BLOCKS> static __device__ const word *all_gather(row_view<BLOCKS> &r, word mine)
{
    word *gathered = r.words->gathered[r.buffer ^= 1];
    if (r.lane < BLOCKS)
        store_to_peer(&gathered[r.warp], r.lane, mine);
    cluster_arrive();
    cluster_wait();
    return gathered;
}

/* Return the largest of the warps' words, and the sum of their numbers. */
template <int BLOCKS> static __device__ word cluster_max(row_view<BLOCKS> &r, word mine)
{
    const word *gathered = all_gather(r, mine);
    word best = 0;
    for (int i = r.lane; i < BLOCKS * SAMPLE_WARPS; i += 32)
        best = gathered[i] > best ? gathered[i] : best;
    return warp_max_word(best);
}

template <int BLOCKS> static __device__ double cluster_sum(row_view<BLOCKS> &r, double mine)
{
    const word *gathered = all_gather(r, (word)__double_as_longlong(mine));
    double sum = 0;
    for (int i = r.lane; i < BLOCKS * SAMPLE_WARPS; i += 32)
        sum += __longlong_as_double((long long)gathered[i]);
    return warp_sum_double(sum);
}

/* Returns the key of the largest logit of ids [from, to); x: the logits from id `from` on. All ones when `finite` is
 * set and one is not finite. */
static __device__ word max_key(const float *x, int from, int to, int lane, bool finite)
{
    float best = -INFINITY, zeros = 0.0f; /* x * 0 is 0 for finite x and NaN else */
    int id = -1;
#pragma unroll 8
    for (int i = from + lane; i < to; i += 32) {
        float v = x[i - from];
        zeros += v * 0.0f;
        if (v > best) {
            best = v;
            id = i;
        }
    }
    word key = id < 0 ? 0 : key_of(best, id);
    return warp_max_word(finite && isnan(zeros) ? ~0ull : key);
}

/* z = the logits, -inf where the mask forbids the token. A lane writes the ids that it later reads in loops of the same
 * stride. */
template <int BLOCKS> static __device__ void mask_logits(row_view<BLOCKS> &r, const int *list)
{
    const unsigned *mask = r.spec.mask < 0 ? NULL : (const unsigned *)list + r.spec.mask;
    for (int i = r.from + r.lane; i < r.to; i += 32)
        r.z[i - r.base] = !mask || (mask[i >> 5] >> (i & 31) & 1) ? r.logits[i] : -INFINITY;
}

/* z = the masked logits with bias, penalties and bans, in this order. */
template <int BLOCKS> static __device__ void apply_penalties(row_view<BLOCKS> &r, const int *list)
{
    const row_spec &s = r.spec;
    mask_logits(r, list);
    __syncthreads();
    for (int i = threadIdx.x; i < s.n_bias; i += SAMPLE_THREADS) {
        int token = list[s.biased + i];
        if (token >= r.base && token < r.end)
            r.z[token - r.base] = __fadd_rn(r.z[token - r.base], __int_as_float(list[s.biased + s.n_bias + i]));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < s.n_seen; i += SAMPLE_THREADS) {
        int token = list[s.seen + i], count = list[s.seen + s.n_seen + i];
        if (token < r.base || token >= r.end)
            continue;
        float v = r.z[token - r.base];
        v = v < 0 ? __fmul_rn(v, s.repetition_penalty) : __fdiv_rn(v, s.repetition_penalty);
        if (count > 0)
            v = __fsub_rn(v, __fadd_rn(s.presence_penalty, __fmul_rn(s.frequency_penalty, (float)count)));
        r.z[token - r.base] = v;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < s.n_banned; i += SAMPLE_THREADS) {
        int token = list[s.banned + i];
        if (token >= r.base && token < r.end)
            r.z[token - r.base] = -INFINITY;
    }
    __syncthreads();
}

/* Returns e^x for x <= 0, by the very steps of the CPU's v_exp (cpu/simd.h). */
static __device__ __forceinline__ float exp_as_cpu(float x)
{
    const float shift = 0x1.8p23f;
    float c = fmaxf(-87.0f, x), t = __fadd_rn(__fmul_rn(c, 0x1.715476p0f), shift), n = __fsub_rn(t, shift);
    float q = __fmaf_rn(n, 0x1.bd0106p-13f, __fmaf_rn(n, -0x1.63p-1f, c)), p = 0x1.6a23dp-10f;
    p = __fmaf_rn(p, q, 0x1.123a2p-7f);
    p = __fmaf_rn(p, q, 0x1.5558f2p-5f);
    p = __fmaf_rn(p, q, 0x1.555492p-3f);
    p = __fmaf_rn(p, q, 0x1.fffffcp-2f);
    p = __fmaf_rn(p, __fmul_rn(q, q), q);
    float power = __uint_as_float((__float_as_uint(t) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : __fmul_rn(__fadd_rn(p, 1.0f), power);
}

/* Returns the cluster's sum of e^((x - max) * by), x being this warp's logits. Stores the summands in z unless it is
 * NULL. */
template <int BLOCKS>
static __device__ double exp_sum(row_view<BLOCKS> &r, const float *x, float max, float by, float *z)
{
    double sum = 0;
#pragma unroll 4
    for (int i = r.lane; i < r.to - r.from; i += 32) {
        float w = exp_as_cpu(__fmul_rn(__fsub_rn(x[i], max), by));
        if (z)
            z[i] = w;
        sum += w;
    }
    return cluster_sum(r, warp_sum_double(sum));
}

/* Returns the index of the first of n numbers (none below 0) at which their running sum, which begins with *start,
 * exceeds `limit`; where rounding keeps it from that, the last that is not 0. *start becomes the sum before that
 * number. All warps that call it alike get the same result. */
static __device__ int first_past(const double *x, int n, double *start, double limit)
{
    int lane = threadIdx.x % 32, per_lane = (n + 31) / 32, from = lane * per_lane, at = -1;
    double sum = 0, before = 0;
    for (int i = from; i < from + per_lane && i < n; i++)
        sum += x[i];
    for (int i = 1; i < 32; i *= 2) {
        double other = __shfl_up_sync(0xffffffffu, sum, i);
        sum += lane >= i ? other : 0;
    }
    double upto = __shfl_up_sync(0xffffffffu, sum, 1);
    upto = *start + (lane > 0 ? upto : 0);
    bool past = false;
    for (int i = from; i < from + per_lane && i < n && !past; i++)
        if (x[i] > 0) {
            at = i;
            before = upto;
            upto += x[i];
            past = upto > limit;
        }
    unsigned passing = __ballot_sync(0xffffffffu, past), any = __ballot_sync(0xffffffffu, at >= 0);
    int who = passing ? __ffs((int)passing) - 1 : any ? 31 - __clz((int)any) : 0;
    *start = __shfl_sync(0xffffffffu, before, who);
    return __shfl_sync(0xffffffffu, at, who);
}

/* Returns a weight, given as the bits of a float, as an integer of at most 25 bits in units of weight_unit(). */
static __device__ __forceinline__ unsigned whole_weight(unsigned u)
{
    unsigned exponent = u >> 23;
    return ((u & 0x7fffffu) | (exponent ? 0x800000u : 0)) << (exponent & 1);
}

static __device__ __forceinline__ double weight_unit(unsigned u)
{
    return scalbn(1.0, (int)(u >> 23 & ~1u) - 150);
}

/* Fills the histogram with the weights whose bits under `mask` are `known`, by their next RADIX_BITS bits, counted or,
 * with mass, summed. Each bin has `copies` slots, which the lanes share among them. A block's sum of 2^18 weights may
 * need 43 bits: the lower 13 bits of each weight and those above are summed apart. */
template <int BLOCKS>
static __device__ void fill_bins(row_view<BLOCKS> &r, unsigned *low, unsigned *high, bool mass, unsigned known,
                                 unsigned mask, int shift, int copies)
{
    for (int i = threadIdx.x; i < RADIX_BINS; i += SAMPLE_THREADS)
        low[i] = high[i] = 0;
    __syncthreads();
    for (int i = r.from + r.lane; i < r.to; i += 32) {
        unsigned u = __float_as_uint(r.z[i - r.base]), at = (u >> shift) % RADIX_BINS * copies + r.lane % copies;
        if ((u & mask) != known)
            continue;
        unsigned whole = mass ? whole_weight(u) : 1;
        atomicAdd(&low[at], whole & 0x1fffu);
        if (mass)
            atomicAdd(&high[at], whole >> 13);
    }
}

/* Returns the cluster's total of one bin. */
template <int BLOCKS> static __device__ double bin_total(const unsigned *low, const unsigned *high, int bin, int copies)
{
    word sum = 0;
    for (int i = 0; i < BLOCKS * copies; i++) {
        int at = bin * copies + i / BLOCKS;
        sum += load_from_peer(&low[at], i % BLOCKS) + ((word)load_from_peer(&high[at], i % BLOCKS) << 13);
    }
    return (double)sum;
}

/* Returns the shortest prefix of at least `limit` tokens or, with mass, of at least that much weight. This is a radix
 * select: the smallest weight of the prefix is found RADIX_BITS bits at a time, from the top. Weights are in [0, 1],
 * where floats sort as their bits do; their first 8 bits are below 64, so the first histogram, in which many weights
 * fall into few bins, has room for four copies. */
template <int BLOCKS> static __device__ prefix find_prefix(row_view<BLOCKS> &r, bool mass, double limit)
{
    sample_shared<BLOCKS> &m = *r.shared;
    double above = 0, under_limit = nextafter(limit, -1.0);
    unsigned known = 0, mask = 0;
    for (int shift = 32 - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        unsigned *low = m.low[shift / RADIX_BITS % 2], *high = m.high[shift / RADIX_BITS % 2];
        int copies = mask == 0 ? 4 : 1, bins = RADIX_BINS / copies;
        fill_bins(r, low, high, mass, known, mask, shift, copies);
        cluster_arrive();
        cluster_wait();
        for (int bin = threadIdx.x; bin < bins; bin += SAMPLE_THREADS) {
            double unit = mass ? weight_unit(known | (unsigned)bin << shift) : 1;
            m.total[bins - 1 - bin] = unit * bin_total<BLOCKS>(low, high, bin, copies);
        }
        __syncthreads();
        int bin = bins - 1 - first_past(m.total, bins, &above, under_limit);
        known |= (unsigned)bin << shift;
        mask |= (unsigned)(RADIX_BINS - 1) << shift;
    }
    float cut = __uint_as_float(known);
    double each = mass ? cut : 1, n = floor((limit - above) / each) - 1;
    prefix p = {cut, n < 1 ? 1 : (int)n};
    while (above + each * p.n_ties < limit)
        p.n_ties++;
    return p;
}

static __device__ prefix shorter(prefix a, prefix b)
{
    if (a.cut != b.cut)
        return a.cut > b.cut ? a : b;
    return a.n_ties < b.n_ties ? a : b;
}

/* A warp's share of a prefix: the sum of its weights above the cut, and its number of ties. */
typedef struct {
    double above;
    int n_ties;
} warp_share;

/* Returns this warp's share of prefix p. */
template <int BLOCKS> static __device__ warp_share warp_share_of(row_view<BLOCKS> &r, prefix p)
{
    double above = 0;
    int ties = 0, before = 0;
    for (int i = r.from + r.lane; i < r.to; i += 32) {
        float w = r.z[i - r.base];
        above += w > p.cut ? w : 0;
        ties += w == p.cut && w > 0;
    }
    ties = __reduce_add_sync(0xffffffffu, ties);
    const word *gathered = all_gather(r, (word)ties);
    for (int i = r.lane; i < r.warp; i += 32)
        before += (int)gathered[i];
    before = __reduce_add_sync(0xffffffffu, before);
    int left = p.n_ties > before ? p.n_ties - before : 0;
    return {warp_sum_double(above), ties < left ? ties : left};
}

/* Returns the first of this warp's tokens in the prefix at which their running sum exceeds `left`, or the last of them.
 * n_ties: of this warp. Here each lane owns adjacent ids, as many as the others. */
template <int BLOCKS> static __device__ int draw_in_warp(const row_view<BLOCKS> &r, prefix p, int n_ties, double left)
{
    int n = (r.to - r.from + 31) / 32, from = min(r.from + r.lane * n, r.to), to = min(from + n, r.to);
    int ties = 0, before = 0, token = -1;
    double sum = 0;
    for (int i = from; i < to; i++) {
        float w = r.z[i - r.base];
        ties += w == p.cut && w > 0;
        sum += w > p.cut ? w : 0;
    }
    for (int lane = 0; lane < 31; lane++) {
        int others = __shfl_sync(0xffffffffu, ties, lane);
        before += lane < r.lane ? others : 0;
    }
    int kept = min(ties, max(n_ties - before, 0));
    sum += (double)p.cut * kept;
    double upto = sum;
    for (int i = 1; i < 32; i *= 2) {
        double other = __shfl_up_sync(0xffffffffu, upto, i);
        upto += r.lane >= i ? other : 0;
    }
    unsigned passing = __ballot_sync(0xffffffffu, sum > 0 && upto > left), any = __ballot_sync(0xffffffffu, sum > 0);
    int who = passing ? __ffs((int)passing) - 1 : 31 - __clz((int)any);
    left -= upto - sum;
    for (int i = from; i < to; i++) {
        float w = r.z[i - r.base];
        if (!(w > p.cut || (w == p.cut && w > 0 && kept-- > 0)))
            continue;
        token = i;
        left -= w;
        if (left < 0)
            break;
    }
    return __shfl_sync(0xffffffffu, token, who);
}

/* Returns the token of the prefix at which the running sum of its weights, by id, exceeds u times their total. */
template <int BLOCKS> static __device__ int draw_from(row_view<BLOCKS> &r, prefix p)
{
    warp_share mine = warp_share_of(r, p);
    double mass = mine.above + (double)p.cut * mine.n_ties, total = 0, start = 0;
    const double *masses = (const double *)all_gather(r, (word)__double_as_longlong(mass));
    for (int i = r.lane; i < BLOCKS * SAMPLE_WARPS; i += 32)
        total += masses[i];
    double left = r.spec.u * warp_sum_double(total);
    int who = first_past(masses, BLOCKS * SAMPLE_WARPS, &start, left), token = -1;
    if (who == r.warp)
        token = draw_in_warp(r, p, mine.n_ties, left - start);
    return (int)cluster_max(r, (word)(token + 1)) - 1;
}

/* Draws a token, x being this warp's logits and max the largest of all. */
template <int BLOCKS> static __device__ int draw(row_view<BLOCKS> &r, const float *x, float max)
{
    const row_spec &s = r.spec;
    double total = exp_sum(r, x, max, s.by, r.z + r.from - r.base);
    prefix p = {0, r.vocab};
    if (s.top_k > 0 && s.top_k < r.vocab) {
        p = find_prefix(r, false, s.top_k);
        warp_share mine = warp_share_of(r, p);
        total = cluster_sum(r, mine.above + (double)p.cut * mine.n_ties);
    }
    if (s.top_p < 1)
        p = shorter(p, find_prefix(r, true, s.top_p * total));
    if (s.min_p > 0)
        p = shorter(p, {s.min_p < 1 ? s.min_p : 1, r.vocab});
    return draw_from(r, p);
}

/* Returns the greedy or drawn token, or -1 when no token is allowed. key: of the largest logit. */
template <int BLOCKS> static __device__ int choose(row_view<BLOCKS> &r, const int *list, word key)
{
    const float *x = r.logits + r.from;
    if (r.spec.n_seen > 0 || r.spec.n_banned > 0 || r.spec.n_bias > 0 || r.spec.mask >= 0) {
        apply_penalties(r, list);
        x = r.z + r.from - r.base;
        key = cluster_max(r, max_key(x, r.from, r.to, r.lane, false));
        if (key == 0 || !isfinite(value_of(key)))
            return -1;
    }
    return r.spec.draws ? draw(r, x, value_of(key)) : id_of(key);
}

/* Returns the keys of the n likeliest tokens that are allowed, the i-th in lane i of the cluster's first warp, 0 where
 * there are fewer. x: this warp's logits. Each warp finds its own, then the first warp those of all. */
template <int BLOCKS> static __device__ word find_top(row_view<BLOCKS> &r, const float *x, int n)
{
    const word masked = key_of(-INFINITY, 0); /* not below the key of any masked token */
    word last = ~0ull, mine = 0;
    for (int k = 0; k < n; k++) {
        word best = 0;
#pragma unroll 8
        for (int i = r.from + r.lane; i < r.to; i += 32) {
            word key = key_of(x[i - r.from], i);
            best = key < last && key > best && key > masked ? key : best;
        }
        last = warp_max_word(best);
        if (r.lane == 0)
            store_to_peer(&r.shared->top[r.warp][k], 0, last);
    }
    cluster_arrive();
    cluster_wait();
    last = ~0ull;
    for (int k = 0; k < n && r.warp == 0; k++) {
        word best = 0;
        for (int i = r.lane; i < BLOCKS * SAMPLE_WARPS * n; i += 32) {
            word key = r.shared->top[i / n][i % n];
            best = key < last && key > best ? key : best;
        }
        last = warp_max_word(best);
        if (r.lane == k)
            mine = last;
    }
    return mine;
}

/* Returns 1 + the number of tokens with a larger logit. */
template <int BLOCKS> static __device__ int rank_of(row_view<BLOCKS> &r, int token)
{
    float than = r.logits[token];
    int n = 0;
    for (int i = r.from + r.lane; i < r.to; i += 32)
        n += r.logits[i] > than;
    return 1 + (int)cluster_sum(r, (double)__reduce_add_sync(0xffffffffu, n));
}

/* Writes the logprobs; called by the cluster's first warp. top: the key of the i-th likeliest token in lane i, 0: there
 * is none. */
template <int BLOCKS>
static __device__ void write_logprobs(const row_view<BLOCKS> &r, sample_result *out, int token, double log_sum,
                                      word top)
{
    token_logprob none = {-1, -INFINITY}, found = {id_of(top), (float)(value_of(top) - log_sum)};
    if (r.lane < r.spec.n_logprobs)
        out->top[r.lane] = top ? found : none;
    if (r.lane == 0)
        out->logprob = (float)(r.logits[token] - log_sum);
}

/* Samples one row by a cluster of BLOCKS blocks: its token and logprobs, and the token for the next invocation. PLAIN:
 * every row only wants its largest logit. Shared: 2 KiB for a cluster of 8; unless PLAIN, 26 KiB more and 4 bytes for
 * each of the block's ids. */
template <int BLOCKS, bool PLAIN>
static __global__ void __launch_bounds__(SAMPLE_THREADS, PLAIN ? 4 : 2) sample_rows(sample_job job)
{
    __shared__ gather_words<BLOCKS> words;
    extern __shared__ float slice[];
    int row = blockIdx.y, ids = SAMPLE_WARPS * job.ids_per_warp;
    row_view<BLOCKS> r;
    r.words = &words;
    r.vocab = job.vocab;
    r.logits = job.logits + (size_t)row * job.vocab;
    r.lane = threadIdx.x % 32;
    r.warp = blockIdx.x * SAMPLE_WARPS + threadIdx.x / 32;
    r.buffer = 0;
    r.base = blockIdx.x * ids;
    r.end = min(r.base + ids, job.vocab);
    r.from = min(r.warp * job.ids_per_warp, job.vocab);
    r.to = min(r.from + job.ids_per_warp, job.vocab);
    cluster_arrive();
    wait_for_previous();
    cluster_wait();

    word key = cluster_max(r, max_key(r.logits + r.from, r.from, r.to, r.lane, true));
    int token = key == ~0ull ? -1 : id_of(key);
    if constexpr (!PLAIN) {
        __shared__ sample_shared<BLOCKS> shared;
        r.shared = &shared;
        r.spec = job.spec[row];
        r.z = job.z ? job.z + ((size_t)row * BLOCKS + blockIdx.x) * ids : slice;
        int given = r.spec.given, rank = 0;
        if (token >= 0 && given >= 0)
            rank = rank_of(r, given);
        token = token < 0 ? -1 : given >= 0 ? given : choose(r, job.list, key);
        if (token >= 0 && r.spec.n_logprobs >= 0) {
            const float *x = r.logits + r.from;
            if (r.spec.mask >= 0 && given < 0) {
                __syncthreads(); /* other lanes may still read z in draw_in_warp() */
                mask_logits(r, job.list);
                x = r.z + r.from - r.base;
                key = cluster_max(r, max_key(x, r.from, r.to, r.lane, false));
            }
            double log_sum = value_of(key) + log(exp_sum(r, x, value_of(key), 1.0f, NULL));
            word top = find_top(r, x, r.spec.n_logprobs);
            if (r.warp == 0)
                write_logprobs(r, &job.result[row], token, log_sum, top);
        }
        if (r.warp == 0 && r.lane == 0)
            job.result[row].rank = rank;
    }
    if (r.warp == 0 && r.lane == 0)
        job.drawn[row] = job.result[row].token = token;
}

typedef void sample_kernel(sample_job);

static sample_kernel *kernel_for(int blocks, bool plain)
{
    if (blocks == 1)
        return plain ? sample_rows<1, true> : sample_rows<1, false>;
    return plain ? sample_rows<SAMPLE_CLUSTER, true> : sample_rows<SAMPLE_CLUSTER, false>;
}

/* The host memory that one sample() uses until it is collected. */
typedef struct {
    char *packed; /* pinned: specs, then lists */
    size_t packed_bytes;
    sample_result *result; /* [max_out] pinned, written by the device */
    cudaEvent_t done;
} sample_slot;

/* Two samples may be outstanding while the results of a third are still being read. */
struct sampler {
    sample_slot slots[SAMPLE_SLOTS];
    unsigned n_sampled, n_collected;
    char *packed; /* device memory, used by all slots in the order of the stream */
    size_t packed_bytes;
    float *z; /* device memory, or NULL: rows fit into shared memory */
    int max_rows, blocks, ids_per_warp;
};

void cuda_sampler_free(cuda_backend *cu)
{
    sampler *s = cu->sampler;
    if (!s)
        return;
    for (int i = 0; i < SAMPLE_SLOTS; i++) {
        cudaFreeHost(s->slots[i].packed);
        cudaFreeHost(s->slots[i].result);
        if (s->slots[i].done)
            cudaEventDestroy(s->slots[i].done);
    }
    if (s->packed)
        cuda_release(&cu->base, s->packed);
    if (s->z)
        cuda_release(&cu->base, s->z);
    free(s);
    cu->sampler = NULL;
}

/* Makes room for `bytes` of specs and lists, twice that where memory is allocated, so that lists may grow. Returns 0,
 * or -1 with e set. */
static int reserve_packed(cuda_backend *cu, sample_slot *t, size_t bytes, err *e)
{
    sampler *s = cu->sampler;
    if (bytes > t->packed_bytes) {
        cudaFreeHost(t->packed);
        t->packed = NULL;
        t->packed_bytes = 0;
        if (cuda_keep(cu, cudaHostAlloc((void **)&t->packed, 2 * bytes, 0), "pinned host memory"))
            return cuda_report(cu, e);
        t->packed_bytes = 2 * bytes;
    }
    if (bytes > s->packed_bytes) {
        if (s->packed)
            cuda_release(&cu->base, s->packed);
        s->packed_bytes = 0;
        if (!(s->packed = (char *)cuda_alloc(&cu->base, 2 * bytes, e)))
            return -1;
        s->packed_bytes = 2 * bytes;
    }
    return 0;
}

int cuda_sampler_reserve(cuda_backend *cu, const extent *x, err *e)
{
    cuda_keep(cu, cudaStreamSynchronize(cu->stream), "reserve");
    cuda_sampler_free(cu);
    sampler *s = cu->sampler = XNEW(sampler);
    int most = 0, blocks = s->blocks = cu->arch >= 90 ? SAMPLE_CLUSTER : 1, warps = blocks * SAMPLE_WARPS;
    s->max_rows = x->max_out;
    s->ids_per_warp = ((x->vocab + warps - 1) / warps + 31) / 32 * 32;
    size_t slice = (size_t)SAMPLE_WARPS * s->ids_per_warp * sizeof(float);
    size_t cluster = sizeof(gather_words<SAMPLE_CLUSTER>) + sizeof(sample_shared<SAMPLE_CLUSTER>);
    CHECK(SAMPLE_WARPS * s->ids_per_warp <= 1 << 18); /* see fill_bins */
    if (cuda_keep(cu, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, cu->device), "sampler"))
        return cuda_report(cu, e);
    if (slice + cluster > (size_t)most &&
        !(s->z = (float *)cuda_alloc(&cu->base, (size_t)x->max_out * blocks * slice, e)))
        return -1;
    if (!s->z)
        allow_shared(context_of(cu), "sampler", kernel_for(blocks, false), slice);
    if (cuda_report(cu, e))
        return -1;
    for (int i = 0; i < SAMPLE_SLOTS; i++) {
        sample_slot *t = &s->slots[i];
        if (cuda_keep(cu, cudaHostAlloc((void **)&t->result, (size_t)x->max_out * sizeof *t->result, 0),
                      "pinned host memory") ||
            cuda_keep(cu, cudaEventCreateWithFlags(&t->done, cudaEventDisableTiming), "event"))
            return cuda_report(cu, e);
        if (reserve_packed(cu, t, (size_t)x->max_out * sizeof(row_spec), e))
            return -1;
    }
    return 0;
}

static bool has_penalty(const sample_spec *s)
{
    return s->n_seen > 0 && (s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0);
}

static int mask_words(int vocab)
{
    return (vocab + 31) / 32;
}

/* Returns the spec for the device; its lists are copied to list + *at, and *at moves behind them. */
static row_spec pack_spec(const sample_spec *s, int vocab, int *list, int *at)
{
    row_spec r = {};
    r.u = rng_uniform(s->seed, s->position);
    r.draws = s->temperature > 0;
    r.by = 1 / fmaxf(s->temperature, 1e-30f);
    r.top_k = s->top_k;
    r.top_p = s->top_p;
    r.min_p = s->min_p;
    r.repetition_penalty = s->repetition_penalty;
    r.presence_penalty = s->presence_penalty;
    r.frequency_penalty = s->frequency_penalty;
    r.n_logprobs = s->n_logprobs < MAX_LOGPROBS ? s->n_logprobs : MAX_LOGPROBS;
    r.given = s->given ? s->token : -1;
    r.n_seen = has_penalty(s) ? s->n_seen : 0;
    r.n_banned = s->n_banned;
    r.seen = *at;
    r.banned = *at + 2 * r.n_seen;
    memcpy(list + r.seen, s->seen, (size_t)r.n_seen * sizeof(int));
    memcpy(list + r.seen + r.n_seen, s->seen_output, (size_t)r.n_seen * sizeof(int));
    memcpy(list + r.banned, s->banned, (size_t)r.n_banned * sizeof(int));
    r.n_bias = s->n_bias;
    r.biased = r.banned + r.n_banned;
    memcpy(list + r.biased, s->biased, (size_t)r.n_bias * sizeof(int));
    memcpy(list + r.biased + r.n_bias, s->bias, (size_t)r.n_bias * sizeof(float));
    *at = r.biased + 2 * r.n_bias;
    r.mask = s->mask ? *at : -1;
    if (s->mask) {
        memcpy(list + r.mask, s->mask, (size_t)mask_words(vocab) * sizeof(int));
        *at += mask_words(vocab);
    }
    return r;
}

/* Packs all specs, then the lists. Returns whether every row only wants its largest logit. */
static bool pack_all(char *packed, const sample_spec *spec, int n, int vocab)
{
    row_spec *r = (row_spec *)packed;
    bool plain = true;
    int at = 0;
    for (int i = 0; i < n; i++) {
        r[i] = pack_spec(&spec[i], vocab, (int *)(r + n), &at);
        plain = plain && !r[i].draws && r[i].n_seen == 0 && r[i].n_banned == 0 && r[i].n_bias == 0 && r[i].mask < 0 &&
                r[i].n_logprobs < 0;
    }
    return plain;
}

static size_t list_bytes(const sample_spec *spec, int n, int vocab)
{
    size_t ints = 0;
    for (int i = 0; i < n; i++)
        ints += 2 * (size_t)(has_penalty(&spec[i]) ? spec[i].n_seen : 0) + (size_t)spec[i].n_banned +
                2 * (size_t)spec[i].n_bias + (spec[i].mask ? (size_t)mask_words(vocab) : 0);
    return ints * sizeof(int);
}

void cuda_sample(backend *be, const tensor *logits, const sample_spec *spec, int n)
{
    cuda_backend *cu = cuda_of(be);
    sampler *s = cu->sampler;
    sample_slot *t = &s->slots[s->n_sampled++ % SAMPLE_SLOTS];
    size_t specs = (size_t)n * sizeof(row_spec), bytes = specs + list_bytes(spec, n, logits->cols);
    err ignored;
    CHECK(s->n_sampled - s->n_collected <= 2 && n <= s->max_rows && n <= logits->rows);
    CHECK(logits->type == DTYPE_F32 && logits->cols <= s->blocks * SAMPLE_WARPS * s->ids_per_warp);
    if (reserve_packed(cu, t, bytes, &ignored) == 0) {
        bool plain = pack_all(t->packed, spec, n, logits->cols);
        if (!plain)
            cuda_keep(cu, cudaMemcpyAsync(s->packed, t->packed, bytes, cudaMemcpyHostToDevice, cu->stream), "sample");
        sample_job job = {(const float *)logits->data,      logits->cols, s->ids_per_warp, (const row_spec *)s->packed,
                          (const int *)(s->packed + specs), s->z,         t->result,       cu->step.drawn};
        size_t shared = plain || s->z ? 0 : (size_t)SAMPLE_WARPS * s->ids_per_warp * sizeof(float);
        launch_clusters(context_of(cu), "sample", kernel_for(s->blocks, plain), dim3((unsigned)s->blocks, (unsigned)n),
                        SAMPLE_THREADS, shared, (unsigned)s->blocks, job);
    } else /* fails, so that nobody uses the results of an older sample */
        cuda_keep(cu, cudaErrorMemoryAllocation, "sample");
    cuda_keep(cu, cudaEventRecord(t->done, cu->stream), "sample");
}

const sample_result *cuda_collect(backend *be, err *e)
{
    cuda_backend *cu = cuda_of(be);
    sampler *s = cu->sampler;
    CHECK(s->n_collected != s->n_sampled);
    sample_slot *t = &s->slots[s->n_collected++ % SAMPLE_SLOTS];
    cuda_keep(cu, cudaEventSynchronize(t->done), "an earlier op");
    return cuda_report(cu, e) ? NULL : t->result;
}
