/* test_base.c - memory that is left, buffers, arenas, maps, JSON members, errors, 16-bit and 8-bit numbers, jobs dealt
 * out */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/lpt.h"
#include "base/err.h"
#include "base/fp8.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/test.h"

static void err_keeps_messages_to_one_line(void **state)
{
    (void)state;
    err e;
    assert_int_equal(err_set(&e, "bad name \"%s\"", "a\nb\x01"), -1);
    assert_string_equal(e.msg, "bad name \"a?b?\"");
    err_wrap(&e, "file %d", 7);
    assert_string_equal(e.msg, "file 7: bad name \"a?b?\"");
}

static void buf_grows_and_stays_terminated(void **state)
{
    (void)state;
    buf b = {0};
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "%d,", i % 10);
    assert_int_equal(b.len, 20000);
    assert_int_equal(strlen(b.data), 20000);
    char *s = buf_take(&b);
    assert_null(b.data);
    assert_memory_equal(s, "0,1,2,3,4,", 10);
    free(s);
}

/* Random puts and gets against a plain array indexed by the key's number. */
static void map_agrees_with_an_array(void **state)
{
    (void)state;
    enum { N = 3000 };
    static int64_t expect[N];
    memset(expect, -1, sizeof expect);
    map *m = map_new(4);
    for (uint64_t i = 0; i < 20000; i++) {
        int k = (int)(rng_u64(1, i) % N);
        char key[32];
        int n = snprintf(key, sizeof key, "key%c%d", k % 3 ? '\0' : 'x', k);
        if (rng_u64(2, i) % 2) {
            expect[k] = (int64_t)i;
            map_put(m, key, (size_t)n, (int64_t)i);
        }
        int64_t found = -1;
        assert_int_equal(map_get(m, key, (size_t)n, &found), expect[k] >= 0);
        assert_int_equal(found, expect[k]);
    }
    size_t count = 0;
    for (int k = 0; k < N; k++)
        count += expect[k] >= 0;
    assert_int_equal(map_count(m), count);
    assert_false(map_get(m, "", 0, NULL));
    map_put(m, "", 0, 5);
    assert_true(map_get(m, NULL, 0, NULL));
    map_free(m);
}

