/* jinja_own.c - see jinja_own.h */
#include "text/jinja_own.h"

const own_list own_all;

static void push(jinja_run *r, own_list *l, size_t from, size_t to)
{
    if (l->n && l->at[l->n - 1].to == from) {
        l->at[l->n - 1].to = to; /* strings that share the list end before `from` and look no further */
        return;
    }
    l->at = jinja_run_grow(r, l->at, l->n, &l->cap, 4, sizeof *l->at);
    l->at[l->n++] = (text_span){from, to};
}

void own_add(jinja_run *r, own_list *to, size_t len, const str *s, size_t at, size_t n)
{
    if (!s->own || n == 0)
        return;
    if (s->own == &own_all) {
        push(r, to, len, len + n);
        return;
    }
    size_t start = s->own_at + at, end = start + n, n_spans = s->own->n;
    size_t i = text_spans_find(&(text_spans){.at = s->own->at, .n = n_spans}, start);
    jinja_run_spend(r, 1);
    for (; i < n_spans && s->own->at[i].from < end; i++) {
        const text_span x = s->own->at[i]; /* a copy: `to` may be the same list, which grows */
        jinja_run_spend(r, i % 16 == 0);
        push(r, to, len + (x.from > start ? x.from : start) - start, len + (x.to < end ? x.to : end) - start);
    }
}

void own_part(str *x, const str *s, size_t at)
{
    x->own = s->own;
    x->own_at = s->own == &own_all || !s->own ? 0 : s->own_at + at;
}

/* Returns a list of a's own bytes to which more can be added. */
static own_list *list_for(jinja_run *r, const str *a)
{
    if (a->own && a->own != &own_all && a->own_at + a->n == a->own->len)
        return (own_list *)a->own; /* nothing was added behind a: it grows in place */
    own_list *l = JINJA_NEW(r, own_list);
    *l = (own_list){.len = a->n};
    own_add(r, l, 0, a, 0, a->n);
    return l;
}

void own_concat(jinja_run *r, str *x, const str *a, const str *b)
{
    x->own = NULL;
    x->own_at = 0;
    if (a->own == b->own && (!a->own || a->own == &own_all)) {
        x->own = a->own;
        return;
    }
    own_list *l = list_for(r, a);
    x->own_at = l->len - a->n;
    own_add(r, l, l->len, b, 0, b->n);
    l->len += b->n;
    x->own = l;
}
