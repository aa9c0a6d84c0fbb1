/* safetensors.c - see safetensors.h
 *
 *   | header length, 8 bytes LE | header, JSON | tensors, back to back, no holes |
 *
 * The header maps each tensor's name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets
 * counted from the end of the header. A sharded model has an index whose weight_map names the file of
 * each tensor; index and files must agree both ways. Every shard's entries go into one table. */
#include "model/safetensors.h"

#include <endian.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"

#define MAX_INDEX ((size_t)8 << 20)

typedef struct {
    char *path;
    file_map mapping; /* closed with the shard; size 0 when the bytes are borrowed */
    json_t *header;   /* owns the names that entries point to */
} shard;

struct safetensors {
    shard *shards; /* [n_shards] */
    size_t n_shards, cap_shards;
    safetensors_entry *entries; /* [n_entries] */
    size_t n_entries, cap_entries;
    map *by_name; /* name -> index into entries */
};

/* Where a tensor's offsets say that it lies, to check that the file is covered exactly once. */
typedef struct {
    uint64_t begin, end;
    const char *name;
} data_range;

/* The bytes of one file, and its name in messages. */
typedef struct {
    const unsigned char *data;
    size_t size;
    const char *path;
} file_bytes;

static const struct {
    const char *name;
    unsigned bits;
} known_dtypes[] = {
    {"F32", 32},        {"F16", 16},    {"BF16", 16},   {"F64", 64},    {"BOOL", 8},    {"U8", 8},
    {"I8", 8},          {"U16", 16},    {"I16", 16},    {"U32", 32},    {"I32", 32},    {"U64", 64},
    {"I64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

static unsigned dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof known_dtypes / sizeof known_dtypes[0]; i++)
        if (strcmp(name, known_dtypes[i].name) == 0)
            return known_dtypes[i].bits;
    return 0;
}

static int bad_tensor(const file_bytes *src, const char *name, err *e, const char *what)
{
    return err_set(e, "%s: tensor \"%.120s\" %s", src->path, name, what);
}

static int read_dtype(safetensors_entry *t, const json_t *info, const file_bytes *src, err *e)
{
    t->dtype_text = json_string_value(json_object_get(info, "dtype"));
    if (!t->dtype_text)
        return bad_tensor(src, t->name, e, "has no dtype");
    if (!dtype_bits(t->dtype_text))
        return err_set(e, "%s: tensor \"%.120s\" has unknown dtype \"%.40s\"", src->path, t->name, t->dtype_text);
    return 0;
}

/* Reads the dimensions, and sets *bytes to what they make up. */
static int read_shape(safetensors_entry *t, const json_t *info, uint64_t *bytes, const file_bytes *src, err *e)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return bad_tensor(src, t->name, e, "has no shape");
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return bad_tensor(src, t->name, e, "has more than 8 dimensions");
    t->n_dims = (int)json_array_size(shape);
    uint64_t bits = dtype_bits(t->dtype_text);
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad_tensor(src, t->name, e, "has a dimension that is not an integer of 0 or more");
        t->dim[i] = json_integer_value(d);
        if (__builtin_mul_overflow(bits, (uint64_t)t->dim[i], &bits))
            return bad_tensor(src, t->name, e, "has a shape too large for any file");
    }
    if (bits % 8)
        return bad_tensor(src, t->name, e, "does not fill whole bytes");
    *bytes = bits / 8;
    return 0;
}

static int read_range(data_range *x, const json_t *info, uint64_t bytes, uint64_t data_size, const file_bytes *src,
                      err *e)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_tensor(src, x->name, e, "has no data_offsets [begin, end]");
    json_int_t b = json_integer_value(begin), n = json_integer_value(end);
    if (b < 0 || n < b)
        return bad_tensor(src, x->name, e, "has data_offsets that end before they begin");
    if ((uint64_t)n > data_size)
        return bad_tensor(src, x->name, e, "lies out of range of the file; is the file truncated?");
    if ((uint64_t)(n - b) != bytes)
        return err_set(e,
                       "%s: tensor \"%.120s\" takes %llu bytes by its dtype and shape, but %llu by its "
                       "data_offsets",
                       src->path, x->name, (unsigned long long)bytes, (unsigned long long)(n - b));
    x->begin = (uint64_t)b;
    x->end = (uint64_t)n;
    return 0;
}

