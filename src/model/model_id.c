/* model_id.c - see model_id.h */
#include "model/model_id.h"

#include <openssl/sha.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { MAX_FILE = 256 << 20 };

/* Appends the content of DIR/name, and a NUL that marks its end. */
static int add_file(buf *text, const char *dir, const char *name, err *e)
{
    char *path = path_join(dir, name);
    int status = file_read(text, path, MAX_FILE, e);
    buf_add_char(text, '\0');
    free(path);
    return status;
}

/* Returns the model_type of a config.json, owned by the caller, or NULL with e set. */
static char *type_of(const char *config, size_t n, err *e)
{
    json_t *c = json_read_text(config, n, e);
    const char *type = "model";
    char *copy = c && json_get_string(c, "model_type", &type, e) == 0 ? xstrdup(type) : NULL;
    json_decref(c);
    return copy;
}

char *model_id_of(const char *dir, err *e)
{
    buf text = {0};
    char *type = NULL, *id = NULL;
    if (add_file(&text, dir, "config.json", e) == 0 && (type = type_of(text.data, text.len - 1, e)) &&
        add_file(&text, dir, "tokenizer.json", e) == 0) {
        unsigned char digest[SHA256_DIGEST_LENGTH];
        SHA256((const unsigned char *)text.data, text.len, digest);
        buf name = {0};
        buf_printf(&name, "%s-", type);
        for (int i = 0; i < 8; i++)
            buf_printf(&name, "%02x", digest[i]);
        id = buf_take(&name);
    }
    free(type);
    buf_free(&text);
    if (!id)
        err_wrap(e, "model %s", dir);
    return id;
}
