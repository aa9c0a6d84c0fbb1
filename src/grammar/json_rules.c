/* json_rules.c - see json_rules.h */
#include "grammar/json_rules.h"

#include <string.h>

enum { BLANK, CHARACTER, STRING, NUMBER, INTEGER, VALUE, OBJECT, ARRAY };

#define MAX_INDENT 32

/* Returns the rule of a kind, made on first use. */
static const expr *rule_of(json_rules *j, int kind, const char *name, const expr *(*make)(json_rules *))
{
    if (!j->made[kind]) {
        int number = rules_add(j->r, name, NULL);
        j->made[kind] = number + 1;
        const expr *is = make(j);
        j->r->at[number].body = is;
    }
    return expr_rule(j->r->b, j->made[kind] - 1);
}

static const expr *sequence(build *b, const expr *x, const expr *y, const expr *z)
{
    return expr_sequence(b, 3, (const expr *[]){x, y, z});
}

static const expr *make_blank(json_rules *j)
{
    build *b = j->r->b;
    const expr *spaces = expr_repeat(b, expr_str(b, " "), 0, MAX_INDENT),
               *tabs = expr_repeat(b, expr_str(b, "\t"), 0, MAX_INDENT / 2);
    const expr *line = expr_concat(b, expr_str(b, "\n"), expr_either(b, spaces, tabs));
    return expr_choice(b, 3, (const expr *[]){expr_empty(b), expr_str(b, " "), line});
}

const expr *json_rule_blank(json_rules *j)
{
    return rule_of(j, BLANK, "a blank", make_blank);
}

static const expr *hex(build *b)
{
    return expr_choice(b, 3,
                       (const expr *[]){expr_bytes(b, '0', '9'), expr_bytes(b, 'a', 'f'), expr_bytes(b, 'A', 'F')});
}

static const expr *letter(build *b, char c)
{
    return expr_either(b, expr_bytes(b, c, c), expr_bytes(b, c - 'a' + 'A', c - 'a' + 'A'));
}

/* Returns what may follow "\u": four digits that are no surrogate, or a pair of surrogates. */
static const expr *unicode_escape(build *b)
{
    const expr *h = hex(b), *two = expr_concat(b, h, h);
    const expr *not_d =
        expr_choice(b, 4,
                    (const expr *[]){expr_bytes(b, '0', '9'), expr_bytes(b, 'a', 'c'), expr_bytes(b, 'A', 'C'),
                                     expr_either(b, letter(b, 'e'), letter(b, 'f'))});
    const expr *plain =
        expr_either(b, sequence(b, not_d, h, two), sequence(b, letter(b, 'd'), expr_bytes(b, '0', '7'), two));
    const expr *eight_to_b =
        expr_choice(b, 3, (const expr *[]){expr_bytes(b, '8', '9'), letter(b, 'a'), letter(b, 'b')});
    const expr *c_to_f = expr_either(b, expr_bytes(b, 'c', 'f'), expr_bytes(b, 'C', 'F'));
    const expr *high = sequence(b, letter(b, 'd'), eight_to_b, two), *low = sequence(b, letter(b, 'd'), c_to_f, two);
    return expr_either(b, plain, sequence(b, high, expr_str(b, "\\u"), low));
}

static const expr *plain_char(build *b)
{
    char_set s = {0};
    char_set_add(b, &s, 0, 0x1f);
    char_set_add(b, &s, '"', '"');
    char_set_add(b, &s, '\\', '\\');
    char_set_invert(b, &s);
    return expr_chars(b, &s);
}

static const expr *make_char(json_rules *j)
{
    build *b = j->r->b;
    const expr *named = expr_never(b);
    for (const char *c = "\"\\/bfnrt"; *c; c++)
        named = expr_either(b, named, expr_bytes(b, *c, *c));
    const expr *escape = expr_either(b, named, expr_concat(b, expr_str(b, "u"), unicode_escape(b)));
    return expr_either(b, plain_char(b), expr_concat(b, expr_str(b, "\\"), escape));
}

const expr *json_rule_char(json_rules *j)
{
    return rule_of(j, CHARACTER, "a character", make_char);
}

static const expr *make_string(json_rules *j)
{
    build *b = j->r->b;
    return sequence(b, expr_str(b, "\""), expr_repeat(b, make_char(j), 0, REPEAT_ANY), expr_str(b, "\""));
}

const expr *json_rule_string(json_rules *j)
{
    return rule_of(j, STRING, "a string", make_string);
}

/* At most 16 digits, which every parser reads. */
static const expr *make_integer(json_rules *j)
{
    build *b = j->r->b;
    const expr *digits = expr_repeat(b, expr_bytes(b, '0', '9'), 0, 15);
    const expr *whole = expr_either(b, expr_str(b, "0"), expr_concat(b, expr_bytes(b, '1', '9'), digits));
    return expr_concat(b, expr_repeat(b, expr_str(b, "-"), 0, 1), whole);
}

