/* jinja_methods.h - the methods of strings, dicts, lists and numbers */
#ifndef PUNICA_TEXT_JINJA_METHODS_H
#define PUNICA_TEXT_JINJA_METHODS_H

#include "text/jinja_value.h"

/* A function bound to `of`. MISSING: there is no such method. One that would change `of` is an undefined value, which
 * says so when it is called: the sandbox is immutable. */
value method_find(jinja_run *r, value of, const str *name);

#endif
