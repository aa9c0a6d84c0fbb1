/* jinja_sequences.h - the filters of sequences: map, select, sort, groupby, join, ... */
#ifndef PUNICA_TEXT_JINJA_SEQUENCES_H
#define PUNICA_TEXT_JINJA_SEQUENCES_H

#include "text/jinja_ast.h"

/* What items are compared by. */
typedef struct {
    value attribute; /* a path ("a.b"), or with several: paths ("a,b"); MISSING or none: the item itself */
    bool several, ignores_case;
    value default_value; /* for an attribute that is undefined; MISSING or none: it stays so */
} sort_key;

/* Returns a sorted list of the items; the sort is stable. key NULL: the items themselves are compared. */
value sorted_list(jinja_run *r, const jinja_list *items, const sort_key *key);

/* Returns the filter of this name if it is one of jinja_sequences.c, else NULL. */
filter_body *sequence_filter_find(const str *name);

#endif
