/* test_registry.c - names and their versions: add, replace, roll back, remove; interrupted changes; what the cache
 * keeps */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/registry.h"
#include "support/model_files.h"
#include "support/test.h"

typedef struct {
    char *dir;
    disk_cache *cache;
    registry *names;
} setting;

static void open_all(setting *s, size_t max_bytes)
{
    err e;
    s->cache = disk_cache_open(s->dir, max_bytes, &e);
    assert_non_null(s->cache);
    s->names = registry_open(s->dir, s->cache, &e);
    assert_non_null(s->names);
}

static void close_all(setting *s)
{
    registry_close(s->names);
    disk_cache_close(s->cache);
}

/* An adapter of 1000 bytes into the cache; its version. */
static adapter_version make(setting *s, int number, disk_pin *pin)
{
    char weights[1000], key[16], hex[DIGEST_HEX];
    adapter_version v = {.source = (char *)"file:/x",
                         .revision = (char *)"",
                         .by = (char *)"me",
                         .at = 1000 + number,
                         .bytes = 1000,
                         .rank = 8};
    disk_work w;
    digest d;
    err e;
    memset(weights, number, sizeof weights);
    snprintf(key, sizeof key, "%d", number);
    assert_int_equal(disk_cache_begin(s->cache, key, clock_now() + 5, NULL, &w, &e), 0);
    char *tree = path_join(w.dir, "tree");
    assert_int_equal(mkdir(tree, 0700), 0);
    put_text(tree, "adapter_config.json", "");
    put_file(tree, "adapter_model.safetensors", weights, sizeof weights);
    digest_of_parts(&d, (const digest_part[]){{weights, sizeof weights}}, 1);
    digest_to_hex(&d, hex);
    assert_int_equal(adapter_id_make(v.id, tree, hex, &e), 0);
    assert_int_equal(disk_cache_keep(s->cache, &w, tree, v.id, pin, &e), 0);
    free(tree);
    return v;
}

static adapter_version add(setting *s, const char *name, int number, bool replace)
{
    disk_pin pin;
    err e;
    adapter_version v = make(s, number, &pin);
    assert_int_equal(registry_add(s->names, name, &v, replace, &e), 0);
    disk_cache_unpin(&pin);
    return v;
}

/* Returns whether the name's link leads to the version's files. */
static bool serves(const setting *s, const char *name, const adapter_version *v)
{
    char *names = registry_names_dir(s->dir), *link = path_join(names, name), *is = path_resolve(link);
    char *wanted = path_join(s->dir, v->id), *should = path_resolve(wanted);
    bool same = is && should && strcmp(is, should) == 0;
    free(should);
    free(wanted);
    free(is);
    free(link);
    free(names);
    return same;
}

static void a_name_goes_forth_and_back(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    adapter_record r;
    disk_pin pin;
    err e;
    int n;
    open_all(&s, 0);
    adapter_version one = add(&s, "mine", 1, false), other = make(&s, 9, &pin);
    assert_true(serves(&s, "mine", &one));
    assert_int_equal(registry_add(s.names, "mine", &other, false, &e), -1);
    assert_true(says(&e, "there is an adapter 'mine' already"));
    disk_cache_unpin(&pin);
    adapter_version two = add(&s, "mine", 2, true);
    assert_true(serves(&s, "mine", &two));
    add(&s, "mine", 2, true); /* the same again is no new version */
    close_all(&s);
    open_all(&s, 0);
    assert_int_equal(registry_read(s.names, "mine", &r, &e), 0);
    assert_true(r.n == 2 && r.current == 1 && r.version[1].number == 2 && r.version[0].at == 1001 &&
                r.version[0].rank == 8);
    assert_string_equal(r.version[1].source, "file:/x");
    adapter_record_deinit(&r);
    assert_int_equal(registry_rollback(s.names, "mine", 0, &e), 0);
    assert_true(serves(&s, "mine", &one));
    assert_int_equal(registry_rollback(s.names, "mine", 0, &e), -1);
    assert_true(says(&e, "no version before number 1"));
    assert_int_equal(registry_rollback(s.names, "mine", 7, &e), -1);
    adapter_version three = add(&s, "mine", 3, true);
    assert_int_equal(registry_rollback(s.names, "mine", 2, &e), 0);
    assert_true(serves(&s, "mine", &two));
    assert_int_equal(registry_rollback(s.names, "mine", 3, &e), 0);
    assert_true(serves(&s, "mine", &three));
    char **list = registry_list(s.names, &n);
    assert_int_equal(n, 1);
    assert_string_equal(list[0], "mine");
    free(list[0]);
    free(list);
    assert_int_equal(registry_remove(s.names, "mine", &e), 0);
    assert_false(serves(&s, "mine", &three));
    assert_int_equal(registry_remove(s.names, "mine", &e), -1);
    assert_int_equal(registry_rollback(s.names, "mine", 0, &e), -1);
    close_all(&s);
    drop_dir(s.dir);
}

