/* test_log.c - what a log line looks like, and which are written */
#include <regex.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "test.h"

static int kept_stderr, from;

/* Standard error into a pipe. */
static int setup(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    kept_stderr = dup(STDERR_FILENO);
    dup2(fd[1], STDERR_FILENO);
    close(fd[1]);
    from = fd[0];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    close(from);
    log_set_level(LOG_INFO);
    return 0;
}

/* What was written since, and a mark behind it, so that nothing is something too. */
static void written(char out[4096])
{
    assert_int_equal(write(STDERR_FILENO, "$", 1), 1);
    ssize_t n = read(from, out, 4095);
    assert_true(n > 0 && out[n - 1] == '$');
    out[n - 1] = '\0';
}

static void a_line_has_time_level_and_message(void **state)
{
    (void)state;
    char text[4096];
    log_warn("%s has %d", "it", 7);
    written(text);
    regex_t form;
    assert_int_equal(regcomp(&form, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z warn it has 7\n$", REG_EXTENDED | REG_NOSUB), 0);
    assert_int_equal(regexec(&form, text, 0, NULL, 0), 0);
    regfree(&form);
}

static void what_is_less_urgent_is_not_written(void **state)
{
    (void)state;
    char text[4096];
    log_level level;
    err e;
    log_debug("not yet");
    written(text);
    assert_string_equal(text, "");
    assert_int_equal(log_parse_level("debug", &level, &e), 0);
    log_set_level(level);
    log_debug("now");
    written(text);
    assert_non_null(strstr(text, " debug now\n"));
    assert_int_equal(log_parse_level("loud", &level, &e), -1);
    assert_non_null(strstr(e.msg, "loud"));
}

/* What comes from a peer cannot forge a line. */
static void a_message_is_one_line_of_bounded_length(void **state)
{
    (void)state;
    char text[4096], long_text[3000];
    log_error("a\nb\x1b[2Jc");
    written(text);
    assert_non_null(strstr(text, " error a?b?[2Jc\n"));
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    log_error("%s", long_text);
    written(text);
    assert_true(strlen(text) > 1000 && strlen(text) <= 1200);
    assert_int_equal(text[strlen(text) - 1], '\n');
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_has_time_level_and_message),
        TEST(what_is_less_urgent_is_not_written),
        TEST(a_message_is_one_line_of_bounded_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
