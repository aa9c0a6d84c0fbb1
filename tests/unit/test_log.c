/* test_log.c - what a log line looks like, which are written, and that nobody waits for them */
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "support/test.h"

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
    assert_int_equal(
        regcomp(&form, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z warn it has 7\n$", REG_EXTENDED | REG_NOSUB),
        0);
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

/* Put as much into the pipe as it takes. */
static size_t fill_pipe(void)
{
    char full[4096];
    size_t n = 0;
    memset(full, '.', sizeof full);
    int again = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK);
    for (ssize_t k; (k = write(again, full, sizeof full)) > 0;)
        n += (size_t)k;
    close(again);
    return n;
}

static void drain_pipe(size_t n)
{
    char part[4096];
    while (n > 0) {
        ssize_t k = read(from, part, n < sizeof part ? n : sizeof part);
        assert_true(k > 0);
        n -= (size_t)k;
    }
}

/* What the next line says, behind time and level. */
static const char *next_line(char line[2048])
{
    size_t n = 0;
    do
        assert_int_equal(read(from, line + n, 1), 1);
    while (line[n++] != '\n' && n < 2047);
    line[n] = '\0';
    assert_true(n > 30 && line[23] == 'Z');
    return strchr(line + 25, ' ') + 1;
}

/* 5000 lines are more than memory is kept for: the first come in order, then it is said how many were lost. */
static void a_full_pipe_blocks_nobody_and_losses_are_told(void **state)
{
    (void)state;
    enum { N = 5000 };
    char line[2048];
    unsigned n, kept = 0, lost = 0;
    const char *text;
    size_t full = fill_pipe();
    alarm(20);
    for (int i = 0; i < N; i++)
        log_info("%05d %s", i, "a line that is about one hundred bytes long, so that it does not take many");
    drain_pipe(full);
    while (strstr(text = next_line(line), "a line that is") && sscanf(text, "%05u", &n) == 1)
        assert_int_equal(n, kept++);
    assert_int_equal(sscanf(text, "%u lines of this log were lost", &lost), 1);
    assert_int_equal(kept + lost, N);
    assert_true(kept > 1000 && kept < N);
    log_info("and on it goes");
    assert_string_equal(next_line(line), "and on it goes\n");
    alarm(0);
}

/* Whoever else has the pipe open must not find that it does not wait any more. */
static void standard_error_stays_as_it_was_for_others(void **state)
{
    (void)state;
    char text[4096];
    log_info("something");
    written(text);
    assert_false(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK);
}

/* A process that ends while lines wait: both by exit() and by abort(), with somebody who reads late. */
static void expect_last_words(void (*end)(void))
{
    char line[2048];
    size_t full = fill_pipe();
    pid_t pid = fork();
    if (pid == 0) {
        log_catch_crashes();
        log_info("first");
        log_info("last");
        end();
    }
    usleep(100000);
    drain_pipe(full);
    assert_string_equal(next_line(line), "first\n");
    assert_string_equal(next_line(line), "last\n");
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 7);
}

static void end_well(void)
{
    exit(7);
}

static void the_last_lines_of_a_process_get_out(void **state)
{
    (void)state;
    alarm(20);
    expect_last_words(end_well);
    expect_last_words(abort);
    alarm(0);
}

static void one_that_nobody_reads_ends_all_the_same(void **state)
{
    (void)state;
    fill_pipe();
    alarm(20);
    pid_t pid = fork();
    if (pid == 0) {
        log_catch_crashes();
        log_info("nobody will see this");
        abort();
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    alarm(0);
}

/* journald gives a socket. */
static void a_socket_that_is_full_blocks_nobody(void **state)
{
    (void)state;
    int pair[2];
    char line[2048];
    unsigned n, kept = 0, lost = 0;
    const char *text;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    dup2(pair[1], STDERR_FILENO);
    close(pair[1]);
    dup2(pair[0], from);
    close(pair[0]);
    alarm(20);
    for (int i = 0; i < 20000; i++)
        log_info("%05d %s", i, "a line that is about one hundred bytes long, so that it does not take many");
    while (strstr(text = next_line(line), "a line that is") && sscanf(text, "%05u", &n) == 1)
        assert_int_equal(n, kept++);
    assert_int_equal(sscanf(text, "%u lines of this log were lost", &lost), 1);
    assert_int_equal(kept + lost, 20000);
    alarm(0);
}

static size_t size_of(const char *path)
{
    struct stat is;
    return stat(path, &is) ? 0 : (size_t)is.st_size;
}

static void a_log_file_is_opened_anew(void **state)
{
    (void)state;
    char path[64], old[80];
    err e;
    snprintf(path, sizeof path, "/tmp/punica-test-%d.log", (int)getpid());
    snprintf(old, sizeof old, "%s.1", path);
    assert_int_equal(log_open_file(path, &e), 0);
    log_info("one");
    assert_int_equal(rename(path, old), 0);
    size_t before = size_of(old);
    log_info("two, in the file that was renamed");
    assert_true(size_of(old) > before);
    before = size_of(old);
    assert_int_equal(log_open_file(path, &e), 0);
    log_info("three");
    assert_true(size_of(old) == before && size_of(path) > 0);
    assert_int_equal(log_open_file("/nowhere/at/all", &e), -1);
    assert_non_null(strstr(e.msg, "/nowhere/at/all"));
    before = size_of(path);
    log_info("four, as before");
    assert_true(size_of(path) > before);
    remove(path);
    remove(old);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_has_time_level_and_message),
        TEST(what_is_less_urgent_is_not_written),
        TEST(a_message_is_one_line_of_bounded_length),
        TEST(a_full_pipe_blocks_nobody_and_losses_are_told),
        TEST(standard_error_stays_as_it_was_for_others),
        TEST(the_last_lines_of_a_process_get_out),
        TEST(one_that_nobody_reads_ends_all_the_same),
        TEST(a_socket_that_is_full_blocks_nobody),
        TEST(a_log_file_is_opened_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
