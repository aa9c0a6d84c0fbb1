/* jinja_globals.h - the functions that every template has: range, dict, namespace, raise_exception, ... */
#ifndef PUNICA_TEXT_JINJA_GLOBALS_H
#define PUNICA_TEXT_JINJA_GLOBALS_H

#include "text/jinja_value.h"

value global_find(jinja_run *r, const str *name); /* MISSING: there is none of this name */

/* {% set of.name = v %} */
void namespace_set(jinja_run *r, value of, const str *name, value v);

#endif
