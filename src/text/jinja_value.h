/* jinja_value.h - the values of a template, and the run they live in
 *
 * Values are Python's, and immutable as in Jinja's immutable sandbox; only namespaces, loops, iterators, cyclers and
 * joiners change. All lie in the run's arena or in the program, or borrow from the JSON of the variables.
 *
 * Whatever fails calls jinja_run_fail(), which does not return: it leaves by longjmp to jinja_compile() or
 * jinja_render(), which free the arena. So nothing here owns memory, files or locks outside of the arena. */
#ifndef PUNICA_TEXT_JINJA_VALUE_H
#define PUNICA_TEXT_JINJA_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "text/spans.h"

typedef struct jinja_run jinja_run;

typedef enum {
    VALUE_MISSING, /* an argument that was not given, a name that was not set: no template sees it */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_KEYS,
    VALUE_VALUES,
    VALUE_ITEMS, /* the last three: a dict's views */
    VALUE_DICT,
    VALUE_RANGE,
    VALUE_ITERATOR,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_CYCLER,
} value_kind;

#define UNCOUNTED SIZE_MAX

/* Which bytes of a text are the template's own (jinja_own.h). */
typedef struct {
    text_span *at;
    size_t n, cap, len;
} own_list; /* len: bytes of the text */

/* Text: valid UTF-8. */
typedef struct {
    const char *s; /* [n] not NUL-terminated */
    size_t n;
    size_t n_chars;        /* code points, or UNCOUNTED */
    struct str_room *room; /* see str_concat(); NULL: none */
    const own_list *own;   /* NULL: nothing of it is the template's own */
    size_t own_at;         /* offset of this string in the text that `own` describes */
    bool markup;           /* Markup: what is added to it gets escaped */
} str;

typedef struct jinja_list jinja_list;
typedef struct dict dict;
typedef struct iter iter;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct function function;
typedef struct cycler cycler;
typedef struct undefined undefined;
typedef struct { int64_t start, stop, step; } jinja_range;

typedef struct {
    value_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const str *s;
        const jinja_list *list; /* LIST, TUPLE, KEYS, VALUES, ITEMS */
        dict *dict;             /* DICT, NAMESPACE */
        const jinja_range *range;
        iter *iter;
        jinja_loop *loop;
        const jinja_macro *macro;
        function *function;
        cycler *cycler;
        const undefined *undefined; /* may be NULL */
    };
} value;

struct jinja_list {
    const value *at;
    size_t n;
    bool is_group;
}; /* is_group: a tuple of groupby, whose items also have the names "grouper" and "list" */

/* Why a value is undefined: the error message when it is used. */
struct undefined {
    const char *hint; /* the whole message; NULL: made of the others */
    value of, name;   /* of: whose attribute or element; MISSING: it is a variable */
};

/* In order of insertion. */
struct dict {
    struct { value key, value; } *at; /* [n] */
    size_t n, cap;
    int32_t *index; /* [index_size] into at, by hash; -1: free. NULL: look through all */
    size_t index_size;
};

/* An iterator, for for loops and filters. next: gets the next item; false at the end. */
struct iter {
    bool (*next)(jinja_run *r, iter *it, value *out);
    value over; /* what is iterated over; unused if the iterator has a state */
    size_t at;
    const char *type;   /* Python's name of the iterator's type */
    struct iter *inner; /* where a generator takes its items from */
    void *state;
};

/* Arguments of a call. */
typedef struct {
    const str *name;
    value value;
} keyword;
typedef struct {
    const value *at;
    int n;
    const keyword *keyword;
    int n_keywords;
} jinja_arguments;

typedef value function_body(jinja_run *r, function *f, const jinja_arguments *a);
struct function {
    const char *name;
    function_body *call;
    value self;
    int n_calls;
};

struct cycler {
    jinja_list items;
    size_t at;
};

/* The run. */

#define JINJA_MAX_DEPTH 1000 /* of nested evaluation: a frame each on the C stack */

struct jinja_run {
    arena mem;
    jmp_buf on_failure; /* where jinja_run_fail() jumps */
    err *e;
    long steps; /* left */
    int depth;
    int line;                    /* of the node being evaluated */
    const struct jinja_node *at; /* that node; NULL while compiling */
    size_t max_output;
    time_t now;
    struct render *render; /* jinja_eval.c; NULL while compiling */
};

