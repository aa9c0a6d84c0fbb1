/* row_budget.h - how many rows of prompts a step may have
 *
 * Streams that run get a token a step, and prompts computed in the same step make them wait. How long a step takes is
 * learnt from those that were measured, the last few dozen of them:
 *
 *   seconds = fixed + a * decodes + b * positions they read                                 every step
 *           + fixed + c * rows of prompts + d * positions these rows read, each by itself   a step with prompts
 *
 * and as many rows are allowed as keep the step within the target. No clock is read here: whoever knows how long a step
 * took says so, in real time or virtual. */
#ifndef PUNICA_ENGINE_ROW_BUDGET_H
#define PUNICA_ENGINE_ROW_BUDGET_H

/* What a step computes. */
typedef struct {
    int n_decodes, n_rows;             /* n_rows: of prompts */
    double decode_reads, prompt_reads; /* positions that each of the decodes, and of the rows, sees */
} step_work;

/* Least squares over three inputs, of relative errors, older ones forgotten exponentially; no coefficient is negative.
 */
typedef struct { double product[3][3], sum[3], coefficient[3]; } step_fit;

typedef struct {
    double target; /* seconds of a step while streams run; 0: no limit */
    int most_rows; /* of prompts in a step that was measured */
    step_fit decodes, prompts;
} row_budget;

void row_budget_init(row_budget *b, double target);

/* A step has taken so long. */
void row_budget_learn(row_budget *b, const step_work *w, double seconds);

/* What a step would take. */
double row_budget_predict(const row_budget *b, const step_work *w);

/* What n more rows of a prompt of which n_done are computed add to a step that has prompts; 0: no such step has been
 * measured. */
double row_budget_rows_time(const row_budget *b, int n_done, int n);

/* The next rows of a prompt of which n_done are computed: at most n of them join the step that w tells of, and are
 * added to it. Returns how many; a step gets a few rows of its first prompt whatever they cost, so that every prompt
 * comes to its end. */
int row_budget_take(const row_budget *b, step_work *w, int n_done, int n);

#endif