static void old_versions_are_forgotten_and_the_current_one_never(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    adapter_record r;
    err e;
    open_all(&s, 0);
    adapter_version first = add(&s, "mine", 1, true);
    add(&s, "mine", 2, true);
    assert_int_equal(registry_rollback(s.names, "mine", 1, &e), 0);
    for (int i = 3; i < 9; i++) {
        add(&s, "mine", i, true);
        assert_int_equal(registry_rollback(s.names, "mine", 1, &e), i < 3 + RECORD_VERSIONS - 2 ? 0 : -1);
    }
    assert_int_equal(registry_read(s.names, "mine", &r, &e), 0);
    assert_true(r.n == RECORD_VERSIONS && r.version[r.current].number == 8 && r.version[r.n - 1].number == 8);
    adapter_record_deinit(&r);
    assert_false(serves(&s, "mine", &first));
    close_all(&s);
    drop_dir(s.dir);
}

static void what_has_a_name_stays_in_the_cache(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    disk_pin pin;
    err e;
    open_all(&s, 3500);
    adapter_version one = add(&s, "mine", 1, false), two = add(&s, "mine", 2, true);
    for (int i = 3; i < 6; i++) {
        make(&s, i, &pin);
        disk_cache_unpin(&pin);
    }
    assert_true(disk_cache_pin(s.cache, one.id, &pin)); /* to be rolled back to */
    disk_cache_unpin(&pin);
    assert_true(serves(&s, "mine", &two));
    assert_int_equal(registry_remove(s.names, "mine", &e), 0);
    usleep(2000);
    for (int i = 6; i < 9; i++) {
        make(&s, i, &pin);
        disk_cache_unpin(&pin);
        usleep(2000);
    }
    assert_false(disk_cache_pin(s.cache, two.id, &pin));
    close_all(&s);
    drop_dir(s.dir);
}

/* A process died between the record and its link. */
static void an_interrupted_change_is_finished(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    open_all(&s, 0);
    adapter_version one = add(&s, "mine", 1, false);
    add(&s, "gone", 2, false);
    char *link = xasprintf("%s/names/mine", s.dir), *record = xasprintf("%s/versions/gone.json", s.dir),
         *gone = xasprintf("%s/names/gone", s.dir);
    close_all(&s);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("../elsewhere", link), 0);
    assert_int_equal(unlink(record), 0);
    open_all(&s, 0);
    assert_true(serves(&s, "mine", &one));
    struct stat st;
    assert_int_equal(lstat(gone, &st), -1);
    free(gone);
    free(record);
    free(link);
    close_all(&s);
    drop_dir(s.dir);
}

/* The first of the record's bytes are written: that is no success, and the reason comes with the next. */
static void a_full_disk_is_named(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    struct rlimit was, few;
    disk_pin pin;
    err e;
    open_all(&s, 0);
    adapter_version one = add(&s, "mine", 1, false), two = make(&s, 2, &pin);
    getrlimit(RLIMIT_FSIZE, &was);
    few = (struct rlimit){.rlim_cur = 50, .rlim_max = was.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &few);
    assert_int_equal(registry_add(s.names, "mine", &two, true, &e), -1);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_true(says(&e, "File too large"));
    assert_true(serves(&s, "mine", &one));
    disk_cache_unpin(&pin);
    close_all(&s);
    drop_dir(s.dir);
}

static void bad_names_and_records_are_refused(void **state)
{
    (void)state;
    setting s = {.dir = make_dir()};
    static const char *const bad[] = {"", ".", "..", "a/b", "../a", ".hidden", "a\nb"};
    adapter_record r;
    err e;
    open_all(&s, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(registry_add(s.names, bad[i], &(adapter_version){0}, true, &e), -1);
        assert_int_equal(registry_read(s.names, bad[i], &r, &e), -1);
        assert_int_equal(registry_remove(s.names, bad[i], &e), -1);
    }
    static const char *const broken[] = {"",
                                         "[]",
                                         "{}",
                                         "{'current': 1, 'versions': []}",
                                         "{'current': 1, 'versions': [{'version': 1, 'id': '../x'}]}",
                                         "{'current': 1, 'versions': 7}",
                                         "{'current': 'x', 'versions': [{}]}"};
    char *versions = path_join(s.dir, "versions");
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        put_text(versions, "mine.json", broken[i]);
        assert_int_equal(registry_read(s.names, "mine", &r, &e), -1);
        assert_true(says(&e, "mine.json"));
    }
    free(versions);
    close_all(&s);
    drop_dir(s.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_goes_forth_and_back),
        cmocka_unit_test(old_versions_are_forgotten_and_the_current_one_never),
        cmocka_unit_test(what_has_a_name_stays_in_the_cache),
        cmocka_unit_test(an_interrupted_change_is_finished),
        cmocka_unit_test(a_full_disk_is_named),
        cmocka_unit_test(bad_names_and_records_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
