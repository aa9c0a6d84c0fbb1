/* json.c - see json.h */
#include "base/json.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

/* How much memory jansson may use while it parses text from outside. When an allocation is refused, parsing fails. */
typedef struct {
    size_t left;
    const atomic_bool *stop;
    bool refused;
} allowance;

static _Thread_local allowance *allowed; /* NULL: no limit */

static void *allocate(size_t n)
{
    allowance *a = allowed;
    if (a && (n > a->left || (a->stop && atomic_load_explicit(a->stop, memory_order_relaxed)))) {
        a->refused = true;
        return NULL;
    }
    void *p = malloc(n);
    if (a && p)
        a->left -= a->left < malloc_usable_size(p) ? a->left : malloc_usable_size(p);
    return p;
}

static void release(void *p)
{
    if (allowed && p)
        allowed->left += malloc_usable_size(p);
    free(p);
}

__attribute__((constructor)) static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, release);
}

json_t *json_read_text(const char *text, size_t n, err *e)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES;
    json_error_t where;
    json_t *doc = json_loadb(text, n, flags, &where);
    /* Transformers writes 1000000000000000019884624838656 for "no limit" (model_max_length). */
    if (!doc && json_error_code(&where) == json_error_numeric_overflow)
        doc = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &where);
    if (!doc)
        err_set(e, "not valid JSON: %s (line %d, column %d)", where.text, where.line, where.column);
    return doc;
}

json_t *json_read_within(const char *text, size_t n, size_t memory, const atomic_bool *stop, bool *too_large, err *e)
{
    allowance a = {.left = memory, .stop = stop};
    allowed = &a;
    json_t *doc = json_read_text(text, n, e);
    allowed = NULL;
    *too_large = !doc && a.refused;
    return doc;
}

json_t *json_read_file(const char *path, size_t max_size, err *e)
{
    buf text = {0};
    json_t *doc = NULL;
    if (file_read(&text, path, max_size, e) == 0) {
        doc = json_read_text(text.data ? text.data : "", text.len, e);
        if (!doc)
            err_wrap(e, "%s", path);
    }
    buf_free(&text);
    return doc;
}

json_t *json_member(const json_t *obj, const char *key)
{
    json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

int json_get_bool(const json_t *obj, const char *key, bool *out, err *e)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return err_set(e, "\"%s\" must be true or false", key);
    *out = json_is_true(v);
    return 0;
}

int json_get_int(const json_t *obj, const char *key, long min, long max, long *out, err *e)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return 0;
    double x = json_number_value(v);
    if (!json_is_number(v) || x != floor(x))
        return err_set(e, "\"%s\" must be an integer", key);
    if (x < (double)min || x > (double)max)
        return err_set(e, "\"%s\" is %.17g; it must be between %ld and %ld", key, x, min, max);
    if (json_is_real(v) && fabs(x) >= 0x1p53)
        return err_set(e, "\"%s\" is too large to be exact", key);
    *out = json_is_integer(v) ? (long)json_integer_value(v) : (long)x;
    return 0;
}

int json_get_double(const json_t *obj, const char *key, double *out, err *e)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_number(v))
        return err_set(e, "\"%s\" must be a number", key);
    *out = json_number_value(v);
    return 0;
}

int json_get_double_in(const json_t *obj, const char *key, double min, double max, double *out, err *e)
{
    double x = *out;
    if (json_get_double(obj, key, &x, e))
        return -1;
    if (!(x >= min && x <= max))
        return err_set(e, "\"%s\" is %g; it must be between %g and %g", key, x, min, max);
    *out = x;
    return 0;
}

int json_get_string(const json_t *obj, const char *key, const char **out, err *e)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_string(v))
        return err_set(e, "\"%s\" must be a string", key);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return err_set(e, "\"%s\" has a NUL character", key);
    *out = json_string_value(v);
    return 0;
}
