/* test_disk_cache.c - adapters on disk: limit and order of eviction, pins, several processes, death anywhere */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/adapter_files.h"
#include "registry/disk_cache.h"
#include "support/model_files.h"
#include "support/test.h"

/* An adapter of about 1000 bytes, unlike all others. Its id into id. */
static void make_adapter(const char *tree, int number, char id[ADAPTER_ID])
{
    char weights[1000], config[16];
    err e;
    digest d;
    memset(weights, number, sizeof weights);
    snprintf(config, sizeof config, "%d", number);
    CHECK(mkdir(tree, 0700) == 0);
    put_file(tree, "adapter_config.json", config, strlen(config));
    put_file(tree, "adapter_model.safetensors", weights, sizeof weights);
    digest_of_parts(&d, (const digest_part[]){{config, strlen(config)}, {weights, sizeof weights}}, 2);
    char hex[DIGEST_HEX];
    digest_to_hex(&d, hex);
    CHECK(adapter_id_make(id, tree, hex, &e) == 0);
}

/* 0 and *p pins it, or -1. */
static int add(disk_cache *c, int number, char id[ADAPTER_ID], disk_pin *p, err *e)
{
    disk_work w;
    char key[16];
    snprintf(key, sizeof key, "key%d", number);
    if (disk_cache_begin(c, key, clock_now() + 10, NULL, &w, e))
        return -1;
    char *tree = path_join(w.dir, "tree");
    make_adapter(tree, number, id);
    int status = disk_cache_keep(c, &w, tree, id, p, e);
    if (status)
        disk_cache_leave(c, &w, true);
    free(tree);
    return status;
}

static void add_unpinned(disk_cache *c, int number, char id[ADAPTER_ID])
{
    disk_pin p;
    err e;
    assert_int_equal(add(c, number, id, &p, &e), 0);
    disk_cache_unpin(&p);
    usleep(2000); /* times of use are those of the file system, which counts in milliseconds */
}

static bool is_there(const disk_cache *c, const char *id)
{
    disk_pin p;
    bool there = disk_cache_pin(c, id, &p);
    disk_cache_unpin(&p);
    return there;
}

static bool is_on_disk(const char *dir, const char *id)
{
    char *path = path_join(dir, id);
    bool is = file_is_dir(path);
    free(path);
    return is;
}

static void what_was_used_longest_ago_goes_and_what_is_pinned_stays(void **state)
{
    (void)state;
    char *dir = make_dir(), id[8][ADAPTER_ID];
    err e;
    disk_cache *c = disk_cache_open(dir, 3500, &e), *other = disk_cache_open(dir, 3500, &e);
    assert_true(c && other);
    for (int i = 0; i < 3; i++)
        add_unpinned(c, i, id[i]);
    disk_pin first, p;
    assert_true(disk_cache_pin(other, id[0], &first));
    usleep(2000);
    add_unpinned(c, 3, id[3]);
    assert_true(is_on_disk(dir, id[0]) && !is_on_disk(dir, id[1]) && is_on_disk(dir, id[2]));
    usleep(2000);
    assert_true(is_there(c, id[2])); /* a use */
    usleep(2000);
    add_unpinned(c, 4, id[4]);
    assert_true(is_on_disk(dir, id[0]) && is_on_disk(dir, id[2]) && !is_on_disk(dir, id[3]) && is_on_disk(dir, id[4]));
    disk_cache_unpin(&first);
    disk_usage u = disk_cache_usage(c);
    assert_int_equal(u.n_adapters, 3);
    assert_true(u.bytes > 2000 && u.bytes <= 3500);
    add_unpinned(c, 2, id[5]); /* what is there already is as good */
    assert_string_equal(id[2], id[5]);
    assert_true(!is_on_disk(dir, id[0]) && is_on_disk(dir, id[2]) &&
                is_on_disk(dir, id[4])); /* pinned no more, and oldest */
    assert_false(disk_cache_pin(c, "../x", &p));
    disk_cache_close(other);
    disk_cache_close(c);
    drop_dir(dir);
}

