/* pretokenizer.c - see pretokenizer.h
 *
 * tokenizer.json's pre-tokenizers are made of four primitive steps: split at a pattern, put a
 * prefix in front, replace spaces, map bytes to characters. A piece runs through all steps, depth
 * first, before the next one is cut: the pieces of a long text never exist all at once. */
#include "text/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/byte_level.h"
#include "text/component.h"
#include "text/utf8.h"

#define MAX_PRIMITIVES (3 * COMPONENT_MAX_STEPS)

typedef enum { STEP_SPLIT, STEP_PREFIX, STEP_SPACES, STEP_BYTES } step_kind;
typedef enum { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_CONTIGUOUS, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT } split_mode;
typedef enum { PREFIX_ALWAYS, PREFIX_FIRST, PREFIX_NEVER } prefix_mode;

typedef struct {
    step_kind kind;
    pattern *pattern; /* split: owned */
    split_mode mode;
    bool invert; /* split: what does not match is the delimiter */
    char *text;  /* prefix; what spaces become: owned */
    size_t n;
    prefix_mode prefix;
} step;

struct pretokenizer {
    step steps[MAX_PRIMITIVES];
    int n_steps;
};

/* What each step has rewritten of the piece on its way down. */
struct pretokenizer_scratch { buf text[MAX_PRIMITIVES]; };

/* GPT-2's expression, which ByteLevel splits by. */
static const char byte_level_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char whitespace_regex[] = "[" WORD_CHARS "]+|[^" WORD_CHARS "\\s]+";

static step *add_step(pretokenizer *p, step_kind kind)
{
    CHECK(p->n_steps < MAX_PRIMITIVES);
    step *s = &p->steps[p->n_steps++];
    *s = (step){.kind = kind};
    return s;
}

static void add_text_step(pretokenizer *p, step_kind kind, prefix_mode prefix, const char *text, size_t n)
{
    step *s = add_step(p, kind);
    s->prefix = prefix;
    s->text = xstrndup(text, n);
    s->n = n;
}

/* Takes ownership of the pattern. -1 if it is NULL: then making it failed. */
static int add_split(pretokenizer *p, pattern *pat, split_mode mode, bool invert)
{
    if (!pat)
        return -1;
    step *s = add_step(p, STEP_SPLIT);
    s->pattern = pat;
    s->mode = mode;
    s->invert = invert;
    return 0;
}

static int add_regex(pretokenizer *p, const char *regex, split_mode mode, bool invert, err *e)
{
    return add_split(p, pattern_new_regex(regex, strlen(regex), e), mode, invert);
}

static int read_mode(const json_t *spec, split_mode *mode, err *e)
{
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",          [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_CONTIGUOUS] = "Contiguous",    [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
    };
    const char *name = names[*mode];
    if (json_get_string(spec, "behavior", &name, e))
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *mode = (split_mode)i;
            return 0;
        }
    return err_set(e, "behavior \"%s\" is not supported", name);
}

static int read_split(pretokenizer *p, const json_t *spec, err *e)
{
    split_mode mode = SPLIT_ISOLATED;
    bool invert = false;
    if (component_keys(spec, "type pattern behavior invert", e) || read_mode(spec, &mode, e) ||
        json_get_bool(spec, "invert", &invert, e))
        return -1;
    return add_split(p, pattern_from_json(json_object_get(spec, "pattern"), e), mode, invert);
}

static int read_byte_level(pretokenizer *p, const json_t *spec, err *e)
{
    bool prefix = true, regex = true, trim; /* trim_offsets is about offsets, which we do not compute */
    if (component_keys(spec, "type add_prefix_space trim_offsets use_regex", e) ||
        json_get_bool(spec, "add_prefix_space", &prefix, e) || json_get_bool(spec, "use_regex", &regex, e) ||
        json_get_bool(spec, "trim_offsets", &trim, e))
        return -1;
    if (prefix)
        add_text_step(p, STEP_PREFIX, PREFIX_ALWAYS, " ", 1);
    if (regex && add_regex(p, byte_level_regex, SPLIT_ISOLATED, false, e))
        return -1;
    add_step(p, STEP_BYTES);
    return 0;
}