/* Fills in t->t and t->usable. -1 with e set when data of a type that could be used is not aligned to it. */
static int bind_data(safetensors_entry *t, const unsigned char *data, const file_bytes *src, err *e)
{
    dtype type = DTYPE_F32;
    while (type <= DTYPE_F8 && strcmp(t->dtype_text, dtype_name(type)) != 0)
        type++;
    int64_t rows = t->n_dims == 2 ? t->dim[0] : 1, cols = t->n_dims ? t->dim[t->n_dims - 1] : 1;
    if (type > DTYPE_F8 || t->n_dims > 2 || rows < 1 || cols < 1 || rows > INT_MAX || cols > INT_MAX)
        return 0;
    if ((uintptr_t)data % dtype_size(type))
        return bad_tensor(src, t->name, e,
                          "is not aligned to its type; save the file again with a current "
                          "safetensors library");
    t->usable = 1;
    t->t = (tensor){.data = (void *)data, .type = type, .rows = (int)rows, .cols = (int)cols};
    return 0;
}

static int read_tensor(safetensors_entry *t, data_range *x, const json_t *info, size_t data_at, const file_bytes *src,
                       err *e)
{
    uint64_t bytes = 0;
    if (!json_is_object(info))
        return bad_tensor(src, t->name, e, "is not described by an object");
    if (read_dtype(t, info, src, e) || read_shape(t, info, &bytes, src, e))
        return -1;
    x->name = t->name;
    if (read_range(x, info, bytes, src->size - data_at, src, e))
        return -1;
    return bind_data(t, src->data + data_at + x->begin, src, e);
}

static int compare_extents(const void *a, const void *b)
{
    const data_range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int check_cover(data_range *x, size_t n, uint64_t data_size, const file_bytes *src, err *e)
{
    uint64_t at = 0;
    if (n)
        qsort(x, n, sizeof *x, compare_extents);
    for (size_t i = 0; i < n; at = x[i++].end) {
        if (x[i].begin < at)
            return bad_tensor(src, x[i].name, e, "overlaps another one");
        if (x[i].begin > at)
            return bad_tensor(src, x[i].name, e, "comes after a hole that belongs to no tensor");
    }
    if (at != data_size)
        return err_set(e, "%s: the last %llu bytes belong to no tensor", src->path,
                       (unsigned long long)(data_size - at));
    return 0;
}

static int check_metadata(const json_t *metadata, const file_bytes *src, err *e)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return err_set(e, "%s: __metadata__ is not an object", src->path);
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return err_set(
        e, "%s: __metadata__ \"%.120s\" is not a string", src->path, key);
    return 0;
}

/* Appends all tensors of a header whose data begins at data_at. */
static int read_tensors(safetensors *s, const json_t *header, size_t data_at, const file_bytes *src, err *e)
{
    size_t n = 0, room = json_object_size(header);
    data_range *x = XNEW_ARRAY(data_range, room);
    s->entries = xgrow(s->entries, &s->cap_entries, s->n_entries + room, sizeof *s->entries);
    const char *key;
    json_t *info;
    int status = 0;
    json_object_foreach((json_t *)header, key, info)
    {
        if (strcmp(key, "__metadata__") == 0) {
            status = check_metadata(info, src, e);
        } else {
            safetensors_entry *t = &s->entries[s->n_entries++];
            *t = (safetensors_entry){.name = key, .file = src->path};
            status = read_tensor(t, &x[n++], info, data_at, src, e);
        }
        if (status)
            break;
    }
    if (status == 0)
        status = check_cover(x, n, src->size - data_at, src, e);
    free(x);
    return status;
}