/* ctx: the id of one that must stay. */
static map *keep_one(void *ctx)
{
    map *kept = map_new(1);
    map_put(kept, ctx, strlen(ctx), 1);
    return kept;
}

static void a_cache_that_is_full_of_what_must_stay_refuses(void **state)
{
    (void)state;
    char *dir = make_dir(), first[ADAPTER_ID], id[ADAPTER_ID];
    err e;
    disk_pin pin[3];
    disk_cache *c = disk_cache_open(dir, 2500, &e);
    assert_int_equal(add(c, 1, first, &pin[0], &e), 0);
    assert_int_equal(add(c, 2, id, &pin[1], &e), 0);
    assert_int_equal(add(c, 3, id, &pin[2], &e), -1);
    assert_true(says(&e, "is full") && says(&e, "its limit is 2500"));
    disk_cache_unpin(&pin[0]);
    disk_cache_set_keeper(c, keep_one, first);
    assert_int_equal(add(c, 3, id, &pin[2], &e), -1);
    disk_cache_set_keeper(c, NULL, NULL);
    assert_int_equal(add(c, 3, id, &pin[2], &e), 0);
    disk_cache_unpin(&pin[1]);
    disk_cache_unpin(&pin[2]);
    disk_cache_close(c);
    c = disk_cache_open(dir, 900, &e);
    assert_int_equal(add(c, 4, id, &pin[0], &e), -1);
    assert_true(says(&e, "it is 1001 bytes"));
    disk_cache_close(c);
    drop_dir(dir);
}

/* On a disk without room, whatever the limit: all that may go goes, and nothing else. */
static void what_may_go_makes_room_on_a_full_disk(void **state)
{
    (void)state;
    char *dir = make_dir(), id[4][ADAPTER_ID];
    err e;
    disk_pin pin;
    disk_cache *c = disk_cache_open(dir, 0, &e);
    for (int i = 0; i < 4; i++)
        add_unpinned(c, i, id[i]);
    assert_true(disk_cache_pin(c, id[1], &pin));
    disk_cache_set_keeper(c, keep_one, id[2]);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), good = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_int_equal(disk_cache_write(c, good, "text", 4, &e), 0);
    assert_int_equal(disk_cache_usage(c).n_adapters, 4);
    assert_int_equal(disk_cache_write(NULL, full, "text", 4, &e), -1);
    assert_true(e.is_local && says(&e, "No space left"));
    assert_int_equal(disk_cache_write(c, full, "text", 4, &e), -1);
    assert_true(e.is_local && says(&e, "the disk is full"));
    assert_true(!is_on_disk(dir, id[0]) && is_on_disk(dir, id[1]) && is_on_disk(dir, id[2]) && !is_on_disk(dir, id[3]));
    close(full);
    close(good);
    disk_cache_unpin(&pin);
    disk_cache_close(c);
    drop_dir(dir);
}

/* A disk that has lost bytes does not keep an adapter broken for ever. */
static void what_is_broken_on_disk_is_put_right(void **state)
{
    (void)state;
    char *dir = make_dir(), id[ADAPTER_ID], again[ADAPTER_ID];
    err e;
    disk_cache *c = disk_cache_open(dir, 0, &e);
    add_unpinned(c, 1, id);
    char *folder = path_join(dir, id), *weights = path_join(folder, "adapter_model.safetensors");
    assert_int_equal(truncate(weights, 10), 0);
    add_unpinned(c, 1, again);
    assert_int_equal(file_stamp_of(weights).size, 1000);
    char *found = disk_cache_find(dir, id);
    assert_string_equal(found, folder);
    free(found);
    assert_null(disk_cache_find(dir, "0000000000000000000000000000000000000000000000000000000000000000"));
    free(weights);
    free(folder);
    disk_cache_close(c);
    drop_dir(dir);
}

