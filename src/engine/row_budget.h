/* row_budget.h - how many rows of prompts a step may have
 *
 * Running streams get one token a step, and prompts computed in the same step make them wait: streams that ran before
 * the prompt was admitted (elders) no longer than the target; streams that began later may wait longer for their tokens
 * in their first seconds, so that all prompts of a burst have their first tokens soon. How long a step takes is learnt
 * from the last few dozen that were measured:
 *
 *   seconds = fixed + a * decodes + b * positions they read                                 every step
 *           + fixed + c * rows of prompts + d * positions these rows read, each by itself   a step with prompts
 *
 * A step gets as many rows as keep it within the target. No clock is read here: the caller tells how long a step took,
 * in real or virtual time. */
#ifndef PUNICA_ENGINE_ROW_BUDGET_H
#define PUNICA_ENGINE_ROW_BUDGET_H

#include <stdbool.h>

/* What a step computes. */
typedef struct {
    int n_decodes, n_rows;             /* n_rows: of prompts */
    bool has_elders;                   /* some decodes are of streams that its newest prompt must not hold up */
    double decode_reads, prompt_reads; /* positions read, summed over the decodes, and over the rows of prompts */
} step_work;

/* Non-negative least squares over three inputs, of relative errors, with exponential forgetting. */
typedef struct { double product[3][3], sum[3], coefficient[3]; } step_fit;

typedef struct {
    double target; /* seconds of a step while elders run; 0: no limit */
    int most_rows; /* most rows of prompts in a step that was measured */
    step_fit decodes, prompts;
} row_budget;

void row_budget_init(row_budget *b, double target);

/* Learns from a step that has taken so long. */
void row_budget_learn(row_budget *b, const step_work *w, double seconds);

/* Predicts the seconds that a step takes. */
double row_budget_predict(const row_budget *b, const step_work *w);

/* Predicts the seconds that n rows of a prompt, behind n_done computed ones, add to a step that has prompts. 0: no such
 * step has been measured. */
double row_budget_rows_time(const row_budget *b, int n_done, int n);

/* Adds to the step w up to n rows of a prompt, behind n_done computed ones, as many as the target allows. Returns how
 * many. The first prompt of a step gets a few rows whatever they cost, so that every prompt makes progress. */
int row_budget_add_rows(const row_budget *b, step_work *w, int n_done, int n);

#endif