/* Returns the header of one file as JSON, or NULL; *data_at is where its tensors begin. */
static json_t *read_header(const file_bytes *src, size_t *data_at, err *e)
{
    uint64_t length;
    if (src->size < sizeof length) {
        err_set(e, "%s is not a safetensors file: it has only %zu bytes", src->path, src->size);
        return NULL;
    }
    memcpy(&length, src->data, sizeof length);
    length = le64toh(length);
    if (length > SAFETENSORS_MAX_HEADER || length > src->size - sizeof length) {
        err_set(e, "%s: a header length of %llu bytes is more than %s", src->path, (unsigned long long)length,
                length > SAFETENSORS_MAX_HEADER ? "is accepted; is it a safetensors file?"
                                                : "the file has; is it truncated?");
        return NULL;
    }
    json_t *header = json_read_text((const char *)src->data + sizeof length, length, e);
    if (header && !json_is_object(header)) {
        json_decref(header);
        header = NULL;
        err_set(e, "not a JSON object");
    }
    if (!header)
        err_wrap(e, "%s: header", src->path);
    *data_at = sizeof length + length;
    return header;
}

/* Appends a shard and its entries; after a failure what was appended is closed with s. */
static int add_shard(safetensors *s, const file_bytes *src, file_map mapping, err *e)
{
    s->shards = xgrow(s->shards, &s->cap_shards, s->n_shards + 1, sizeof *s->shards);
    shard *h = &s->shards[s->n_shards++];
    *h = (shard){.path = xstrdup(src->path), .mapping = mapping};
    size_t data_at;
    h->header = read_header(src, &data_at, e);
    if (!h->header)
        return -1;
    file_bytes kept = {.data = src->data, .size = src->size, .path = h->path};
    return read_tensors(s, h->header, data_at, &kept, e);
}

static int add_file(safetensors *s, const char *path, err *e)
{
    file_map mapping;
    if (file_map_open(&mapping, path, e))
        return -1;
    return add_shard(s, &(file_bytes){mapping.data, mapping.size, path}, mapping, e);
}

/* Makes the entries, which are complete, findable by name. On failure (status) closes s and returns NULL. */
static safetensors *finish(safetensors *s, int status)
{
    if (status) {
        safetensors_close(s);
        return NULL;
    }
    s->by_name = map_new(s->n_entries);
    for (size_t i = 0; i < s->n_entries; i++)
        map_put(s->by_name, s->entries[i].name, strlen(s->entries[i].name), (int64_t)i);
    return s;
}

safetensors *safetensors_open(const char *path, err *e)
{
    safetensors *s = XNEW(safetensors);
    return finish(s, add_file(s, path, e));
}

safetensors *safetensors_open_memory(const void *data, size_t size, const char *name, err *e)
{
    safetensors *s = XNEW(safetensors);
    return finish(s, add_shard(s, &(file_bytes){data, size, name}, (file_map){0}, e));
}

/* A shard must be a plain name of a file beside the index, so that it cannot lead anywhere else. */
static int check_shard_name(const json_t *value, const char *tensor_name, err *e)
{
    const char *name = json_string_value(value);
    size_t n = json_string_length(value), suffix = strlen(".safetensors");
    if (!name)
        return err_set(e, "weight_map gives no file name for \"%.120s\"", tensor_name);
    if (n != strlen(name) || name[0] == '.' || strchr(name, '/'))
        return err_set(e, "weight_map: \"%.120s\" is not the name of a file in the same directory", name);
    if (n <= suffix || n > 255 || strcmp(name + n - suffix, ".safetensors") != 0)
        return err_set(e, "weight_map: \"%.120s\" is not the name of a .safetensors file", name);
    return 0;
}

/* Checks that the index lists tensors [first, n_entries) under the shard they came from, `name`. */
static int check_listed(const safetensors *s, size_t first, const json_t *weight_map, const char *name, err *e)
{
    for (size_t i = first; i < s->n_entries; i++) {
        const char *listed = json_string_value(json_object_get(weight_map, s->entries[i].name));
        if (!listed)
            return err_set(e, "tensor \"%.120s\" is in %s but the index does not list it", s->entries[i].name, name);
        if (strcmp(listed, name) != 0)
            return err_set(e, "tensor \"%.120s\" is in %s but the index lists it under %.120s", s->entries[i].name,
                           name, listed);
    }
    return 0;
}

