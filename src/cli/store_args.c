/* store_args.c - see store_args.h */
#include "cli/store_args.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

const char *store_args_name_user(char who[STORE_USER])
{
    const struct passwd *user = getpwuid(getuid());
    snprintf(who, STORE_USER, "cli:%s", user ? user->pw_name : "?");
    return who;
}
