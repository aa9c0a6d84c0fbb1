/* jinja_scope.h - what names mean, settled once at compile time
 *
 * A for loop, a macro and a few others have a scope of their own: what is set inside is gone behind it. A name is
 * looked up from the innermost scope outwards, then among the variables of the render. Jinja decides per scope, before
 * anything runs, which names are its own: one that is set there, that was not read before in it, and that no scope
 * around it mentions, is unset when the scope is entered, even if a variable of the render has that name. */
#ifndef PUNICA_TEXT_JINJA_SCOPE_H
#define PUNICA_TEXT_JINJA_SCOPE_H

#include "text/jinja_ast.h"

/* Fills in the unset lists of the program's scopes and which macros use caller, kwargs and varargs. Fails for filters
 * and tests that do not exist, unless an if stands before them: then it is for the run to find out. */
void jinja_scope(jinja_run *r, jinja *p);

#endif
