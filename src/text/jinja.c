/* jinja.c - see jinja.h */
#include "text/jinja.h"

#include <stdlib.h>

#include "base/mem.h"
#include "text/jinja_eval.h"
#include "text/jinja_lex.h"
#include "text/jinja_parse.h"
#include "text/jinja_scope.h"
#include "text/utf8.h"

#define MAX_SOURCE (4u << 20)    /* bytes of a template */
#define MAX_PROGRAM (256u << 20) /* bytes of its tree */
#define COMPILE_STEPS 100000000

const jinja_limits jinja_default_limits = {.steps = 1000000, .memory = 64u << 20, .output = 32u << 20};

jinja *jinja_compile(const char *source, size_t n, err *e)
{
    if (n > MAX_SOURCE || !utf8_is_valid(source, n)) {
        err_set(e, n > MAX_SOURCE ? "it has more than 4 MB" : "it is not UTF-8");
        return NULL;
    }
    jinja *p = XNEW(jinja);
    jinja_run *r = XNEW(jinja_run); /* on the heap: longjmp leaves changed locals indeterminate */
    *r = (jinja_run){.mem = {.limit = MAX_PROGRAM}, .e = e, .steps = COMPILE_STEPS, .line = 1};
    if (setjmp(r->on_failure)) {
        arena_free(&r->mem);
        free(r);
        free(p);
        return NULL;
    }
    const token *tokens = jinja_lex(r, source, n);
    jinja_parse(r, tokens, p);
    jinja_scope(r, p);
    p->mem = r->mem;
    free(r);
    return p;
}

void jinja_free(jinja *p)
{
    if (!p)
        return;
    arena_free(&p->mem);
    free(p);
}

int jinja_render(const jinja *p, const jinja_input *in, const jinja_limits *limits, buf *out, text_spans *own, err *e)
{
    jinja_run *r = XNEW(jinja_run);
    *r = (jinja_run){.mem = {.limit = limits->memory},
                     .e = e,
                     .steps = limits->steps,
                     .line = 1,
                     .max_output = limits->output,
                     .now = in->now};
    int rc = -1;
    if (setjmp(r->on_failure) == 0) {
        text made = {.r = r};
        eval_program(r, p, in->variables, in->own, &made);
        buf_add(out, made.data, made.n);
        for (size_t i = 0; own && i < made.own.n; i++)
            text_spans_add(own, made.own.at[i].from, made.own.at[i].to);
        rc = 0;
    }
    arena_free(&r->mem);
    free(r);
    return rc;
}