static int check_weight_map(const json_t *weight_map, err *e)
{
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        return err_set(e, "no weight_map");
    const char *tensor_name;
    json_t *value;
    json_object_foreach((json_t *)weight_map, tensor_name,
                        value) if (check_shard_name(value, tensor_name, e)) return -1;
    return 0;
}

/* Opens each file the index names, once, in the order of first mention. */
static int add_listed_shards(safetensors *s, const char *dir, const json_t *weight_map, err *e)
{
    map *seen = map_new(16);
    const char *tensor_name;
    json_t *value;
    int status = 0;
    json_object_foreach((json_t *)weight_map, tensor_name, value)
    {
        const char *name = json_string_value(value);
        if (map_get(seen, name, strlen(name), NULL))
            continue;
        map_put(seen, name, strlen(name), 1);
        size_t first = s->n_entries;
        char *path = path_join(dir, name);
        status = add_file(s, path, e);
        free(path);
        if (status || (status = check_listed(s, first, weight_map, name, e)))
            break;
    }
    map_free(seen);
    return status;
}

/* Every tensor found is listed (check_listed), so the index lists tensors that are missing exactly when the counts
 * differ. */
static int check_all_found(const safetensors *s, const json_t *weight_map, err *e)
{
    if (json_object_size(weight_map) == s->n_entries)
        return 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)weight_map, name, value) if (!safetensors_find(s, name)) return err_set(
        e, "the index lists tensor \"%.120s\" in %.120s, but it is not there", name, json_string_value(value));
    CHECK(!"every listed tensor was found, yet the counts differ");
    return -1;
}

static safetensors *open_sharded(const char *dir, const char *index_path, err *e)
{
    json_t *index = json_read_file(index_path, MAX_INDEX, e);
    if (!index)
        return NULL;
    safetensors *s = XNEW(safetensors);
    const json_t *weight_map = json_object_get(index, "weight_map");
    s = finish(s, check_weight_map(weight_map, e) || add_listed_shards(s, dir, weight_map, e));
    if (s && check_all_found(s, weight_map, e)) {
        safetensors_close(s);
        s = NULL;
    }
    if (!s)
        err_wrap(e, "%s", index_path);
    json_decref(index);
    return s;
}

safetensors *safetensors_open_dir(const char *dir, err *e)
{
    char *single = path_join(dir, "model.safetensors");
    char *index = path_join(dir, "model.safetensors.index.json");
    char *pickled = path_join(dir, "pytorch_model.bin");
    safetensors *s = NULL;
    if (file_exists(single))
        s = safetensors_open(single, e);
    else if (file_exists(index))
        s = open_sharded(dir, index, e);
    else
        err_set(e, "%s has no model.safetensors and no model.safetensors.index.json%s", dir,
                file_exists(pickled) ? "; pytorch_model.bin is not read: save the model as safetensors" : "");
    free(pickled);
    free(index);
    free(single);
    return s;
}

void safetensors_close(safetensors *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_shards; i++) {
        json_decref(s->shards[i].header);
        file_map_close(&s->shards[i].mapping);
        free(s->shards[i].path);
    }
    map_free(s->by_name);
    free(s->entries);
    free(s->shards);
    free(s);
}

int safetensors_count(const safetensors *s)
{
    return (int)s->n_entries;
}

const safetensors_entry *safetensors_at(const safetensors *s, int i)
{
    return &s->entries[i];
}

const safetensors_entry *safetensors_find(const safetensors *s, const char *name)
{
    int64_t i;
    return map_get(s->by_name, name, strlen(name), &i) ? &s->entries[i] : NULL;
}

const char *safetensors_shape(const safetensors_entry *t, char text[SAFETENSORS_SHAPE_TEXT])
{
    size_t at = 0;
    text[at++] = '[';
    for (int i = 0; i < t->n_dims; i++)
        at += (size_t)snprintf(text + at, SAFETENSORS_SHAPE_TEXT - at, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    snprintf(text + at, SAFETENSORS_SHAPE_TEXT - at, "]");
    return text;
}