static int read_prefix_mode(const json_t *spec, prefix_mode *mode, err *e)
{
    const char *name = "always";
    bool add = true;
    if (json_get_string(spec, "prepend_scheme", &name, e) || json_get_bool(spec, "add_prefix_space", &add, e))
        return -1;
    if (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0)
        return err_set(e, "prepend_scheme \"%s\" is not supported", name);
    if (!add && strcmp(name, "never") != 0)
        return err_set(e, "add_prefix_space false does not go with prepend_scheme \"%s\"", name);
    *mode = name[0] == 'a' ? PREFIX_ALWAYS : name[0] == 'f' ? PREFIX_FIRST : PREFIX_NEVER;
    return 0;
}

static int read_metaspace(pretokenizer *p, const json_t *spec, err *e)
{
    const char *mark;
    size_t n;
    prefix_mode mode = PREFIX_ALWAYS;
    bool split = true;
    if (component_keys(spec, "type replacement add_prefix_space prepend_scheme split str_rep", e) ||
        component_text(spec, "replacement", &mark, &n, e) || read_prefix_mode(spec, &mode, e) ||
        json_get_bool(spec, "split", &split, e))
        return -1;
    if (!utf8_is_one_char(mark, n))
        return err_set(e, "\"replacement\" must be one character");
    add_text_step(p, STEP_SPACES, PREFIX_NEVER, mark, n);
    if (mode != PREFIX_NEVER)
        add_text_step(p, STEP_PREFIX, mode, mark, n);
    return split ? add_split(p, pattern_new_literal(mark, n, e), SPLIT_WITH_NEXT, false) : 0;
}

static int read_digits(pretokenizer *p, const json_t *spec, err *e)
{
    bool individual = false;
    if (component_keys(spec, "type individual_digits", e) || json_get_bool(spec, "individual_digits", &individual, e))
        return -1;
    return add_regex(p, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, e);
}

static int read_punctuation(pretokenizer *p, const json_t *spec, err *e)
{
    split_mode mode = SPLIT_ISOLATED;
    if (component_keys(spec, "type behavior", e) || read_mode(spec, &mode, e))
        return -1;
    return add_regex(p, "[\\p{P}$+<=>\\^`|~]", mode, false, e);
}

static int read_step(void *self, const char *type, const json_t *spec, err *e)
{
    pretokenizer *p = self;
    if (strcmp(type, "Split") == 0)
        return read_split(p, spec, e);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(p, spec, e);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(p, spec, e);
    if (strcmp(type, "Digits") == 0)
        return read_digits(p, spec, e);
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(p, spec, e);
    if (strcmp(type, "Whitespace") == 0)
        return component_keys(spec, "type", e) ? -1 : add_regex(p, whitespace_regex, SPLIT_REMOVED, true, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return component_keys(spec, "type", e) ? -1 : add_regex(p, "\\s", SPLIT_REMOVED, false, e);
    return err_set(e, "this type is not supported");
}

pretokenizer *pretokenizer_new(const json_t *spec, err *e)
{
    pretokenizer *p = XNEW(pretokenizer);
    if (component_each(spec, "pre_tokenizer", "pretokenizers", read_step, p, e) == 0)
        return p;
    pretokenizer_free(p);
    return NULL;
}

void pretokenizer_free(pretokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++) {
        pattern_free(p->steps[i].pattern);
        free(p->steps[i].text);
    }
    free(p);
}

bool pretokenizer_keeps_all(const pretokenizer *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        if ((s->kind == STEP_SPLIT && s->mode == SPLIT_REMOVED) || (s->kind == STEP_SPACES && s->n == 0))
            return false;
    }
    return true;
}

bool pretokenizer_makes_bytes(const pretokenizer *p)
{
    return p->n_steps > 0 && p->steps[p->n_steps - 1].kind == STEP_BYTES;
}

pretokenizer_scratch *pretokenizer_scratch_new(void)
{
    return XNEW(pretokenizer_scratch);
}

void pretokenizer_scratch_free(pretokenizer_scratch *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_PRIMITIVES; i++)
        buf_free(&s->text[i]);
    free(s);
}

/* One run: what every step needs. */
typedef struct {
    const pretokenizer *p;
    pretokenizer_scratch *scratch;
    matcher *m;
    pretokenizer_sink sink;
    void *self;
    err *e;
} run;

typedef struct {
    const char *text;
    size_t n;
    bool at_start;
} piece;

static int run_from(const run *r, int i, piece x);

/* A split in progress: spans come in from left to right, match or not, and cover the piece. The
 * last span waits in [start, end) until it is known whether the next one joins it. */
typedef struct {
    const run *r;
    int next; /* the step that gets the pieces */
    piece x;
    split_mode mode;
    size_t start, end;
    bool waiting, is_match;
} splitter;

