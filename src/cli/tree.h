/* tree.h - files of the source tree that the program can use wherever it is called from */
#ifndef PUNICA_CLI_TREE_H
#define PUNICA_CLI_TREE_H

/* Returns the path of `name` in the tree that the program was built from, or else beside the program or one or two
 * folders up. NULL: it is nowhere. The caller frees. */
char *tree_find(const char *name);

#endif
