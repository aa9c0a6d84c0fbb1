/* jinja_format.h - Python's two ways to format: "%s" % x and "{}".format(x) */
#ifndef PUNICA_TEXT_JINJA_FORMAT_H
#define PUNICA_TEXT_JINJA_FORMAT_H

#include "text/jinja_value.h"

/* Returns format % with. with: a tuple of arguments, a dict for %(name)s, or the one argument. */
value format_percent(jinja_run *r, const str *format, value with);

value format_braces(jinja_run *r, const str *format, const jinja_arguments *a);

#endif
