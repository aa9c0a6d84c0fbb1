/* jinja_ops.h - Python's operators, and how a template reaches into a value */
#ifndef PUNICA_TEXT_JINJA_OPS_H
#define PUNICA_TEXT_JINJA_OPS_H

#include "text/jinja_ast.h"

value op_binary(jinja_run *r, op_kind op, value a, value b); /* + - * / // % ** */
bool op_compare(jinja_run *r, op_kind op, value a, value b); /* == != < <= > >= in, not in */
value op_negative(jinja_run *r, value v);
value op_positive(jinja_run *r, value v);

/* Return of.name and of[key] as Jinja's sandbox does: the first prefers attributes, the second elements. What is not
 * there is undefined; if `of` is undefined, both fail. */
value op_attribute(jinja_run *r, value of, const str *name);
value op_item(jinja_run *r, value of, value key);

/* Returns of[start:stop:step]; MISSING or none where a bound is left out. */
value op_slice(jinja_run *r, value of, value start, value stop, value step);

/* Returns an attribute, never an element; MISSING: there is none. */
value op_find_attribute(jinja_run *r, value of, const str *name);

#endif
