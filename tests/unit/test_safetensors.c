/* test_safetensors.c - what is read from good files, and that every kind of bad one is refused */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/safetensors.h"
#include "support/model_files.h"
#include "support/test.h"

static safetensors *open_bytes(const buf *b, err *e)
{
    return safetensors_open_memory(b->data, b->len, "test.safetensors", e);
}

/* The header (between its braces) over n bytes of data must be refused with a message that has `why`. */
static void refuses(const char *header, size_t n, const char *why)
{
    buf data = {0};
    for (size_t i = 0; i < n; i++)
        buf_add_char(&data, 0);
    buf file = st_join(header, &data);
    err e = {{0}};
    safetensors *s = open_bytes(&file, &e);
    if (s || !says(&e, why) || !says(&e, "test.safetensors"))
        fail_msg("%s: wanted \"%s\", got \"%s\"", header, why, s ? "success" : e.msg);
    buf_free(&file);
    buf_free(&data);
}

static void good_file(void **state)
{
    (void)state;
    st_file f = {0};
    st_add(&f, "m", DTYPE_BF16, 3, 4);
    st_add(&f, "v", DTYPE_F32, 0, 5);
    st_add_raw(&f, "count", "I64", "[]", 8);
    st_add_raw(&f, "cube", "F16", "[2, 2, 2]", 16);
    st_add_raw(&f, "none", "F32", "[0, 7]", 0);
    st_add_raw(&f, "nibbles", "F4", "[4]", 2);
    buf file = st_finish(&f);
    err e;
    safetensors *s = open_bytes(&file, &e);
    assert_non_null(s);
    assert_int_equal(safetensors_count(s), 6);
    const safetensors_entry *m = safetensors_find(s, "m"), *v = safetensors_find(s, "v");
    assert_true(m && m->usable && m->t.type == DTYPE_BF16 && m->t.rows == 3 && m->t.cols == 4);
    assert_true(v && v->usable && v->t.rows == 1 && v->t.cols == 5 && v->n_dims == 1);
    assert_int_equal(m - safetensors_at(s, 0), 0);
    assert_string_equal(m->file, "test.safetensors");
    assert_float_equal(((float *)v->t.data)[0], 1 + 24.0 / 128, 0);
    char text[SAFETENSORS_SHAPE_TEXT];
    assert_string_equal(safetensors_shape(safetensors_find(s, "cube"), text), "[2, 2, 2]");
    assert_string_equal(safetensors_shape(safetensors_find(s, "count"), text), "[]");
    static const char *const unusable[] = {"count", "cube", "none", "nibbles"};
    for (int i = 0; i < 4; i++)
        assert_false(safetensors_find(s, unusable[i])->usable);
    assert_null(safetensors_find(s, "x"));
    safetensors_close(s);
    buf_free(&file);
}

static void metadata_is_allowed(void **state)
{
    (void)state;
    buf file = st_join("'__metadata__': {'format': 'pt'}", &(buf){0});
    err e;
    safetensors *s = open_bytes(&file, &e);
    assert_non_null(s);
    assert_int_equal(safetensors_count(s), 0);
    safetensors_close(s);
    buf_free(&file);
    refuses("'__metadata__': {'format': 1}", 0, "not a string");
    refuses("'__metadata__': []", 0, "not an object");
}

static void bad_headers(void **state)
{
    (void)state;
    refuses("'a': {'dtype': 'F31', 'shape': [1], 'data_offsets': [0, 4]}", 4, "unknown dtype");
    refuses("'a': {'shape': [1], 'data_offsets': [0, 4]}", 4, "no dtype");
    refuses("'a': {'dtype': 3, 'shape': [1], 'data_offsets': [0, 4]}", 4, "no dtype");
    refuses("'a': {'dtype': 'F32', 'data_offsets': [0, 4]}", 4, "no shape");
    refuses("'a': {'dtype': 'F32', 'shape': [-1], 'data_offsets': [0, 4]}", 4, "0 or more");
    refuses("'a': {'dtype': 'F32', 'shape': [1.0], 'data_offsets': [0, 4]}", 4, "0 or more");
    refuses("'a': {'dtype': 'F32', 'shape': [4611686018427387904, 4], 'data_offsets': [0, 4]}", 4, "too large");
    refuses("'a': {'dtype': 'F32', 'shape': [1,1,1,1,1,1,1,1,1], 'data_offsets': [0, 4]}", 4, "8 dimensions");
    refuses("'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 4]}", 4, "takes 8 bytes");
    refuses("'a': {'dtype': 'F4', 'shape': [3], 'data_offsets': [0, 2]}", 2, "whole bytes");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 0]}", 4, "end before");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [-4, 0]}", 4, "end before");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4, 8]}", 4, "data_offsets");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': '0'}", 4, "data_offsets");
    refuses("'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}", 4, "out of range");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}", 8, "last 4 bytes");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}", 8, "hole");
    refuses("'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}, "
            "'b': {'dtype': 'F32', 'shape': [2], 'data_offsets': [4, 12]}",
            12, "overlaps");
    refuses("'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}, "
            "'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}",
            8, "duplicate");
    refuses("'b': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0, 1]}, "
            "'a': {'dtype': 'F16', 'shape': [1], 'data_offsets': [1, 3]}",
            3, "not aligned");
    refuses("'a': 7", 0, "object");
    refuses("'a'", 0, "JSON");
}

