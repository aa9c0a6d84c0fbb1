/* output_parts.c - see output_parts.h
 *
 *   BEGINNING ─▶ REASONING ─▶ BEHIND_REASONING ─▶ CONTENT ◀─▶ CALL
 *
 * Each step function reads on from p->at, and returns whether another step may get further without more text. */
#include "frontend/output_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/call_text.h"

#define THINK "<think>"
#define THOUGHT "</think>"
#define HERMES "<tool_call>"
#define HERMES_END "</tool_call>"
#define MISTRAL "[TOOL_CALLS]"
#define MISTRAL_ARGS "[ARGS]"
#define MISTRAL_ID "[CALL_ID]"
#define LLAMA "<|python_tag|>"

typedef struct {
    const parts_rules *r;
    const char *text;
    size_t n;
    bool whole;
} input;

void output_parts_free(output_parts *p)
{
    for (int i = 0; i < p->n_calls; i++) {
        free(p->call[i].name);
        buf_free(&p->call[i].arguments);
    }
    free(p->call);
    buf_free(&p->reasoning);
    buf_free(&p->content);
    *p = (output_parts){0};
}

const char *const *output_marks(int *n)
{
    static const char *const marks[] = {THINK, THOUGHT, HERMES, HERMES_END, MISTRAL, MISTRAL_ARGS, MISTRAL_ID, LLAMA};
    *n = sizeof marks / sizeof marks[0];
    return marks;
}

static size_t skip_blanks(const input *in, size_t at)
{
    while (at < in->n && isspace((unsigned char)in->text[at]))
        at++;
    return at;
}

static bool begins(const input *in, size_t at, const char *with)
{
    return in->n - at >= strlen(with) && memcmp(in->text + at, with, strlen(with)) == 0;
}

/* Returns whether the text ends at `at` with the beginning of this, which more text may complete. */
static bool may_begin(const input *in, size_t at, const char *with)
{
    return !in->whole && in->n - at < strlen(with) && memcmp(in->text + at, with, in->n - at) == 0;
}

static size_t find_text(const input *in, size_t at, const char *what)
{
    const char *where = in->n > at ? memmem(in->text + at, in->n - at, what, strlen(what)) : NULL;
    return where ? (size_t)(where - in->text) : SIZE_MAX;
}

/* Returns up to where the text cannot be the beginning of the mark. */
static size_t before_mark(const input *in, size_t from, const char *mark)
{
    size_t len = strlen(mark), at = in->n - from >= len ? in->n - len + 1 : from;
    while (at < in->n && !may_begin(in, at, mark))
        at++;
    return at;
}

/* Adds text up to `end`; blanks at its end wait for what comes behind them. */
static void add_text(output_parts *p, buf *part, const input *in, size_t end)
{
    while (end > p->at && isspace((unsigned char)in->text[end - 1]))
        end--;
    buf_add(part, in->text + p->at, end - p->at);
    p->at = end;
}

/* Reasoning. */

static bool read_beginning(output_parts *p, const input *in)
{
    size_t at = skip_blanks(in, 0);
    if (in->r->thinks == THINKS && (at == in->n || may_begin(in, at, THINK)) && !in->whole)
        return false;
    bool thinks = in->r->thinks == THINKS && begins(in, at, THINK);
    p->in = thinks || in->r->thinks == THINKS_ALREADY ? IN_REASONING : IN_CONTENT;
    if (thinks)
        p->at = at + strlen(THINK);
    return true;
}

static bool read_reasoning(output_parts *p, const input *in)
{
    if (p->reasoning.len == 0)
        p->at = skip_blanks(in, p->at);
    if (p->reasoning.len == 0 && begins(in, p->at, THINK)) {
        p->at += strlen(THINK); /* the model writes it again, though the prompt has it */
        return true;
    }
    if (p->reasoning.len == 0 && may_begin(in, p->at, THINK))
        return false;
    size_t end = find_text(in, p->at, THOUGHT);
    add_text(p, &p->reasoning, in, end == SIZE_MAX ? before_mark(in, p->at, THOUGHT) : end);
    if (end == SIZE_MAX)
        return false;
    p->at = end + strlen(THOUGHT);
    p->in = BEHIND_REASONING;
    return true;
}

static bool read_behind(output_parts *p, const input *in)
{
    p->at = skip_blanks(in, p->at);
    if (p->at < in->n)
        p->in = IN_CONTENT;
    return p->at < in->n;
}

/* Content. */

static const char *mark_of(tools_format f)
{
    return f == TOOLS_HERMES ? HERMES : f == TOOLS_MISTRAL ? MISTRAL : f == TOOLS_LLAMA ? LLAMA : NULL;
}

