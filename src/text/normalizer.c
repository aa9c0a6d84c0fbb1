/* normalizer.c - see normalizer.h */
#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/component.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define MAX_NORMALIZED ((size_t)256 << 20)

typedef enum { STEP_FORM, STEP_LOWERCASE, STEP_STRIP, STEP_STRIP_ACCENTS, STEP_PREPEND, STEP_REPLACE } step_kind;

typedef struct {
    step_kind kind;
    unicode_form form;
    bool left, right; /* strip */
    pattern *pattern; /* replace: owned */
    char *text;       /* prepend, replace: owned */
    size_t n;
} step;

struct normalizer {
    step steps[COMPONENT_MAX_STEPS];
    int n_steps;
};

/* One text on its way through the steps. */
typedef struct {
    matcher *m;
    size_t limit; /* bytes the text may grow to: no tokenizer.json may turn a word into gigabytes */
    bool head_lost;
    err *e;
} pass;

static int read_strip(step *s, const json_t *spec, err *e)
{
    s->kind = STEP_STRIP;
    s->left = s->right = true;
    if (component_keys(spec, "type strip_left strip_right", e) || json_get_bool(spec, "strip_left", &s->left, e) ||
        json_get_bool(spec, "strip_right", &s->right, e))
        return -1;
    return 0;
}

static int read_text(step *s, const json_t *spec, const char *key, err *e)
{
    const char *text;
    if (component_text(spec, key, &text, &s->n, e))
        return -1;
    s->text = xstrndup(text, s->n);
    return 0;
}

static int read_replace(step *s, const json_t *spec, err *e)
{
    s->kind = STEP_REPLACE;
    if (component_keys(spec, "type pattern content", e) || read_text(s, spec, "content", e))
        return -1;
    s->pattern = pattern_from_json(json_object_get(spec, "pattern"), e);
    return s->pattern ? 0 : -1;
}

static int add_step(void *self, const char *type, const json_t *spec, err *e)
{
    static const struct {
        const char *type;
        step_kind kind;
        unicode_form form;
    } plain[] = {
        {"NFC", STEP_FORM, FORM_NFC},   {"NFD", STEP_FORM, FORM_NFD},     {"NFKC", STEP_FORM, FORM_NFKC},
        {"NFKD", STEP_FORM, FORM_NFKD}, {"Lowercase", STEP_LOWERCASE, 0}, {"StripAccents", STEP_STRIP_ACCENTS, 0},
    };
    normalizer *z = self;
    step *s = &z->steps[z->n_steps++];
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(type, plain[i].type) == 0) {
            *s = (step){.kind = plain[i].kind, .form = plain[i].form};
            return component_keys(spec, "type", e);
        }
    if (strcmp(type, "Strip") == 0)
        return read_strip(s, spec, e);
    if (strcmp(type, "Replace") == 0)
        return read_replace(s, spec, e);
    if (strcmp(type, "Prepend") == 0) {
        s->kind = STEP_PREPEND;
        return component_keys(spec, "type prepend", e) ? -1 : read_text(s, spec, "prepend", e);
    }
    return err_set(e, "this type is not supported");
}

normalizer *normalizer_new(const json_t *spec, err *e)
{
    normalizer *z = XNEW(normalizer);
    if (component_each(spec, "normalizer", "normalizers", add_step, z, e) == 0)
        return z;
    normalizer_free(z);
    return NULL;
}

void normalizer_free(normalizer *z)
{
    if (!z)
        return;
    for (int i = 0; i < z->n_steps; i++) {
        pattern_free(z->steps[i].pattern);
        free(z->steps[i].text);
    }
    free(z);
}

/* Returns how many bytes this step can turn into one at most; 0: no bound. NFC composes three Hangul letters of three
 * bytes each to a syllable of three bytes; the compatibility forms also turn a letter of four bytes into one of one.
 * Lower case turns the Kelvin sign, of three bytes, into a k. */
static size_t step_shrink(const step *s)
{
    switch (s->kind) {
    case STEP_FORM: return s->form == FORM_NFKC || s->form == FORM_NFKD ? 12 : 3;
    case STEP_LOWERCASE: return 3;
    case STEP_PREPEND: return 1;
    case STEP_REPLACE: return s->n ? pattern_literal_length(s->pattern) : 0;
    case STEP_STRIP:
    case STEP_STRIP_ACCENTS: break;
    }
    return 0;
}

