/* test_versions.c - what an adapter is: digests of files, when they are read again, and keys made of them */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "frontend/versions.h"
#include "support/test.h"
#include "worker/adapter_key.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

/* "abc" has a digest that everybody knows, however it is cut up. */
static void digests_are_those_of_sha256(void **state)
{
    (void)state;
    digest d;
    char hex[DIGEST_HEX];
    digest_of_parts(&d, (const digest_part[]){{"a", 1}, {"", 0}, {"bc", 2}}, 3);
    digest_to_hex(&d, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* In pieces of so many bytes; how many they were is told, if anybody asks. */
static int read_version(versions *v, const char *name, size_t piece, int *n_pieces, digest *d, err *e)
{
    version_reading *r = versions_begin(v, name);
    int status, n = 1;
    for (; (status = versions_read(r, piece, d, e)) > 0; n++)
        ;
    version_reading_free(r);
    if (n_pieces)
        *n_pieces = n;
    return status;
}

static void a_version_is_read_once_and_again_when_files_change(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_versions_XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *adapter = path_join(dir, "mine");
    assert_int_equal(mkdir(adapter, 0700), 0);
    write_file(adapter, "adapter_config.json", "a");
    err e;
    catalog *models = catalog_new("base", dir, NULL, 0, &e);
    versions *v = versions_new(models);
    digest d, again, abc;
    assert_false(versions_know(v, "mine", &d));
    assert_int_equal(read_version(v, "mine", 100, NULL, &d, &e), -1); /* it has no weights yet */
    write_file(adapter, "adapter_model.safetensors", "bc");
    assert_false(versions_know(v, "mine", &d));
    int n_pieces;
    assert_int_equal(read_version(v, "mine", 1, &n_pieces, &d, &e), 0);
    assert_int_equal(n_pieces, 3);
    digest_of_parts(&abc, (const digest_part[]){{"abc", 3}}, 1);
    assert_memory_equal(&d, &abc, sizeof d);
    assert_true(versions_know(v, "mine", &again));
    assert_memory_equal(&d, &again, sizeof d);
    write_file(adapter, "adapter_model.safetensors", "other");
    assert_false(versions_know(v, "mine", &again));
    assert_int_equal(read_version(v, "mine", 100, NULL, &again, &e), 0);
    assert_memory_not_equal(&d, &again, sizeof d);
    assert_false(versions_know(v, "yours", &d));
    assert_int_equal(read_version(v, "yours", 100, NULL, &d, &e), -1);
    char *weights = path_join(adapter, "adapter_model.safetensors"); /* nobody waits for a FIFO, nor reads a device */
    assert_int_equal(unlink(weights) | mkfifo(weights, 0600), 0);
    assert_int_equal(read_version(v, "mine", 100, NULL, &d, &e), -1);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(unlink(weights) | symlink("/dev/zero", weights), 0);
    assert_int_equal(read_version(v, "mine", 100, NULL, &d, &e), -1);
    free(weights);
    versions_free(v);
    catalog_free(models);
    char *command = xasprintf("rm -r %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(adapter);
}

static void a_key_has_a_name_and_perhaps_a_digest(void **state)
{
    (void)state;
    digest d;
    digest_of_parts(&d, (const digest_part[]){{"abc", 3}}, 1);
    const char *hex;
    buf key = {0};
    adapter_key_make(&key, "me@home", d.byte, DIGEST_BYTES);
    assert_int_equal(adapter_key_split(key.data, &hex), strlen("me@home"));
    assert_int_equal(strncmp(hex, "ba7816bf", 8), 0);
    adapter_key_make(&key, "me@home", NULL, 0);
    assert_string_equal(key.data, "me@home");
    assert_int_equal(adapter_key_split(key.data, &hex), strlen("me@home"));
    assert_null(hex);
    buf_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(digests_are_those_of_sha256),
                                       cmocka_unit_test(a_version_is_read_once_and_again_when_files_change),
                                       cmocka_unit_test(a_key_has_a_name_and_perhaps_a_digest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
