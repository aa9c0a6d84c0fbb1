/* identity.c - see identity.h */
#include "net/identity.h"

#include <unistd.h>

#include "base/mem.h"

char *identity_host(void)
{
    char host[128] = "?";
    gethostname(host, sizeof host - 1);
    return xstrdup(host);
}
