/* adapter_key.c - see adapter_key.h */
#include "worker/adapter_key.h"

#include <string.h>

void adapter_key_make(buf *key, const char *name, const unsigned char *bytes, size_t n_digest)
{
    buf_clear(key);
    buf_add_str(key, name);
    if (n_digest != DIGEST_BYTES)
        return;
    digest d;
    char hex[DIGEST_HEX];
    memcpy(d.byte, bytes, sizeof d.byte);
    digest_to_hex(&d, hex);
    buf_printf(key, "@%s", hex);
}

size_t adapter_key_split(const char *key, const char **hex)
{
    const char *at = strrchr(key, '@');
    bool has_digest = at && strlen(at + 1) == DIGEST_HEX - 1 && strspn(at + 1, "0123456789abcdef") == DIGEST_HEX - 1;
    *hex = has_digest ? at + 1 : NULL;
    return has_digest ? (size_t)(at - key) : strlen(key);
}