/* Returns the character with which a call without a mark begins; it stands at the beginning of all content. 0: none. */
static char bare_of(tools_format f)
{
    return f == TOOLS_LLAMA ? '{' : f == TOOLS_PYTHONIC || f == TOOLS_REQUIRED ? '[' : 0;
}

/* Emits the rest of the output. Blanks at its end are dropped if there were calls. */
static void emit_rest(output_parts *p, const input *in)
{
    if (p->n_calls == 0)
        buf_add(&p->content, in->text + p->at, in->n - p->at);
    else
        add_text(p, &p->content, in, in->n);
    p->at = in->n;
}

static void enter_call(output_parts *p, size_t at)
{
    p->doubtful = p->at;
    p->at = at;
    p->in = IN_CALL;
    p->goes_on = false;
}

static bool begins_bare(const output_parts *p, const input *in, size_t at)
{
    tools_format f = in->r->tools;
    return !p->any_content && at < in->n && (f == TOOLS_NAMED || (bare_of(f) && bare_of(f) == in->text[at]));
}

static bool read_content(output_parts *p, const input *in)
{
    const char *mark = mark_of(in->r->tools);
    size_t first = skip_blanks(in, p->at), at;
    if (!p->any_content && first == in->n && !in->whole)
        return false;
    if (p->content.len == 0 && p->n_calls)
        p->at = first;
    if (begins_bare(p, in, first)) {
        enter_call(p, first);
        return true;
    }
    at = mark ? find_text(in, p->at, mark) : SIZE_MAX;
    if (at == SIZE_MAX && in->whole) {
        emit_rest(p, in);
        return false;
    }
    size_t end = at != SIZE_MAX ? at : mark ? before_mark(in, p->at, mark) : in->n;
    p->any_content |= end > first;
    add_text(p, &p->content, in, end);
    if (at != SIZE_MAX)
        enter_call(p, at);
    return at != SIZE_MAX;
}

/* Calls. */

/* Emits what has come of a call: a new one, or more of the open one. */
static void emit_call(output_parts *p, const parts_rules *r, const call_text *c, bool complete)
{
    if (c->begun && !p->open && !(r->one_call && p->n_calls)) {
        p->call = xgrow(p->call, &p->calls_cap, (size_t)p->n_calls + 1, sizeof *p->call);
        p->call[p->n_calls++] = (tool_call){.name = xstrndup(c->name.data ? c->name.data : "", c->name.len)};
        buf_add_str(&p->call[p->n_calls - 1].arguments, "");
        p->open = true;
    }
    if (p->open) {
        buf *told = &p->call[p->n_calls - 1].arguments;
        if (c->arguments.len > told->len)
            buf_add(told, c->arguments.data + told->len, c->arguments.len - told->len);
    }
    p->open = p->open && !complete;
}

typedef enum { UNIT_MORE, UNIT_DONE, UNIT_BAD, UNIT_CUT } unit; /* CUT: the output ended in it, and it was not told */

static unit incomplete(const input *in)
{
    return in->whole ? UNIT_CUT : UNIT_MORE;
}

/* Gives up a call that is none: its mark, or its first character, is content, and so may be what follows. One that was
 * cut off behind other calls is dropped. */
static bool give_up(output_parts *p, const input *in, unit why)
{
    const char *mark = mark_of(in->r->tools);
    size_t n = mark && begins(in, p->at, mark) ? strlen(mark) : p->at < in->n;
    size_t behind = why == UNIT_CUT && p->n_calls ? in->n : p->at + n;
    if (why == UNIT_BAD || p->n_calls == 0)
        buf_add(&p->content, in->text + p->doubtful, behind - p->doubtful);
    p->at = behind;
    p->any_content = true;
    p->open = false;
    p->in = IN_CONTENT;
    return true;
}

/* Takes over a call whose text has been read from `from` on. If it is done, p->at stands behind it. */
static unit take_call(output_parts *p, const input *in, size_t from, call_status state, call_text *c)
{
    bool cut = state == CALL_MORE && in->whole && (c->begun || p->open), done = state == CALL_DONE || cut;
    if (state != CALL_BAD)
        emit_call(p, in->r, c, done);
    if (done)
        p->at = p->doubtful = cut ? in->n : from + c->end;
    call_text_free(c);
    return done ? UNIT_DONE : state == CALL_BAD ? UNIT_BAD : incomplete(in);
}

static unit read_object(output_parts *p, const input *in, size_t from)
{
    call_text c = {0};
    call_status state = call_read_object(in->text + from, in->n - from, &c);
    return take_call(p, in, from, state, &c);
}

static unit read_python(output_parts *p, const input *in, size_t from)
{
    call_text c = {0};
    call_status state = call_read_python(in->text + from, in->n - from, &c);
    return take_call(p, in, from, state, &c);
}

