/* jinja_json.h - values from JSON (value_from_json() of jinja_value.h), and Transformers' tojson: Python's json.dumps
 * with ensure_ascii=False */
#ifndef PUNICA_TEXT_JINJA_JSON_H
#define PUNICA_TEXT_JINJA_JSON_H

#include "text/jinja_value.h"

value filter_tojson(jinja_run *r, value in, const jinja_arguments *a);

#endif