/* Ends the run: "line 12: WHAT: message". */
_Noreturn void jinja_run_fail(jinja_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void jinja_run_raise(jinja_run *r, const str *message); /* for raise_exception, with the template's message */

void *jinja_run_alloc(jinja_run *r, size_t n); /* never NULL */
void *jinja_run_alloc_array(jinja_run *r, size_t n, size_t size);

/* Returns a copy with twice the room of *cap, or of `first` items if that is 0, and sets *cap. */
void *jinja_run_double(jinja_run *r, const void *items, size_t n, size_t *cap, size_t first, size_t size);

/* Returns an array with room for one more item than its n: `items` itself, or a copy of it. */
static inline void *jinja_run_grow(jinja_run *r, const void *items, size_t n, size_t *cap, size_t first, size_t size)
{
    return n < *cap ? (void *)items : jinja_run_double(r, items, n, cap, first, size);
}

void jinja_run_spend(jinja_run *r, size_t steps); /* fails when fewer are left */
void jinja_run_enter(jinja_run *r);               /* one level deeper; fails at JINJA_MAX_DEPTH */
void jinja_run_leave(jinja_run *r);

#define JINJA_NEW(r, type) ((type *)jinja_run_alloc((r), sizeof(type)))
#define JINJA_NEW_ARRAY(r, type, n) ((type *)jinja_run_alloc_array((r), (n), sizeof(type)))

/* Making values. */

static inline value value_none(void)
{
    return (value){.kind = VALUE_NONE};
}
static inline value value_missing(void)
{
    return (value){.kind = VALUE_MISSING};
}
static inline value value_bool(bool b)
{
    return (value){.kind = VALUE_BOOL, .b = b};
}
static inline value value_int(int64_t i)
{
    return (value){.kind = VALUE_INT, .i = i};
}
static inline value value_float(double f)
{
    return (value){.kind = VALUE_FLOAT, .f = f};
}
static inline value value_str(const str *s)
{
    return (value){.kind = VALUE_STRING, .s = s};
}

value value_text(jinja_run *r, const char *s, size_t n);                    /* borrows s */
value value_list(jinja_run *r, value_kind kind, const value *at, size_t n); /* borrows at */
value value_pair(jinja_run *r, value a, value b);                           /* a tuple */
value value_function(jinja_run *r, const char *name, function_body *call, value self);
value value_iterator(jinja_run *r, const char *type, bool (*next)(jinja_run *, iter *, value *), iter *inner,
                     void *state);
value value_iterate_list(jinja_run *r, const char *type, value list); /* an iterator over it */

value value_undefined(jinja_run *r, const char *hint);
value value_undefined_of(jinja_run *r, value of, value name);

/* Questions about values. */

const char *value_type(value v); /* Python's name: "str" */
bool value_is_true(jinja_run *r, value v);
bool value_equal(jinja_run *r, value a, value b);

typedef enum { ORDER_LESS = -1, ORDER_EQUAL, ORDER_GREATER, ORDER_NONE } value_order; /* ORDER_NONE: one is NaN */
/* Compares by < and >; fails where Python does. op: for the message. */
value_order value_compare(jinja_run *r, value a, value b, const char *op);

bool value_is_same(value a, value b); /* Python's `is`, but equal numbers or strings are the same */
bool value_contains(jinja_run *r, value in, value what);
int64_t value_length(jinja_run *r, value v); /* len(); fails for what has none */
bool value_has_length(value v);

static inline bool value_is_number(value v)
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT || v.kind == VALUE_FLOAT;
}
/* Returns whether v is an int to Python, of which bool is a subclass. */
static inline bool value_is_int(value v)
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}
static inline bool value_is_sequence(value v)
{
    return v.kind == VALUE_LIST || v.kind == VALUE_TUPLE;
}
static inline int64_t value_to_int(value v)
{
    return v.kind == VALUE_BOOL ? v.b : v.i;
}
static inline double value_number(value v)
{
    return v.kind == VALUE_FLOAT ? v.f : (double)value_to_int(v);
}

/* Fails with the reason why v is undefined. */
_Noreturn void value_fail_undefined(jinja_run *r, value v);

/* Text of values. */

typedef struct {
    jinja_run *r;
    char *data;
    size_t n, cap;
    own_list own;
} text; /* a growing string in the arena */

void text_add(text *t, const char *s, size_t n); /* bytes that are not the template's own */
void text_add_str(text *t, const str *s);
void text_add_part(text *t, const str *s, size_t at, size_t n); /* n bytes of s */
void text_add_cstr(text *t, const char *s);
void text_add_char(text *t, uint32_t cp);
void text_printf(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
value text_value(text *t); /* moves the text into a string; t is empty then */

void value_write(text *t, value v);             /* str() */
void value_write_repr(text *t, value v);        /* repr() */
const str *value_to_str(jinja_run *r, value v); /* str(); a string is itself, Markup too */

/* Dicts and iteration. */

dict *dict_new(jinja_run *r, size_t cap);
void dict_put(jinja_run *r, dict *d, value key, value v);          /* fails for an unhashable key */
void dict_add(jinja_run *r, dict *d, value key, value v);          /* for a key that is known to be new */
bool dict_get(jinja_run *r, const dict *d, value key, value *out); /* fails for an unhashable key too */
bool dict_get_name(jinja_run *r, const dict *d, const char *key, value *out);
value dict_unhashable_part(jinja_run *r, value key); /* the part of key that is unhashable; MISSING: none is */
void dict_check_key(jinja_run *r, value key);        /* fails for an unhashable key */
value value_dict(const dict *d);
value dict_view(jinja_run *r, const dict *d, value_kind kind); /* KEYS, VALUES, ITEMS, or LIST: of its keys */

iter *value_iter(jinja_run *r, value v); /* fails for what cannot be iterated */
bool value_is_iterable(value v);
bool iter_next(jinja_run *r, iter *it, value *out);
const jinja_list *value_to_list(jinja_run *r, value v); /* its items; of an iterator those that are left */

int64_t jinja_range_length(const jinja_range *x);
int64_t jinja_range_item(const jinja_range *x, int64_t i); /* i: 0 to length - 1 */

value value_from_json(jinja_run *r, const json_t *v); /* borrows its strings */

/* Numbers. */

bool value_float_fits(double x);           /* into 64 bits, when truncated to an integer; false for NaN */
size_t float_repr(double x, char out[32]); /* writes repr(x), NUL-terminated; its length */

#endif