static void work_is_one_processs_and_is_found_again(void **state)
{
    (void)state;
    char *dir = make_dir();
    err e;
    disk_work w, second;
    disk_cache *c = disk_cache_open(dir, 0, &e);
    assert_int_equal(disk_cache_begin(c, "k", clock_now() + 1, NULL, &w, &e), 0);
    put_text(w.dir, "x.part", "half");
    assert_int_equal(disk_cache_begin(c, "k", clock_now() + 0.1, NULL, &second, &e), -1);
    assert_true(says(&e, "another fetches it"));
    disk_cache_leave(c, &w, false);
    disk_cache_close(c);
    c = disk_cache_open(dir, 0, &e);
    assert_int_equal(disk_cache_begin(c, "k", clock_now() + 1, NULL, &w, &e), 0);
    char *part = path_join(w.dir, "x.part"), *folder = xstrdup(w.dir);
    assert_int_equal(file_stamp_of(part).size, 4);
    disk_cache_leave(c, &w, false);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 2 * 24 * 3600}, {.tv_sec = time(NULL) - 2 * 24 * 3600}};
    assert_int_equal(utimensat(AT_FDCWD, folder, old, 0), 0);
    disk_cache_close(c);
    c = disk_cache_open(dir, 0, &e);
    assert_false(file_exists(folder)); /* nobody came back for it in a day */
    free(part);
    free(folder);
    disk_cache_close(c);
    drop_dir(dir);
}

/* Adds and thereby evicts until it is killed. */
static void add_for_ever(const char *dir, int seed)
{
    err e;
    disk_cache *c = disk_cache_open(dir, 3500, &e);
    for (int i = 0;; i++) {
        char id[ADAPTER_ID];
        disk_pin p;
        if (c && add(c, (seed * 7 + i * 5) % 23, id, &p, &e) == 0)
            disk_cache_unpin(&p);
    }
}

/* Every folder with an id has the content that the id says. */
static int check_all(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (const struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] == '.')
            continue;
        char *folder = path_join(dir, f->d_name), *config = path_join(folder, "adapter_config.json");
        char *weights = path_join(folder, "adapter_model.safetensors"), hex[DIGEST_HEX];
        digest is;
        err e;
        digest_reader *r = digest_reader_new((const char *const[]){config, weights}, 2);
        assert_int_equal(digest_reader_go_on(r, SIZE_MAX, &is, &e), 0);
        digest_reader_free(r);
        digest_to_hex(&is, hex);
        assert_string_equal(hex, f->d_name);
        free(weights);
        free(config);
        free(folder);
        n++;
    }
    closedir(d);
    return n;
}

static bool is_empty(const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    DIR *d = opendir(path);
    int n = -2;
    for (; readdir(d); n++)
        ;
    closedir(d);
    free(path);
    return n == 0;
}

static void processes_that_die_anywhere_leave_whole_adapters_only(void **state)
{
    (void)state;
    char *dir = make_dir();
    err e;
    int most = 0;
    for (int round = 0; round < 40; round++) {
        pid_t pid[2];
        for (int i = 0; i < 2; i++)
            if ((pid[i] = fork()) == 0)
                add_for_ever(dir, round * 2 + i);
        usleep((useconds_t)(2000 + round * 977 % 15000));
        for (int i = 0; i < 2; i++) {
            kill(pid[i], SIGKILL);
            assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
        }
        int n = check_all(dir);
        most = n > most ? n : most;
        disk_cache *c = disk_cache_open(dir, 3500, &e);
        assert_non_null(c);
        assert_true(is_empty(dir, ".trash"));
        char id[ADAPTER_ID];
        add_unpinned(c, 100 + round, id); /* it works, and within its limit */
        assert_true(is_there(c, id));
        assert_true(disk_cache_usage(c).bytes <= 3500);
        disk_cache_close(c);
    }
    assert_true(most >= 2); /* else nothing was tried */
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_used_longest_ago_goes_and_what_is_pinned_stays),
        cmocka_unit_test(a_cache_that_is_full_of_what_must_stay_refuses),
        cmocka_unit_test(what_may_go_makes_room_on_a_full_disk),
        cmocka_unit_test(what_is_broken_on_disk_is_put_right),
        cmocka_unit_test(work_is_one_processs_and_is_found_again),
        cmocka_unit_test(processes_that_die_anywhere_leave_whole_adapters_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
