/* decoder.c - see decoder.h */
#include "text/decoder.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/pattern.h"

#define MAX_GROWTH 4096 /* how many times longer Replace steps may make a token */

typedef enum { STEP_REPLACE, STEP_METASPACE, STEP_BYTE_FALLBACK, STEP_STRIP, STEP_FUSE, STEP_BYTE_LEVEL } step_kind;

typedef struct {
    step_kind kind;
    pattern *pattern; /* Replace: owned */
    char *text;       /* what Replace puts in, the mark of Metaspace, what Strip cuts: owned */
    size_t n;
    bool prepended;     /* Metaspace: encoding put a mark before the first token */
    size_t start, stop; /* Strip: how many characters at most */
} step;

struct decoder {
    step steps[COMPONENT_MAX_STEPS];
    int n_steps;
    bool fused;    /* there is a Fuse or ByteLevel; the steps behind it see one text, not tokens */
    bool spaces;   /* tokenizer.json has no decoder: tokens are joined with spaces */
    size_t growth; /* how many times longer all Replace steps together may make a token */
};

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

static int read_text(step *s, const json_t *spec, const char *key, bool one_char, err *e)
{
    const char *text;
    if (component_text(spec, key, &text, &s->n, e))
        return -1;
    if (one_char && !utf8_is_one_char(text, s->n))
        return err_set(e, "\"%s\" must be one character", key);
    s->text = xstrndup(text, s->n);
    return 0;
}

static int read_replace(decoder *d, step *s, const json_t *spec, err *e)
{
    s->kind = STEP_REPLACE;
    if (component_keys(spec, "type pattern content", e) || read_text(s, spec, "content", false, e))
        return -1;
    d->growth *= s->n + 1;
    if (s->n > MAX_GROWTH || d->growth > MAX_GROWTH)
        return err_set(e, "it makes tokens more than %d times longer", MAX_GROWTH);
    s->pattern = pattern_from_json(json_object_get(spec, "pattern"), e);
    return s->pattern ? 0 : -1;
}

static int read_metaspace(step *s, const json_t *spec, err *e)
{
    const char *scheme = "always";
    bool add = true, split; /* split is the pre-tokenizer's business */
    s->kind = STEP_METASPACE;
    if (component_keys(spec, "type replacement add_prefix_space prepend_scheme split str_rep", e) ||
        read_text(s, spec, "replacement", true, e) || json_get_string(spec, "prepend_scheme", &scheme, e) ||
        json_get_bool(spec, "add_prefix_space", &add, e) || json_get_bool(spec, "split", &split, e))
        return -1;
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
        return err_set(e, "prepend_scheme \"%s\" is not supported", scheme);
    if (!add && strcmp(scheme, "never") != 0)
        return err_set(e, "add_prefix_space false does not go with prepend_scheme \"%s\"", scheme);
    s->prepended = strcmp(scheme, "never") != 0;
    return 0;
}

static int read_strip(step *s, const json_t *spec, err *e)
{
    long start = 0, stop = 0;
    s->kind = STEP_STRIP;
    if (component_keys(spec, "type content start stop", e) || read_text(s, spec, "content", true, e) ||
        json_get_int(spec, "start", 0, 1 << 30, &start, e) || json_get_int(spec, "stop", 0, 1 << 30, &stop, e))
        return -1;
    s->start = (size_t)start;
    s->stop = (size_t)stop;
    return 0;
}

static int read_step(decoder *d, step *s, const char *type, const json_t *spec, err *e)
{
    if (strcmp(type, "Strip") == 0)
        return read_strip(s, spec, e);
    if (strcmp(type, "Fuse") == 0) {
        s->kind = STEP_FUSE;
        d->fused = true;
        return component_keys(spec, "type", e);
    }
    if (d->fused)
        return err_set(e, "it cannot follow Fuse or ByteLevel");
    if (strcmp(type, "Replace") == 0)
        return read_replace(d, s, spec, e);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(s, spec, e);
    if (strcmp(type, "ByteLevel") == 0) {
        s->kind = STEP_BYTE_LEVEL;
        d->fused = true;
        return component_keys(spec, "type add_prefix_space trim_offsets use_regex", e);
    }
    if (strcmp(type, "ByteFallback") == 0) {
        s->kind = STEP_BYTE_FALLBACK;
        for (int i = 0; i < d->n_steps; i++)
            if (d->steps[i].kind == STEP_BYTE_FALLBACK)
                return err_set(e, "there can be only one");
        return component_keys(spec, "type", e);
    }
    return err_set(e, "this type is not supported");
}

