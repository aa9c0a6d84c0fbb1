/* jinja_filters.h - {{ value | filter }} */
#ifndef PUNICA_TEXT_JINJA_FILTERS_H
#define PUNICA_TEXT_JINJA_FILTERS_H

#include "text/jinja_ast.h"

filter_body *filter_find(const str *name); /* NULL: there is none of this name */

#endif
