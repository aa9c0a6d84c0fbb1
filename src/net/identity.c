/* identity.c - see identity.h */
#include "net/identity.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

uint64_t identity_random(void)
{
    uint64_t x = 0;
    while (x == 0)
        CHECK(getrandom(&x, sizeof x, 0) == sizeof x);
    return x;
}

char *identity_host(void)
{
    char host[128] = "?";
    gethostname(host, sizeof host - 1);
    return xstrdup(host);
}