static int add_step(void *self, const char *type, const json_t *spec, err *e)
{
    decoder *d = self;
    step s = {0};
    int rc = read_step(d, &s, type, spec, e);
    d->steps[d->n_steps++] = s;
    return rc;
}

decoder *decoder_new(const json_t *spec, err *e)
{
    decoder *d = XNEW(decoder);
    d->growth = 1;
    d->spaces = !spec || json_is_null(spec);
    if (component_each(spec, "decoder", "decoders", add_step, d, e) == 0)
        return d;
    decoder_free(d);
    return NULL;
}

void decoder_free(decoder *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n_steps; i++) {
        pattern_free(d->steps[i].pattern);
        free(d->steps[i].text);
    }
    free(d);
}

/* One token, or a stretch of the fused text, on its way out. */
typedef struct {
    const char *text;
    size_t n;
} span;

static bool starts_with(span x, const step *s)
{
    return x.n >= s->n && memcmp(x.text, s->text, s->n) == 0;
}

/* Replaces all matches. A token on which the pattern fails stays as it is. */
static span replace(const step *s, span x, buf *out)
{
    pattern_scan scan;
    size_t start, end, done = 0;
    err ignored;
    int rc;
    matcher *m = pattern_is_literal(s->pattern) ? NULL : matcher_new(x.n);
    buf_clear(out);
    pattern_scan_begin(&scan, s->pattern, m, x.text, x.n);
    while ((rc = pattern_scan_next(&scan, &start, &end, &ignored)) > 0) {
        buf_add(out, x.text + done, start - done);
        buf_add(out, s->text, s->n);
        done = end;
    }
    pattern_scan_end(&scan);
    matcher_free(m);
    buf_add(out, x.text + done, x.n - done);
    return rc < 0 ? x : (span){out->data, out->len};
}

/* Turns Metaspace marks into spaces. Those of the first token are dropped if encoding puts one before the text. */
static span metaspace(const step *s, bool first, span x, buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < x.n;) {
        span rest = {x.text + i, x.n - i};
        if (!starts_with(rest, s)) {
            buf_add_char(out, x.text[i++]);
            continue;
        }
        if (!first || !s->prepended)
            buf_add_char(out, ' ');
        i += s->n;
    }
    return (span){out->data ? out->data : "", out->len};
}

static span strip_token(const step *s, span x)
{
    for (size_t i = 0; i < s->start && starts_with(x, s); i++)
        x = (span){x.text + s->n, x.n - s->n};
    for (size_t i = 0; i < s->stop && x.n >= s->n && memcmp(x.text + x.n - s->n, s->text, s->n) == 0; i++)
        x.n -= s->n;
    return x;
}

/* Strips a text that comes in stretches: cut[] characters are gone from its start, and held[] may
 * have to go from its end. */
static span strip_stretch(const step *s, decoder_state *st, int i, span x, buf *out)
{
    while (!st->started[i] && x.n > 0) {
        st->started[i] = st->cut[i] == s->start || !starts_with(x, s);
        if (st->started[i])
            break;
        st->cut[i]++;
        x = (span){x.text + s->n, x.n - s->n};
    }
    if (s->stop == 0)
        return x;
    span body = x;
    size_t trailing = 0;
    while (trailing < s->stop && body.n >= s->n && memcmp(body.text + body.n - s->n, s->text, s->n) == 0) {
        body.n -= s->n;
        trailing++;
    }
    /* Held characters that can no longer be among the last `stop` come out. */
    size_t keep = body.n > 0 ? 0 : st->held[i] + trailing > s->stop ? s->stop - trailing : st->held[i];
    buf_clear(out);
    for (; st->held[i] > keep; st->held[i]--)
        buf_add(out, s->text, s->n);
    buf_add(out, body.text, body.n);
    st->held[i] += trailing;
    return (span){out->data, out->len};
}

