/* tree.c - see tree.h */
#include "cli/tree.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* Returns dir/name if it is there, else NULL; the caller frees. */
static char *look_in(const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    if (file_exists(path))
        return path;
    free(path);
    return NULL;
}

char *tree_find(const char *name)
{
    char *found = look_in(PUNICA_TREE, name), here[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    for (int up = 0; !found && n > 0 && here[0] && up < 3; up++) {
        *strrchr(here, '/') = 0;
        found = look_in(here, name);
    }
    return found;
}
