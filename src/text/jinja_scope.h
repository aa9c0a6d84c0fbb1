/* jinja_scope.h - name resolution, done once at compile time
 *
 * A for loop, a macro and a few others have a scope of their own: what is set inside is gone after it. A name is
 * looked up from the innermost scope outwards, then among the render's variables. Jinja decides for each scope, before
 * anything runs, which names are local to it: those that are set in it outside of any if, were not read in it before,
 * and that no scope around it mentions. Local names are unset when the scope is entered, even if the render has
 * variables of these names. */
#ifndef PUNICA_TEXT_JINJA_SCOPE_H
#define PUNICA_TEXT_JINJA_SCOPE_H

#include "text/jinja_ast.h"

/* Fills in the unset lists of the program's scopes and which macros use caller, kwargs and varargs. Fails for filters
 * and tests that do not exist; inside of an if they fail only when they are reached. */
void jinja_scope(jinja_run *r, jinja *p);

#endif