size_t normalizer_most_shrink(const normalizer *z)
{
    size_t all = 1;
    for (int i = 0; i < z->n_steps; i++)
        all = all > 1u << 20 ? 0 : all * step_shrink(&z->steps[i]);
    return all;
}

bool normalizer_is_empty(const normalizer *z)
{
    return z->n_steps == 0;
}

bool normalizer_inserts(const normalizer *z, const char *text, size_t n)
{
    for (int i = 0; i < z->n_steps; i++)
        if (z->steps[i].n > 0 && memmem(z->steps[i].text, z->steps[i].n, text, n))
            return true;
    return false;
}

/* The text without white space at the ends that are to be stripped. */
static void strip(const step *s, pass *p, const char *text, size_t n, buf *out)
{
    const char *start = text, *end = text + n;
    while (s->left && start < end) {
        const char *next = start;
        if (!unicode_is_space(utf8_next(&next)))
            break;
        start = next;
    }
    while (s->right && end > start) {
        const char *last = utf8_back(end), *at = last;
        if (!unicode_is_space(utf8_next(&at)))
            break;
        end = last;
    }
    p->head_lost |= start > text;
    buf_add(out, start, (size_t)(end - start));
}

static void strip_accents(pass *p, const char *text, size_t n, buf *out)
{
    for (const char *at = text; at < text + n;) {
        const char *start = at;
        if (!unicode_is_mark(utf8_next(&at)))
            buf_add(out, start, (size_t)(at - start));
        else if (start == text)
            p->head_lost = true;
    }
}

static int check_growth(const pass *p, const buf *out)
{
    return out->len <= p->limit ? 0 : err_set(p->e, "the normalised text is larger than %zu bytes", p->limit);
}

static int replace(const step *s, pass *p, const char *text, size_t n, buf *out)
{
    pattern_scan scan;
    size_t start, end, done = 0;
    int rc;
    pattern_scan_begin(&scan, s->pattern, p->m, text, n);
    while ((rc = pattern_scan_next(&scan, &start, &end, p->e)) > 0) {
        /* What replaces several characters counts as standing where the last of them stood. */
        p->head_lost |= start == 0 && end > 0 && (s->n == 0 || !utf8_is_one_char(text, end));
        buf_add(out, text + done, start - done);
        buf_add(out, s->text, s->n);
        done = end;
        if ((rc = check_growth(p, out)))
            break;
    }
    pattern_scan_end(&scan);
    buf_add(out, text + done, n - done);
    return rc;
}

static int apply_step(const step *s, pass *p, const char *text, size_t n, buf *out)
{
    switch (s->kind) {
    case STEP_FORM: unicode_normalize(s->form, text, n, out); return 0;
    case STEP_LOWERCASE: unicode_lowercase(text, n, out); return 0;
    case STEP_STRIP: strip(s, p, text, n, out); return 0;
    case STEP_STRIP_ACCENTS: strip_accents(p, text, n, out); return 0;
    case STEP_PREPEND:
        if (n > 0)
            buf_add(out, s->text, s->n);
        buf_add(out, text, n);
        return 0;
    case STEP_REPLACE: return replace(s, p, text, n, out);
    }
    return 0;
}

int normalizer_apply(const normalizer *z, matcher *m, const char *text, size_t n, buf *out, bool *head_lost, err *e)
{
    buf in = {0};
    int rc = 0;
    pass p = {.m = m, .limit = MAX_NORMALIZED, .e = e};
    if (n < MAX_NORMALIZED / 32)
        p.limit = MAX_NORMALIZED / 32 + 16 * n;
    buf_clear(out);
    buf_add(out, text, n);
    for (int i = 0; i < z->n_steps && rc == 0; i++) {
        buf swap = in;
        in = *out;
        *out = swap;
        buf_clear(out);
        buf_add(out, "", 0);
        rc = apply_step(&z->steps[i], &p, in.data, in.len, out);
        if (rc == 0)
            rc = check_growth(&p, out);
    }
    buf_free(&in);
    *head_lost = p.head_lost;
    return rc;
}