static int emit(const splitter *s, size_t start, size_t end)
{
    if (start == end)
        return 0;
    return run_from(s->r, s->next, (piece){s->x.text + start, end - start, s->x.at_start && start == 0});
}

static int emit_waiting(splitter *s)
{
    bool waiting = s->waiting;
    s->waiting = false;
    return waiting ? emit(s, s->start, s->end) : 0;
}

/* Returns whether the waiting span and the next one are one piece. */
static bool joins(const splitter *s, bool is_match)
{
    switch (s->mode) {
    case SPLIT_CONTIGUOUS: return s->is_match == is_match;
    case SPLIT_WITH_PREVIOUS: return !s->is_match && is_match;
    case SPLIT_WITH_NEXT: return s->is_match && !is_match;
    default: return false;
    }
}

static int add_span(splitter *s, size_t start, size_t end, bool is_match)
{
    if (s->mode == SPLIT_ISOLATED || (s->mode == SPLIT_REMOVED && !is_match))
        return emit(s, start, end);
    if (s->mode == SPLIT_REMOVED)
        return 0;
    if (s->waiting && joins(s, is_match)) {
        s->end = end;
        s->is_match = is_match;
        /* A run may go on; a pair is complete. */
        return s->mode == SPLIT_CONTIGUOUS ? 0 : emit_waiting(s);
    }
    if (emit_waiting(s))
        return -1;
    s->start = start;
    s->end = end;
    s->is_match = is_match;
    s->waiting = true;
    return 0;
}

static int run_split(const run *r, int i, piece x)
{
    const step *st = &r->p->steps[i];
    splitter s = {.r = r, .next = i + 1, .x = x, .mode = st->mode};
    pattern_scan scan;
    size_t start, end, done = 0;
    int rc;
    pattern_scan_begin(&scan, st->pattern, r->m, x.text, x.n);
    while ((rc = pattern_scan_next(&scan, &start, &end, r->e)) > 0) {
        if (start > done)
            rc = add_span(&s, done, start, st->invert);
        if (rc < 0 || (rc = add_span(&s, start, end, !st->invert)) < 0)
            break;
        done = end;
    }
    pattern_scan_end(&scan);
    if (rc == 0 && done < x.n)
        rc = add_span(&s, done, x.n, st->invert);
    return rc < 0 ? -1 : emit_waiting(&s);
}

static bool starts_with(const piece *x, const step *s)
{
    return x->n >= s->n && memcmp(x->text, s->text, s->n) == 0;
}

/* Puts the step's prefix before the piece, in out, unless the piece begins with it, or the prefix is for the start of
 * the text only and the piece is not there. */
static void add_prefix(const step *s, piece *x, buf *out)
{
    if (starts_with(x, s) || (s->prefix == PREFIX_FIRST && !x->at_start))
        return;
    buf_add(out, s->text, s->n);
    buf_add(out, x->text, x->n);
    x->text = out->data;
    x->n = out->len;
}

static void replace_spaces(const step *s, piece *x, buf *out)
{
    const char *at = x->text, *end = x->text + x->n, *space;
    while ((space = memchr(at, ' ', (size_t)(end - at)))) {
        buf_add(out, at, (size_t)(space - at));
        buf_add(out, s->text, s->n);
        at = space + 1;
    }
    if (at == x->text)
        return;
    buf_add(out, at, (size_t)(end - at));
    x->text = out->data;
    x->n = out->len;
}

/* Sends a piece through the steps from i on. */
static int run_from(const run *r, int i, piece x)
{
    for (; i < r->p->n_steps; i++) {
        const step *s = &r->p->steps[i];
        buf *out = &r->scratch->text[i];
        if (s->kind == STEP_SPLIT)
            return run_split(r, i, x);
        buf_clear(out);
        if (s->kind == STEP_PREFIX) {
            add_prefix(s, &x, out);
        } else if (s->kind == STEP_SPACES) {
            replace_spaces(s, &x, out);
        } else {
            byte_level_encode(x.text, x.n, out);
            x.text = out->data;
            x.n = out->len;
        }
    }
    return r->sink(r->self, x.text, x.n, r->e);
}

int pretokenizer_run(const pretokenizer *p, pretokenizer_scratch *s, matcher *m, const char *text, size_t n,
                     bool at_start, pretokenizer_sink sink, void *self, err *e)
{
    run r = {.p = p, .scratch = s, .m = m, .sink = sink, .self = self, .e = e};
    return run_from(&r, 0, (piece){text, n, at_start});
}