/* Bytes as they are, without a proper header. */
static void refuses_bytes(const void *bytes, size_t n, const char *why)
{
    buf file = {0};
    buf_add(&file, bytes, n);
    err e = {{0}};
    assert_null(open_bytes(&file, &e));
    if (!says(&e, why))
        fail_msg("wanted \"%s\", got \"%s\"", why, e.msg);
    buf_free(&file);
}

static void bad_lengths(void **state)
{
    (void)state;
    refuses_bytes("", 0, "only 0 bytes");
    refuses_bytes("1234567", 7, "only 7 bytes");
    refuses_bytes("\xff\xff\xff\xff\xff\xff\xff\xff", 8, "header length");
    refuses_bytes("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, "header length");
    refuses_bytes("\x03\0\0\0\0\0\0\0{}", 10, "truncated");
    refuses_bytes("\0\0\0\0\0\0\0\0", 8, "JSON");
    refuses_bytes("\x02\0\0\0\0\0\0\0[]", 10, "object");
    buf deep = {0};
    uint64_t n = 100000;
    buf_add(&deep, &n, 8);
    for (uint64_t i = 0; i < n; i++)
        buf_add_char(&deep, '[');
    refuses_bytes(deep.data, deep.len, "depth");
    buf_free(&deep);
}

/* Two shards, of tensors a, b and of c. */
static char *make_sharded(const char *index)
{
    char *dir = make_dir();
    st_file one = {0}, two = {0};
    st_add(&one, "a", DTYPE_F32, 2, 2);
    st_add(&one, "b", DTYPE_F16, 0, 2);
    st_add(&two, "c", DTYPE_BF16, 2, 3);
    buf first = st_finish(&one), second = st_finish(&two);
    put_file(dir, "one.safetensors", first.data, first.len);
    put_file(dir, "two.safetensors", second.data, second.len);
    put_text(dir, "model.safetensors.index.json", index);
    buf_free(&first);
    buf_free(&second);
    return dir;
}

static void shards_open_as_one(void **state)
{
    (void)state;
    char *dir = make_sharded("{'metadata': {}, 'weight_map': {'c': 'two.safetensors', "
                             "'a': 'one.safetensors', 'b': 'one.safetensors'}}");
    err e;
    safetensors *s = safetensors_open_dir(dir, &e);
    assert_non_null(s);
    assert_int_equal(safetensors_count(s), 3);
    assert_non_null(strstr(safetensors_find(s, "c")->file, "two.safetensors"));
    assert_int_equal(safetensors_find(s, "c")->t.cols, 3);
    safetensors_close(s);
    drop_dir(dir);
}

static void bad_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *weight_map, *why;
    } cases[] = {
        {"", "no weight_map"},
        {"'a': 'one.safetensors', 'b': 'one.safetensors', 'c': 'two.safetensors', 'd': 'two.safetensors'",
         "'d' in two.safetensors, but it is not there"},
        {"'a': 'one.safetensors', 'c': 'two.safetensors'", "does not list it"},
        {"'a': 'one.safetensors', 'b': 'two.safetensors', 'c': 'two.safetensors'", "lists it under"},
        {"'a': 'one.safetensors', 'b': 'one.safetensors', 'c': 'three.safetensors'", "three.safetensors"},
        {"'a': '../one.safetensors'", "same directory"},
        {"'a': '/etc/one.safetensors'", "same directory"},
        {"'a': '.one.safetensors'", "same directory"},
        {"'a': 'one\\u0000.safetensors'", "same directory"},
        {"'a': ''", ".safetensors file"},
        {"'a': 'model.safetensors.index.json'", ".safetensors file"},
        {"'a': 1", "no file name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *index = xasprintf("{'weight_map': {%s}}", cases[i].weight_map), *dir = make_sharded(index);
        err e = {{0}};
        safetensors *s = safetensors_open_dir(dir, &e);
        if (s || !says(&e, cases[i].why) || !says(&e, "index.json"))
            fail_msg("%s: wanted \"%s\", got \"%s\"", index, cases[i].why, s ? "success" : e.msg);
        free(index);
        drop_dir(dir);
    }
}

static void absent_files(void **state)
{
    (void)state;
    char *dir = make_dir();
    err e = {{0}};
    assert_null(safetensors_open_dir(dir, &e));
    assert_true(says(&e, "no model.safetensors"));
    put_text(dir, "pytorch_model.bin", "x");
    assert_null(safetensors_open_dir(dir, &e));
    assert_true(says(&e, "pytorch_model.bin is not read"));
    put_text(dir, "model.safetensors", "");
    assert_null(safetensors_open_dir(dir, &e));
    assert_true(says(&e, "only 0 bytes"));
    assert_null(safetensors_open(dir, &e));
    assert_true(says(&e, "regular file"));
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),    cmocka_unit_test(metadata_is_allowed), cmocka_unit_test(bad_headers),
        cmocka_unit_test(bad_lengths),  cmocka_unit_test(shards_open_as_one),  cmocka_unit_test(bad_indexes),
        cmocka_unit_test(absent_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