const expr *json_rule_integer(json_rules *j)
{
    return rule_of(j, INTEGER, "an integer", make_integer);
}

static const expr *make_number(json_rules *j)
{
    build *b = j->r->b;
    const expr *digit = expr_bytes(b, '0', '9'), *e = letter(b, 'e');
    const expr *sign = expr_repeat(b, expr_either(b, expr_str(b, "+"), expr_str(b, "-")), 0, 1);
    const expr *fraction = expr_concat(b, expr_str(b, "."), expr_repeat(b, digit, 1, 16));
    const expr *power = sequence(b, e, sign, expr_repeat(b, digit, 1, 2));
    return sequence(b, make_integer(j), expr_repeat(b, fraction, 0, 1), expr_repeat(b, power, 0, 1));
}

const expr *json_rule_number(json_rules *j)
{
    return rule_of(j, NUMBER, "a number", make_number);
}

/* open blank (item (, blank item)* blank)? close */
static const expr *list_of(json_rules *j, const char *open, const expr *item, const char *close)
{
    build *b = j->r->b;
    graph g = graph_new(b);
    int first = graph_node(&g), next = graph_node(&g), end = graph_node(&g);
    graph_edge(&g, 0, first, expr_concat(b, expr_str(b, open), json_rule_blank(j)));
    graph_edge(&g, first, next, item);
    graph_edge(&g, next, first, expr_concat(b, expr_str(b, ","), json_rule_blank(j)));
    graph_edge(&g, next, end, json_rule_blank(j));
    graph_edge(&g, end, 1, expr_str(b, close));
    graph_edge(&g, 0, 1, sequence(b, expr_str(b, open), json_rule_blank(j), expr_str(b, close)));
    return graph_done(&g);
}

static const expr *make_object(json_rules *j)
{
    build *b = j->r->b;
    const expr *colon = expr_concat(b, expr_str(b, ":"), json_rule_blank(j));
    return list_of(j, "{", sequence(b, json_rule_string(j), colon, json_rule_value(j)), "}");
}

const expr *json_rule_object(json_rules *j)
{
    return rule_of(j, OBJECT, "an object", make_object);
}

static const expr *make_array(json_rules *j)
{
    return list_of(j, "[", json_rule_value(j), "]");
}

static const expr *array_rule(json_rules *j)
{
    return rule_of(j, ARRAY, "an array", make_array);
}

static const expr *make_value(json_rules *j)
{
    build *b = j->r->b;
    return expr_choice(b, 7,
                       (const expr *[]){json_rule_object(j), array_rule(j), json_rule_string(j), json_rule_number(j),
                                        expr_str(b, "true"), expr_str(b, "false"), expr_str(b, "null")});
}

const expr *json_rule_value(json_rules *j)
{
    return rule_of(j, VALUE, "a value", make_value);
}

const dfa *json_rule_all_texts(build *b)
{
    return dfa_of(b, expr_repeat(b, expr_any_char(b), 0, REPEAT_ANY));
}

/* Returns the letter of a byte's short escape, behind the backslash; 0: it has none. */
static char short_escape(int byte)
{
    switch (byte) {
    case '"':
    case '\\': return (char)byte;
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

/* Adds an edge that matches the escape of a byte. */
static void spell(graph *g, int from, int to, int byte)
{
    build *b = g->b;
    char text[8] = {'\\', short_escape(byte), 0};
    static const char digit[] = "0123456789abcdef";
    if (!text[1])
        memcpy(text + 1, (char[]){'u', '0', '0', digit[byte >> 4], digit[byte & 15], 0}, 6);
    graph_edge(g, from, to, expr_str(b, text));
}

const expr *json_rule_string_of(json_rules *j, const dfa *values)
{
    build *b = j->r->b;
    graph g = graph_new(b);
    for (int i = 0; i < values->n; i++)
        graph_node(&g);
    graph_edge(&g, 0, 2, expr_str(b, "\""));
    for (int i = 0; i < values->n; i++) {
        for (int k = values->arc_indptr[i]; k < values->arc_indptr[i + 1]; k++) {
            int to = 2 + values->arc[k].to, lo = values->arc[k].lo;
            for (int c = values->arc[k].lo; c <= values->arc[k].hi; c++) {
                if (c >= 0x20 && c != '"' && c != '\\')
                    continue;
                if (c > lo)
                    graph_edge(&g, 2 + i, to, expr_bytes(b, lo, c - 1));
                spell(&g, 2 + i, to, c);
                lo = c + 1;
            }
            if (lo <= values->arc[k].hi)
                graph_edge(&g, 2 + i, to, expr_bytes(b, lo, values->arc[k].hi));
        }
        if (values->accepts[i])
            graph_edge(&g, 2 + i, 1, expr_str(b, "\""));
    }
    return graph_done(&g);
}
