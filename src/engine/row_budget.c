/* row_budget.c - see row_budget.h */
#include "engine/row_budget.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double KEEP = 0.97; /* weight of what is known, for each step that is learnt from */
static const double AIM = 0.9;   /* share of the target to aim at, since half of all steps take longer than predicted */
static const double ALONE = 2;   /* times the target that a step may take while no stream runs */

/* Where no elder runs a step may be longer, until all but the rows of prompts takes so little of it. With 0.1 the last
 * first token of 32 prompts on a 1.1B model came 6 % later than llama.cpp's server had it, with 0.07 at the same time,
 * with 0.05 3 % sooner (docs/lab/cpu.md). The target is kept all the same where it leaves prompts ENOUGH of a step. */
static const double OVERHEAD_SHARE = 0.05, ENOUGH = 0.75;

/* Seconds beyond which no step is made longer: new requests wait meanwhile, and a silent worker is taken to be
 * faulty. */
static const double LONGEST = 2;
enum { FEW_ROWS = 16 }; /* fewer are not worth a place in a step unless they end a prompt */

/* Rows of a step before any was measured; how many times the most rows measured a step may have. */
enum { FIRST_ROWS = 64, GROWTH = 4 };
enum { SWEEPS = 16 }; /* of coordinate descent, for each step that is learnt from */

/* Units of the inputs, chosen to give coefficients of one magnitude. */
static const double DECODES = 32, ROWS = 256, DECODE_READS = 32 * 512, PROMPT_READS = 256 * 512;

/* The order matters: solve() puts time down to the first input that explains it. */
static void inputs_of_decodes(const step_work *w, double in[3])
{
    in[0] = 1;
    in[1] = w->n_decodes / DECODES;
    in[2] = w->decode_reads / DECODE_READS;
}

static void inputs_of_prompts(const step_work *w, double in[3])
{
    in[0] = w->n_rows / ROWS;
    in[1] = w->prompt_reads / PROMPT_READS;
    in[2] = w->n_rows > 0;
}

static double value_of(const step_fit *f, const double in[3])
{
    return f->coefficient[0] * in[0] + f->coefficient[1] * in[1] + f->coefficient[2] * in[2];
}

static double decodes_time(const row_budget *b, const step_work *w)
{
    double in[3];
    inputs_of_decodes(w, in);
    return value_of(&b->decodes, in);
}

static double prompts_time(const row_budget *b, const step_work *w)
{
    double in[3];
    inputs_of_prompts(w, in);
    return value_of(&b->prompts, in);
}

/* Coordinate descent on the normal equations, starting from the present coefficients: those that the last steps do not
 * tell apart keep their values. */
static void solve(step_fit *f)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < 3; i++) {
            double rest = f->sum[i];
            for (int k = 0; k < 3; k++)
                rest -= k != i ? f->product[i][k] * f->coefficient[k] : 0;
            if (f->product[i][i] > 0)
                f->coefficient[i] = fmax(0, rest / f->product[i][i]);
        }
}

/* Learns that these inputs took so long. weight: one over the square of the whole step's time, so that errors are
 * relative and a step that was held up hardly counts. */
static void fit_add(step_fit *f, const double in[3], double seconds, double weight)
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++)
            f->product[i][k] = KEEP * f->product[i][k] + weight * in[i] * in[k];
        f->sum[i] = KEEP * f->sum[i] + weight * in[i] * seconds;
    }
    solve(f);
}

void row_budget_init(row_budget *b, double target)
{
    *b = (row_budget){.target = target};
}

void row_budget_learn(row_budget *b, const step_work *w, double seconds)
{
    double in[3];
    if (!(seconds > 0) || w->n_decodes + w->n_rows == 0)
        return;
    if (w->n_rows == 0) {
        inputs_of_decodes(w, in);
        fit_add(&b->decodes, in, seconds, 1 / (seconds * seconds));
        return;
    }
    inputs_of_prompts(w, in);
    fit_add(&b->prompts, in, seconds - decodes_time(b, w), 1 / (seconds * seconds));
    b->most_rows = w->n_rows > b->most_rows ? w->n_rows : b->most_rows;
}

double row_budget_predict(const row_budget *b, const step_work *w)
{
    return decodes_time(b, w) + prompts_time(b, w);
}

/* Returns the seconds that the step may take: the target or, if the decodes alone take more than half of it, twice as
 * long as they do. Where no elder decodes and the target would leave too little for prompts, the step may be longer:
 * until all but their rows takes OVERHEAD_SHARE of it. */
static double limit_of(const row_budget *b, const step_work *w)
{
    double decodes = decodes_time(b, w), longer = (decodes + b->prompts.coefficient[2]) / OVERHEAD_SHARE;
    if (w->n_decodes == 0)
        return fmin(fmax(ALONE * b->target, longer), LONGEST);
    double kept = fmax(AIM * b->target, 2 * decodes);
    bool leaves_enough = decodes <= (1 - ENOUGH) * AIM * b->target;
    return w->has_elders || leaves_enough ? kept : fmax(kept, fmin(longer, LONGEST));
}

/* w with n more rows of a prompt, behind n_done computed ones. */
static step_work with_rows(const step_work *w, int n_done, int n)
{
    step_work more = *w;
    more.n_rows += n;
    more.prompt_reads += (double)n * n_done + (double)n * (n + 1) / 2;
    return more;
}

double row_budget_rows_time(const row_budget *b, int n_done, int n)
{
    step_work none = {0}, rows = with_rows(&none, n_done, n);
    return prompts_time(b, &rows) - b->prompts.coefficient[2];
}

static bool fits(const row_budget *b, const step_work *w, int n_done, int n)
{
    step_work more = with_rows(w, n_done, n);
    int trusted = b->most_rows * GROWTH > FIRST_ROWS ? b->most_rows * GROWTH : FIRST_ROWS;
    return more.n_rows <= trusted && row_budget_predict(b, &more) <= limit_of(b, w);
}

/* The largest number of rows, up to n, that fits. */
static int most_that_fit(const row_budget *b, const step_work *w, int n_done, int n)
{
    int low = 0, high = n + 1; /* low fits or is 0; high does not fit */
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        if (fits(b, w, n_done, mid))
            low = mid;
        else
            high = mid;
    }
    return low;
}

int row_budget_add_rows(const row_budget *b, step_work *w, int n_done, int n)
{
    int few = n < FEW_ROWS ? n : FEW_ROWS, take = b->target > 0 ? most_that_fit(b, w, n_done, n) : n;
    if (take < few)
        take = w->n_rows == 0 ? few : 0;
    *w = with_rows(w, n_done, take);
    return take;
}