static void feed_stretch(const decoder *d, decoder_state *s, int i, span x, buf *out)
{
    for (; i < d->n_steps; i++)
        if (d->steps[i].kind == STEP_STRIP)
            x = strip_stretch(&d->steps[i], s, i, x, &s->scratch[i]);
    buf_add(out, x.text, x.n);
}

static void feed_token(const decoder *d, decoder_state *s, int i, span x, buf *out);

/* Ends a run of byte tokens: it is text if it is valid UTF-8 as a whole, else each byte is U+FFFD. */
static void end_run(const decoder *d, decoder_state *s, int i, buf *out)
{
    buf run = s->run;
    if (run.len == 0)
        return;
    s->run = (buf){0};
    if (utf8_is_valid(run.data, run.len))
        feed_token(d, s, i + 1, (span){run.data, run.len}, out);
    else
        for (size_t k = 0; k < run.len; k++)
            feed_token(d, s, i + 1, (span){replacement, 3}, out);
    buf_free(&run);
}

static void feed_byte_level(const decoder *d, decoder_state *s, int i, span x, buf *out)
{
    buf repaired = {0};
    buf *bytes = &s->scratch[i];
    buf_clear(bytes);
    byte_level_decode(x.text, x.n, bytes);
    if (i + 1 == d->n_steps) {
        utf8_repair(&s->tail, bytes->data, bytes->len, out);
        return;
    }
    utf8_repair(&s->tail, bytes->data, bytes->len, &repaired);
    feed_stretch(d, s, i + 1, (span){repaired.data, repaired.len}, out);
    buf_free(&repaired);
}

/* Sends a token through the steps from i on. */
static void feed_token(const decoder *d, decoder_state *s, int i, span x, buf *out)
{
    for (; i < d->n_steps; i++) {
        const step *st = &d->steps[i];
        bool first = !s->started[i];
        switch (st->kind) {
        case STEP_REPLACE: x = replace(st, x, &s->scratch[i]); break;
        case STEP_METASPACE:
            s->started[i] = true;
            x = metaspace(st, first, x, &s->scratch[i]);
            break;
        case STEP_STRIP: x = strip_token(st, x); break;
        case STEP_BYTE_FALLBACK: {
            int byte = decoder_byte_of_token(x.text, x.n);
            if (byte >= 0) {
                buf_add_char(&s->run, (char)byte);
                return;
            }
            end_run(d, s, i, out);
            break;
        }
        case STEP_FUSE: feed_stretch(d, s, i + 1, x, out); return;
        case STEP_BYTE_LEVEL: feed_byte_level(d, s, i, x, out); return;
        }
    }
    buf_add(out, x.text, x.n);
}

void decoder_feed(const decoder *d, decoder_state *s, const char *token, size_t n, buf *out)
{
    if (d->spaces && s->any)
        buf_add_char(out, ' ');
    s->any = true;
    feed_token(d, s, 0, (span){token, n}, out);
}

void decoder_finish(const decoder *d, decoder_state *s, buf *out)
{
    for (int i = 0; i < d->n_steps; i++) {
        if (d->steps[i].kind == STEP_BYTE_FALLBACK)
            end_run(d, s, i, out);
        if (d->steps[i].kind == STEP_BYTE_LEVEL) {
            buf rest = {0};
            utf8_repair_end(&s->tail, &rest);
            feed_stretch(d, s, i + 1, (span){rest.data, rest.len}, out);
            buf_free(&rest);
        }
    }
}

void decoder_state_deinit(decoder_state *s)
{
    buf_free(&s->run);
    for (int i = 0; i < COMPONENT_MAX_STEPS; i++)
        buf_free(&s->scratch[i]);
    *s = (decoder_state){0};
}

int decoder_byte_of_token(const char *token, size_t n)
{
    if (n != strlen("<0xNN>") || memcmp(token, "<0x", 3) != 0 || token[5] != '>' ||
        !isxdigit((unsigned char)token[3]) || !isxdigit((unsigned char)token[4]))
        return -1;
    return (int)strtol((char[]){token[3], token[4], 0}, NULL, 16);
}
