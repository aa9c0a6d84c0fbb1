/* tree.h - files of the source tree that the program can use wherever it is called from */
#ifndef PUNICA_CLI_TREE_H
#define PUNICA_CLI_TREE_H

/* The path of what is called name in the tree the program was built from, or else near the program: beside it, or one
 * or two folders up. Owned by the caller; NULL: nowhere. */
char *tree_find(const char *name);

#endif
