/* test_secret.c - which secrets are accepted, from where */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/secret.h"
#include "support/test.h"

#define GOOD "4f6b0c2a9d1e8573b6a0c4d2e8f19375"
#define OTHER "another one that nobody will guess"

static void weak_ones_are_refused(void **state)
{
    (void)state;
    static const char *const weak[] = {"",
                                       "secret",
                                       "hunter2hunter2",
                                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                       "1234567890123456",
                                       "abcdefghijklmnopqrstuvwxyz",
                                       "0000000000000001",
                                       "abababababababababababab"};
    static const char *const strong[] = {GOOD, OTHER, "the secret of the tests", "q8Zr-1vTz_0pLw7x"};
    err e;
    for (size_t i = 0; i < sizeof weak / sizeof *weak; i++) {
        assert_int_equal(secret_check(weak[i], "its file", &e), -1);
        assert_true(strstr(e.msg, "its file") && strstr(e.msg, "openssl rand -hex 32"));
    }
    for (size_t i = 0; i < sizeof strong / sizeof *strong; i++)
        assert_int_equal(secret_check(strong[i], "its file", &e), 0);
}

/* secrets_read() of a file with this text and mode. */
static int read_file(const char *text, mode_t mode, char *secret[MAX_SECRETS], err *e)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/punica-test-%d.secret", (int)getpid());
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
    int status = secrets_read(path, secret, e);
    remove(path);
    return status;
}

static void expect(const char *text, const char *first, const char *second)
{
    char *secret[MAX_SECRETS];
    err e = {0};
    if (read_file(text, 0600, secret, &e))
        fail_msg("%s", e.msg);
    assert_string_equal(secret[0], first);
    if (second)
        assert_string_equal(secret[1], second);
    else
        assert_null(secret[1]);
    free(secret[0]);
    free(secret[1]);
}

static void a_file_has_one_secret_or_two(void **state)
{
    (void)state;
    char *secret[MAX_SECRETS];
    err e;
    expect(GOOD, GOOD, NULL);
    expect(GOOD "\r\n\n", GOOD, NULL);
    expect(GOOD "\n" OTHER "\n", GOOD, OTHER);
    assert_int_equal(read_file("\n", 0600, secret, &e), -1);
    assert_int_equal(read_file(GOOD "\nweak\n", 0600, secret, &e), -1);
    assert_true(!secret[0] && strstr(e.msg, "shorter"));
    assert_int_equal(read_file(GOOD "\n" OTHER "\n" GOOD "\n", 0600, secret, &e), -1);
    assert_non_null(strstr(e.msg, "more than 2 lines"));
}

static void a_file_that_lies_open_is_refused(void **state)
{
    (void)state;
    static const mode_t open_to_others[] = {0644, 0604, 0660, 0602, 0666}, closed[] = {0600, 0400, 0640, 0440};
    char *secret[MAX_SECRETS];
    err e;
    for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
        assert_int_equal(read_file(GOOD, open_to_others[i], secret, &e), -1);
        assert_true(strstr(e.msg, "chmod 600") && strstr(e.msg, ".secret"));
    }
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        assert_int_equal(read_file(GOOD, closed[i], secret, &e), 0);
        free(secret[0]);
    }
}

/* What /proc shows of the environment is where it was when the process began: nothing of it may be left there. */
static void the_environment_forgets_it(void **state)
{
    (void)state;
    char *secret[MAX_SECRETS];
    err e;
    assert_int_equal(secrets_read(NULL, secret, &e), -1);
    assert_non_null(strstr(e.msg, "--secret-file"));
    char *value = strdup("PUNICA_SECRET=" GOOD);
    putenv(value);
    secret_hide_environment();
    assert_null(getenv("PUNICA_SECRET"));
    assert_null(strstr(value, GOOD));
    assert_int_equal(secrets_read(NULL, secret, &e), 0);
    assert_string_equal(secret[0], GOOD);
    assert_null(secret[1]);
    free(secret[0]);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weak_ones_are_refused),
        cmocka_unit_test(a_file_has_one_secret_or_two),
        cmocka_unit_test(a_file_that_lies_open_is_refused),
        cmocka_unit_test(the_environment_forgets_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