static unit read_named(output_parts *p, const input *in, const char *name, size_t n_name, size_t from)
{
    call_text c = {0};
    call_status state = call_read_arguments(in->text + from, in->n - from, &c);
    buf_add(&c.name, name, n_name);
    return take_call(p, in, from, state, &c);
}

/* Reads an element of a list, or its end. */
static unit read_element(output_parts *p, const input *in, unit (*read)(output_parts *, const input *, size_t))
{
    size_t at = skip_blanks(in, p->at);
    if (at == in->n)
        return incomplete(in);
    if (in->text[at] == ']') {
        p->at = at + 1;
        p->goes_on = false;
        return UNIT_DONE;
    }
    return read(p, in, in->text[at] == ',' ? skip_blanks(in, at + 1) : at);
}

static unit read_list(output_parts *p, const input *in, size_t at, unit (*read)(output_parts *, const input *, size_t))
{
    if (!p->goes_on) {
        size_t first = skip_blanks(in, at + 1);
        if (first == in->n)
            return incomplete(in);
        unit u = read(p, in, first);
        p->goes_on = u == UNIT_DONE;
        return u;
    }
    return read_element(p, in, read);
}

static unit read_hermes(output_parts *p, const input *in)
{
    if (!p->goes_on) {
        size_t from = skip_blanks(in, p->at + strlen(HERMES));
        unit u = read_object(p, in, from);
        p->goes_on = u == UNIT_DONE; /* its end tag is to come */
        if (u != UNIT_DONE)
            return u;
    }
    size_t at = skip_blanks(in, p->at);
    if (may_begin(in, at, HERMES_END))
        return UNIT_MORE;
    p->at = begins(in, at, HERMES_END) ? at + strlen(HERMES_END) : p->at;
    p->goes_on = false;
    return UNIT_DONE;
}

/* Reads a list behind the mark, or a name and arguments. */
static unit read_mistral(output_parts *p, const input *in)
{
    if (p->goes_on)
        return read_element(p, in, read_object);
    size_t from = skip_blanks(in, p->at + strlen(MISTRAL));
    if (from == in->n)
        return incomplete(in);
    if (in->text[from] == '[')
        return read_list(p, in, from, read_object);
    size_t args = find_text(in, from, MISTRAL_ARGS), id = find_text(in, from, MISTRAL_ID);
    if (args == SIZE_MAX)
        return incomplete(in);
    return read_named(p, in, in->text + from, (id < args ? id : args) - from, args + strlen(MISTRAL_ARGS));
}

/* Reads one of {...}; {...}, with or without a mark before them. */
static unit read_llama(output_parts *p, const input *in)
{
    if (!p->goes_on) {
        unit u = read_object(p, in, skip_blanks(in, begins(in, p->at, LLAMA) ? p->at + strlen(LLAMA) : p->at));
        p->goes_on = u == UNIT_DONE; /* a semicolon is to come */
        if (u != UNIT_DONE)
            return u;
    }
    size_t at = skip_blanks(in, p->at);
    if (at == in->n && !in->whole)
        return UNIT_MORE;
    p->at = at < in->n && in->text[at] == ';' ? at + 1 : p->at;
    p->goes_on = false;
    return UNIT_DONE;
}

static unit read_call(output_parts *p, const input *in)
{
    const char *name = in->r->tool_name;
    switch (in->r->tools) {
    case TOOLS_HERMES: return read_hermes(p, in);
    case TOOLS_LLAMA: return read_llama(p, in);
    case TOOLS_PYTHONIC: return read_list(p, in, p->at, read_python);
    case TOOLS_MISTRAL: return read_mistral(p, in);
    case TOOLS_REQUIRED: return read_list(p, in, p->at, read_object);
    case TOOLS_NAMED: return read_named(p, in, name, strlen(name), p->at);
    case TOOLS_NONE: break;
    }
    return UNIT_BAD;
}

static bool step_call(output_parts *p, const input *in)
{
    unit u = read_call(p, in);
    if (u == UNIT_BAD || u == UNIT_CUT)
        return give_up(p, in, u);
    if (u == UNIT_DONE && !p->goes_on)
        p->in = IN_CONTENT;
    return u == UNIT_DONE;
}

void output_parts_read(output_parts *p, const parts_rules *r, const char *text, size_t n, bool whole)
{
    const input in = {r, text, n, whole};
    for (bool further = true; further;) {
        switch (p->in) {
        case IN_BEGINNING: further = read_beginning(p, &in); break;
        case IN_REASONING: further = read_reasoning(p, &in); break;
        case BEHIND_REASONING: further = read_behind(p, &in); break;
        case IN_CONTENT: further = read_content(p, &in); break;
        case IN_CALL: further = step_call(p, &in); break;
        }
    }
}
