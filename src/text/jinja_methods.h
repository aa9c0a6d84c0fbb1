/* jinja_methods.h - the methods of strings, dicts, lists and numbers */
#ifndef PUNICA_TEXT_JINJA_METHODS_H
#define PUNICA_TEXT_JINJA_METHODS_H

#include "text/jinja_value.h"

/* Returns the method as a function bound to `of` (or the value of cycler.current); MISSING: there is none. A method
 * that would change `of` is an undefined value, which says so when it is called: the sandbox is immutable. */
value method_find(jinja_run *r, value of, const str *name);

#endif