static void json_members_are_typed(void **state)
{
    (void)state;
    err e;
    const char *text = "{\"n\": 5, \"x\": 1.5, \"s\": \"a\\u0000b\", \"b\": true, \"none\": null}";
    json_t *doc = json_read_text(text, strlen(text), &e);
    assert_non_null(doc);
    long n = -1;
    assert_int_equal(json_get_int(doc, "n", 0, 10, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_int_equal(json_get_int(doc, "n", 6, 10, &n, &e), -1);
    assert_non_null(strstr(e.msg, "\"n\" is 5"));
    assert_int_equal(json_get_int(doc, "x", 0, 10, &n, &e), -1);
    assert_int_equal(json_get_int(doc, "none", 0, 10, &n, &e), 0);
    assert_int_equal(json_get_int(doc, "absent", 0, 10, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_int_equal(json_string_length(json_member(doc, "s")), 3);
    bool b = false;
    assert_int_equal(json_get_bool(doc, "b", &b, &e), 0);
    assert_true(b);
    assert_int_equal(json_get_bool(doc, "n", &b, &e), -1);
    json_decref(doc);
    assert_null(json_read_text("{\"a\": 1, \"a\": 2}", 16, &e));
    assert_null(json_read_text("", 0, &e));
}

/* As Transformers writes it in tokenizer_config.json. */
static void huge_integers_are_numbers(void **state)
{
    (void)state;
    err e;
    const char *text = "{\"model_max_length\": 1000000000000000019884624838656, \"n\": 7}";
    json_t *doc = json_read_text(text, strlen(text), &e);
    assert_non_null(doc);
    long n = 0;
    assert_int_equal(json_get_int(doc, "n", 0, 10, &n, &e), 0);
    assert_int_equal(n, 7);
    assert_int_equal(json_get_int(doc, "model_max_length", 0, 1000000, &n, &e), -1);
    json_decref(doc);
}

static void deep_json_is_an_error(void **state)
{
    (void)state;
    err e;
    buf b = {0};
    for (int i = 0; i < 100000; i++)
        buf_add_char(&b, '[');
    assert_null(json_read_text(b.data, b.len, &e));
    buf_free(&b);
}

static void rng_is_a_function_of_seed_and_counter(void **state)
{
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = rng_uniform(42, i);
        assert_true(u >= 0 && u < 1);
        assert_true(u == rng_uniform(42, i));
        sum += u;
    }
    assert_true(sum > 4850 && sum < 5150);
    assert_true(rng_u64(1, 2) != rng_u64(2, 1));
}

/* Every 16-bit number there and back; rounding to nearest, ties to even; what is too large or too small. */
/* Every number of 8 bits, and where rounding to it begins and ends. */
static void fp8_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < 127; i++) {
        int exponent = i >> 3, mantissa = i & 7;
        double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        assert_true((double)e4m3_to_float((uint8_t)i) == value && (double)e4m3_to_float((uint8_t)(i | 0x80)) == -value);
        assert_int_equal(e4m3_of_float((float)value), i);
        assert_int_equal(e4m3_of_float(-(float)value), i | 0x80);
        float next = i < 126 ? e4m3_to_float((uint8_t)(i + 1)) : 480, middle = ((float)value + next) / 2;
        assert_int_equal(e4m3_of_float(nextafterf(middle, 0)), i);
        assert_int_equal(e4m3_of_float(middle), i < 126 ? i + (i & 1) : i); /* ties to even */
        assert_int_equal(e4m3_of_float(nextafterf(middle, 500)), i < 126 ? i + 1 : i);
    }
    assert_int_equal(e4m3_of_float(-1e30f), 0xfe);
}

static void half_numbers(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = f16_to_float(h), b = bf16_to_float(h);
        if ((h & 0x7fff) <= 0x7c00)
            assert_int_equal(f16_of_float(f), h);
        if ((h & 0x7fff) <= 0x7f80)
            assert_int_equal(bf16_of_float(b), h);
    }
    static const struct {
        float x;
        uint16_t f16, bf16;
    } cases[] = {
        {1, 0x3c00, 0x3f80},
        {-2.5f, 0xc100, 0xc020},
        {1 + 0x1p-11f, 0x3c00, 0x3f80},
        {1 + 0x3p-11f, 0x3c02, 0x3f80},
        {65519.996f, 0x7bff, 0x4780},
        {65520, 0x7c00, 0x4780},
        {0x1p-25f, 0x0000, 0x3300},
        {0x1.8p-25f, 0x0001, 0x3340},
        {1 + 0x1p-8f, 0x3c04, 0x3f80},
        {1 + 0x3p-8f, 0x3c0c, 0x3f82},
        {-1e30f, 0xfc00, 0xf14a},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(f16_of_float(cases[i].x), cases[i].f16);
        assert_int_equal(bf16_of_float(cases[i].x), cases[i].bf16);
    }
    assert_true(f16_of_float(NAN) > 0x7c00 && bf16_of_float(NAN) > 0x7f80 &&
                f16_to_float(0x7e00) != f16_to_float(0x7e00));
}

/* Against the rule itself, a search through all workers for each job: who has what, in which order, each job once. */
static void check_deal(int n, int n_workers, int group, uint64_t seed)
{
    int cost[256] = {0}, first[64], next[256], dealt_to[256];
    long load[64] = {0};
    for (int i = 0; i < n; i++)
        cost[i] = 1 + (int)(rng_u64(seed, (uint64_t)i) % 50);
    lpt_schedule(cost, group, n, n_workers, first, next);
    for (int j = 0; j < n; j++) {
        int least = 0;
        for (int w = 1; w < n_workers; w++)
            if (load[w] < load[least])
                least = w;
        dealt_to[j] = least;
        load[least] += cost[j / group];
    }
    int n_done = 0;
    for (int w = 0; w < n_workers; w++)
        for (int j = first[w], before = n; j < n; before = j, j = next[j], n_done++) {
            assert_int_equal(dealt_to[j], w);
            assert_true(j < before);
        }
    assert_int_equal(n_done, n);
}

