/* test_sandbox.c - what a process that has given things up cannot do any more, and what it still can */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sandbox.h"
#include "support/test.h"

static char folder[64], file[80], other[80];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/punica-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "text", 4), 4);
    close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(file);
    unlink(other);
    rmdir(folder);
    return 0;
}

/* What the last call said: 0, or why not. */
static int why(long result)
{
    return result < 0 ? errno : 0;
}

/* In a process of its own; a check that fails ends it with the line's number. */
#define EXPECT(x)                                                                         \
    do {                                                                                  \
        if (!(x)) {                                                                       \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #x, strerror(errno)); \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)

static void in_a_process(void (*what)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        what();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *in_a_thread(void *result)
{
    *(int *)result = why(socket(AF_INET, SOCK_STREAM, 0));
    return result;
}

static void cannot_write(void)
{
    struct rlimit limit;
    sandbox_worker_files(NULL);
    EXPECT(why(open(file, O_WRONLY)) == EACCES);
    EXPECT(why(open(file, O_RDWR)) == EACCES);
    EXPECT(why(open(file, O_RDONLY | O_TRUNC)) == EACCES);
    EXPECT(why(open(other, O_WRONLY | O_CREAT, 0600)) == EACCES);
    EXPECT(why(unlink(file)) == EACCES);
    EXPECT(why(rename(file, other)) == EACCES || errno == EXDEV);
    EXPECT(why(mkdir(other, 0700)) == EACCES);
    EXPECT(why(symlink("x", other)) == EACCES);
    EXPECT(why(truncate(file, 0)) == EACCES);
    int fd = open(file, O_RDONLY);
    char text[8];
    EXPECT(fd >= 0 && read(fd, text, 8) == 4);
    EXPECT(mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
    EXPECT(open("/dev/null", O_WRONLY) >= 0);
    EXPECT(memfd_create("x", 0) >= 0);
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void worker_files_are_read_only(void **state)
{
    (void)state;
    in_a_process(cannot_write);
    assert_int_equal(access(file, R_OK), 0);
}

static void can_write_cache(void)
{
    sandbox_worker_files(folder);
    EXPECT(open(file, O_WRONLY) >= 0);
    EXPECT(open(other, O_WRONLY | O_CREAT, 0600) >= 0);
    EXPECT(why(open("/tmp/punica-test-elsewhere", O_WRONLY | O_CREAT, 0600)) == EACCES);
}

static void a_cache_may_be_written(void **state)
{
    (void)state;
    in_a_process(can_write_cache);
}

static pthread_barrier_t filtered;

static void *started_before(void *result)
{
    pthread_barrier_wait(&filtered);
    return in_a_thread(result);
}

static void cannot_reach_out(void)
{
    int in_old = 0, in_new = 0;
    pthread_t old, new;
    struct rlimit limit;
    char *const argv[] = {"true", NULL};
    pthread_barrier_init(&filtered, NULL, 2);
    pthread_create(&old, NULL, started_before, &in_old);
    sandbox_worker_calls(false);
    EXPECT(why(socket(AF_INET, SOCK_STREAM, 0)) == EPERM);
    EXPECT(why(socket(AF_UNIX, SOCK_STREAM, 0)) == EPERM);
    EXPECT(why(execv("/bin/true", argv)) == EPERM);
    EXPECT(why(mount("a", "b", "c", 0, NULL)) == EPERM);
    EXPECT(why(syscall(SYS_io_uring_setup, 1, NULL)) == EPERM);
    EXPECT(why(kill(getppid(), 0)) == EPERM);
    EXPECT(why(kill(0, 0)) == EPERM);
    EXPECT(why(syscall(SYS_prlimit64, getppid(), RLIMIT_NOFILE, NULL, &limit)) == EPERM);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT(why(fork()) == EPERM);
    EXPECT(why(syscall(SYS_ptrace, 0, 0, 0, 0)) == EPERM);
#endif
    EXPECT(kill(getpid(), 0) == 0 && raise(0) == 0);
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT(pthread_create(&new, NULL, in_a_thread, &in_new) == 0);
    pthread_barrier_wait(&filtered);
    pthread_join(old, NULL);
    pthread_join(new, NULL);
    EXPECT(in_old == EPERM && in_new == EPERM);
}

static void a_worker_reaches_nobody(void **state)
{
    (void)state;
    in_a_process(cannot_reach_out);
}

/* A CHECK, or what a sanitizer finds, must still end it. */
static void dies_of_abort(void)
{
    sandbox_worker_calls(false);
    abort();
}

static void a_worker_can_still_die(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        dies_of_abort();
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void frontend_does_its_work_only(void)
{
    char *const argv[] = {"true", NULL};
    sandbox_role(false);
    EXPECT(socket(AF_INET, SOCK_STREAM, 0) >= 0);
    EXPECT(open(other, O_WRONLY | O_CREAT, 0600) >= 0);
    EXPECT(why(execv("/bin/true", argv)) == EPERM);
    EXPECT(why(mount("a", "b", "c", 0, NULL)) == EPERM);
    EXPECT(why(chown(file, 1, 1)) == EPERM); /* also root */
}

static void roles_keep_what_they_need(void **state)
{
    (void)state;
    in_a_process(frontend_does_its_work_only);
}

static void runner_starts_programs(void)
{
    char *const argv[] = {"true", NULL};
    sandbox_role(true);
    EXPECT(why(syscall(SYS_io_uring_setup, 1, NULL)) == EPERM);
    execv("/bin/true", argv);
    EXPECT(!"it runs");
}

static void a_runner_may_start_workers(void **state)
{
    (void)state;
    in_a_process(runner_starts_programs);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(worker_files_are_read_only), TEST(a_cache_may_be_written),    TEST(a_worker_reaches_nobody),
        TEST(a_worker_can_still_die),     TEST(roles_keep_what_they_need), TEST(a_runner_may_start_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
