/* number.c - see number.h */
#include "grammar/number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_MODULUS = 5000,
    MAX_PLACES = 6
}; /* largest "multipleOf", read without its decimal point; most digits behind that point */

/* Finds the fewest digits that read as this double, which is 0.DIGITS times ten to the power of *point. */
static void shortest(double x, char *digits, int *point)
{
    char text[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, x);
        if (strtod(text, NULL) == x)
            break;
    }
    int n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    digits[n] = 0;
    *point = atoi(p + 1) + 1;
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = 0;
}

void number_text(const json_t *v, char *out)
{
    if (json_is_integer(v)) {
        snprintf(out, NUMBER_TEXT, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return;
    }
    double x = json_real_value(v);
    char digits[40];
    int point, n = 0;
    if (x == 0) {
        snprintf(out, NUMBER_TEXT, "0");
        return;
    }
    shortest(fabs(x), digits, &point);
    int len = (int)strlen(digits);
    if (x < 0)
        out[n++] = '-';
    if (point <= 0)
        out[n++] = '0';
    for (int i = 0; i < point; i++)
        out[n++] = i < len ? digits[i] : '0';
    if (len > point)
        out[n++] = '.';
    for (int i = point; i < 0; i++)
        out[n++] = '0';
    for (int i = point > 0 ? point : 0; i < len; i++)
        out[n++] = digits[i];
    out[n] = 0;
}

static const expr *digit(build *b)
{
    return expr_bytes(b, '0', '9');
}

static const expr *optional(build *b, const expr *x)
{
    return expr_repeat(b, x, 0, 1);
}

static const expr *whole_part(build *b, int max_digits)
{
    return expr_either(b, expr_str(b, "0"),
                       expr_concat(b, expr_bytes(b, '1', '9'), expr_repeat(b, digit(b), 0, max_digits - 1)));
}

/* "." and at least n digits. */
static const expr *fraction(build *b, int n)
{
    return expr_concat(b, expr_str(b, "."), expr_repeat(b, digit(b), n, REPEAT_ANY));
}

static const dfa *syntax(build *b, int max_whole, int max_fraction)
{
    const expr *behind = expr_sequence(
        b, 3,
        (const expr *[]){expr_str(b, "."), expr_repeat(b, digit(b), 0, max_fraction - 1), expr_bytes(b, '1', '9')});
    const expr *x = expr_sequence(b, 3,
                                  (const expr *[]){optional(b, expr_str(b, "-")), whole_part(b, max_whole),
                                                   max_fraction ? optional(b, behind) : expr_empty(b)});
    return dfa_minus(b, dfa_of(b, x), dfa_of(b, expr_str(b, "-0")));
}

/* At most 15 digits in all, so that different numbers are different doubles. */
const dfa *number_all(build *b)
{
    return dfa_or(b, number_integers(b), dfa_or(b, syntax(b, 9, 6), syntax(b, 3, 12)));
}

const dfa *number_integers(build *b)
{
    return syntax(b, 15, 0);
}

/* A bound without its sign. */
typedef struct { char whole[NUMBER_TEXT], fraction[NUMBER_TEXT]; } decimal;

static decimal split(const char *text)
{
    decimal d = {.fraction = ""};
    const char *point = strchr(text, '.');
    size_t n = point ? (size_t)(point - text) : strlen(text);
    memcpy(d.whole, text, n);
    d.whole[n] = 0;
    snprintf(d.fraction, sizeof d.fraction, "%s", point ? point + 1 : "");
    return d;
}

static const expr *prefix(build *b, const char *text, int n, const expr *then)
{
    return expr_concat(b, expr_text(b, text, (size_t)n), then);
}

/* Returns the numbers without sign that have d's whole part and a larger (sign 1) or smaller (sign -1) fraction, or,
 * unless strict, the same. */
static const expr *same_whole(build *b, const decimal *d, int sign, bool strict)
{
    const expr *x = expr_never(b), *rest = expr_repeat(b, digit(b), 0, REPEAT_ANY);
    const char *f = d->fraction;
    int n = (int)strlen(f);
    for (int i = 0; i < n; i++) {
        int lo = sign > 0 ? f[i] + 1 : '0', hi = sign > 0 ? '9' : f[i] - 1;
        const expr *other = lo <= hi ? expr_concat(b, expr_bytes(b, lo, hi), rest) : expr_never(b);
        x = expr_either(b, x, expr_concat(b, expr_str(b, "."), prefix(b, f, i, other)));
        if (sign < 0) /* a prefix is smaller */
            x = expr_either(b, x, i ? expr_concat(b, expr_str(b, "."), expr_text(b, f, (size_t)i)) : expr_empty(b));
    }
    if (!strict)
        x = expr_either(b, x, n ? expr_concat(b, expr_str(b, "."), expr_str(b, f)) : expr_empty(b));
    if (sign > 0) /* an extension is larger */
        x = expr_either(
            b, x,
            n ? expr_sequence(
                    b, 3, (const expr *[]){expr_str(b, "."), expr_str(b, f), expr_repeat(b, digit(b), 1, REPEAT_ANY)})
              : fraction(b, 1));
    return expr_concat(b, expr_str(b, d->whole), x);
}

/* Returns the numbers without sign that are larger (sign 1) or smaller (sign -1) than d, or, unless strict, equal. */
static const expr *beyond(build *b, const decimal *d, int sign, bool strict)
{
    const expr *x = same_whole(b, d, sign, strict), *tail = optional(b, fraction(b, 1));
    const char *w = d->whole;
    int n = (int)strlen(w);
    for (int i = 0; i < n; i++) {
        int lo = sign > 0 ? w[i] + 1 : i == 0 && n > 1 ? '1' : '0', hi = sign > 0 ? '9' : w[i] - 1;
        if (lo > hi)
            continue;
        const expr *other = expr_sequence(
            b, 3, (const expr *[]){expr_bytes(b, lo, hi), expr_repeat(b, digit(b), n - i - 1, n - i - 1), tail});
        x = expr_either(b, x, prefix(b, w, i, other));
    }
    if (sign > 0)
        x = expr_either(
            b, x,
            expr_sequence(b, 3,
                          (const expr *[]){expr_bytes(b, '1', '9'), expr_repeat(b, digit(b), n, REPEAT_ANY), tail}));
    else if (n > 1)
        x = expr_either(b, x, expr_concat(b, whole_part(b, n - 1), tail));
    return x;
}

const dfa *number_bounded(build *b, const json_t *bound, int sign, bool strict, const char *keyword)
{
    char text[NUMBER_TEXT];
    number_text(bound, text);
    bool negative = text[0] == '-';
    decimal d = split(text + negative);
    if (strlen(d.whole) > 40 || strlen(d.fraction) > 40)
        build_fail(b, "\"%s\" is out of the range that is served", keyword);
    const expr *any =
        expr_concat(b,
                    expr_either(b, expr_str(b, "0"),
                                expr_concat(b, expr_bytes(b, '1', '9'), expr_repeat(b, digit(b), 0, REPEAT_ANY))),
                    optional(b, fraction(b, 1)));
    const expr *minus = expr_str(b, "-"), *x;
    if (sign > 0)
        x = negative ? expr_either(b, any, expr_concat(b, minus, beyond(b, &d, -1, strict))) : beyond(b, &d, 1, strict);
    else
        x = negative ? expr_concat(b, minus, beyond(b, &d, 1, strict))
                     : expr_either(b, expr_concat(b, minus, any), beyond(b, &d, -1, strict));
    const dfa *near = syntax(b, (int)strlen(d.whole), (int)strlen(d.fraction) + 1); /* the bound may have more digits */
    return dfa_and(b, dfa_or(b, number_all(b), near), dfa_of(b, x));
}

/* Adds the edges of numbers with `behind` of at most `places` digits behind the point. Their nodes are the remainders
 * modulo m of the digits so far, read without the point. */
static void add_remainders(graph *g, int first, long m, int behind, int places)
{
    build *b = g->b;
    long missing = 1; /* 10 to the power of the digits that could still come, modulo m */
    for (int i = behind; i < places; i++)
        missing = missing * 10 % m;
    for (long r = 0; r < m; r++) {
        int node = first + (int)(behind * m + r);
        for (int c = 0; c < 10; c++) {
            const expr *text = expr_bytes(b, '0' + c, '0' + c);
            long next = (r * 10 + c) % m;
            if (behind == 0)
                graph_edge(g, node, first + (int)next, text);
            if (behind < places)
                graph_edge(g, node, first + (int)((behind + 1) * m + next),
                           behind ? text : expr_concat(b, expr_str(b, "."), text));
        }
        if (r * missing % m == 0)
            graph_edge(g, node, 1, NULL);
    }
}

/* Returns what a "multipleOf" demands multiples of. */
static decimal modulus_of(build *b, const json_t *of, char text[NUMBER_TEXT])
{
    number_text(of, text);
    if (text[0] == '-' || strcmp(text, "0") == 0)
        build_fail(b, "\"multipleOf\" must be more than 0");
    return split(text);
}

const dfa *number_multiples(build *b, const json_t *of)
{
    char text[NUMBER_TEXT];
    decimal d = modulus_of(b, of, text);
    int places = (int)strlen(d.fraction);
    char scaled[2 * NUMBER_TEXT];
    snprintf(scaled, sizeof scaled, "%s%s", d.whole, d.fraction);
    long m = strtol(scaled, NULL, 10);
    if (m > MAX_MODULUS || places > MAX_PLACES)
        build_fail(b, "\"multipleOf\" of %s is not served: at most %d digits behind the point, and up to %d without it",
                   text, MAX_PLACES, MAX_MODULUS);
    graph g = graph_new(b);
    int first = g.n_nodes;
    g.n_nodes += (int)m * (places + 1);
    graph_edge(&g, 0, first, optional(b, expr_str(b, "-")));
    for (int behind = 0; behind <= places; behind++)
        add_remainders(&g, first, m, behind, places);
    return dfa_and(b, number_all(b), dfa_of(b, graph_done(&g)));
}

static long double exact(const json_t *v)
{
    _Static_assert(LDBL_MANT_DIG >= 64, "a long double holds every integer and every double");
    return json_is_integer(v) ? (long double)json_integer_value(v) : (long double)json_real_value(v);
}

int number_compare(const json_t *x, const json_t *y)
{
    return (exact(x) > exact(y)) - (exact(x) < exact(y));
}

bool number_is_multiple(build *b, const json_t *v, const json_t *of)
{
    enum { MOST_DIGITS = 18 }; /* of the modulus: ten remainders fit into 64 bits */
    char text[NUMBER_TEXT], digits[2 * NUMBER_TEXT];
    build_step(b, 200);
    decimal m = modulus_of(b, of, text);
    int places = (int)strlen(m.fraction);
    snprintf(digits, sizeof digits, "%s%s", m.whole, m.fraction);
    const char *significant = digits + strspn(digits, "0");
    if (strlen(significant) > MOST_DIGITS)
        build_fail(b, "\"multipleOf\" of %.40s is not served: it has more than %d digits", text, MOST_DIGITS);
    unsigned long long modulus = strtoull(significant, NULL, 10), rest = 0;
    number_text(v, text);
    decimal x = split(text + (text[0] == '-'));
    if ((int)strlen(x.fraction) > places)
        return false;
    snprintf(digits, sizeof digits, "%s%s", x.whole, x.fraction);
    for (const char *c = digits; *c; c++)
        rest = (rest * 10 + (unsigned)(*c - '0')) % modulus;
    for (int i = (int)strlen(x.fraction); i < places; i++)
        rest = rest * 10 % modulus;
    return rest == 0;
}
