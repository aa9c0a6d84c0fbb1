/* jinja_tests.h - {% if value is test %} */
#ifndef PUNICA_TEXT_JINJA_TESTS_H
#define PUNICA_TEXT_JINJA_TESTS_H

#include "text/jinja_ast.h"

test_body *test_find(const str *name); /* NULL: there is none of this name */

#endif