static void jobs_go_to_who_has_least(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++)
        check_deal((int)(rng_u64(seed, 1000) % 257), 1 + (int)(rng_u64(seed, 1001) % 64),
                   1 + (int)(rng_u64(seed, 1002) % 8), seed);
    lpt_schedule(NULL, 1, 0, 0, NULL, NULL);
}

/* What is allocated is aligned and apart from the rest; the limit holds, and does not spoil what is there. */
static void arenas_are_bounded(void **state)
{
    (void)state;
    arena a = {.limit = 1 << 20};
    size_t n = 0;
    char *last = NULL;
    for (char *p; (p = arena_alloc(&a, n % 700)); n++) {
        assert_int_equal((uintptr_t)p % 16, 0);
        if (last)
            assert_int_equal(last[0], (char)n);
        memset(p, (char)(n + 1), n % 700);
        last = n % 700 ? p : NULL;
    }
    assert_true(n > 1000 && a.used <= a.limit);
    assert_null(arena_alloc(&a, 1 << 20));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_free(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(arena_alloc(&a, 1 << 20)); /* all of it in one piece */
    assert_null(arena_alloc(&a, 1));
    arena_free(&a);
}

static void expect_hidden(const char *message, const char *dir, const char *left)
{
    err e;
    err_set(&e, "%s", message);
    err_hide_folder(&e, dir);
    assert_string_equal(e.msg, left);
}

static void test_hidden_folders(void **state)
{
    (void)state;
    expect_hidden("/srv/a/x.json: not there", "/srv/a", "x.json: not there");
    expect_hidden("/srv/a: /srv/a/x and /srv/a/y", "/srv/a/", "x and y");
    expect_hidden("/srv/a is not a directory", "/srv/a", "the folder is not a directory");
    expect_hidden("nothing", "/srv/a", "nothing");
    expect_hidden("t or t", "t", "the folder or t");
    expect_hidden("x", "", "x");
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void memory_left_is_a_containers_too(void **state)
{
    (void)state;
    char dir[] = "/tmp/punica-group-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_true(mem_left_in_group(dir) == SIZE_MAX); /* there are no such files */
    assert_int_equal(chdir(dir), 0);
    write_file("memory.max", "max\n");
    write_file("memory.current", "700\n");
    assert_true(mem_left_in_group(dir) == SIZE_MAX);
    write_file("memory.max", "1000\n");
    assert_int_equal(mem_left_in_group(dir), 300);
    write_file("memory.stat", "anon 500\nfile 150\nfile_mapped 20\n");
    assert_int_equal(mem_left_in_group(dir), 450);
    write_file("memory.current", "2000\n");
    assert_int_equal(mem_left_in_group(dir), 0);
    assert_true(mem_available() > 0);
    unlink("memory.max");
    unlink("memory.current");
    unlink("memory.stat");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_folders),
        cmocka_unit_test(memory_left_is_a_containers_too),
        cmocka_unit_test(err_keeps_messages_to_one_line),
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(map_agrees_with_an_array),
        cmocka_unit_test(json_members_are_typed),
        cmocka_unit_test(deep_json_is_an_error),
        cmocka_unit_test(huge_integers_are_numbers),
        cmocka_unit_test(half_numbers),
        cmocka_unit_test(rng_is_a_function_of_seed_and_counter),
        cmocka_unit_test(jobs_go_to_who_has_least),
        cmocka_unit_test(arenas_are_bounded),
        cmocka_unit_test(fp8_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
