/* sandbox.c - see sandbox.h
 *
 * A filter is a denylist: a worker runs libraries (CUDA's) whose system calls cannot be listed, but none of them
 * connects, starts programs or mounts. Filters are BPF, written out here: one comparison for each call of a list, all
 * of which jump to the same refusal. */
#include "base/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"

#if defined(__SANITIZE_ADDRESS__)
#define TRACES_ITSELF 1 /* LeakSanitizer starts a process that traces this one */
#else
#define TRACES_ITSELF 0
#endif

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

/* Calls that no role needs: other processes' memory, mounts, modules, clocks, the kernel's tools. io_uring would bypass
 * the filter. */
static const int of_nobody[] = {
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_syslog,
    SYS_vhangup,
    SYS_open_by_handle_at,
    SYS_personality,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_pidfd_getfd,
    SYS_mount_setattr,
#if !TRACES_ITSELF
    SYS_ptrace,
#endif
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
};

static const int starts_programs_by[] = {SYS_execve, SYS_execveat};

static const int uses_network_by[] = {SYS_socket, SYS_socketpair, SYS_bind,   SYS_connect,
                                      SYS_listen, SYS_accept,     SYS_accept4};

static const int of_no_worker[] = {
    SYS_pidfd_send_signal,
    SYS_tkill,
#if defined(SYS_fork) && !TRACES_ITSELF
    SYS_fork,
    SYS_vfork,
#endif
};

enum { MAX_FILTER = 256 };
typedef struct {
    struct sock_filter at[MAX_FILTER];
    unsigned short n;
} filter;

#define ARGUMENT(i) (offsetof(struct seccomp_data, args) + 8 * (i)) /* its lower half (little-endian) */
#define REFUSE(why) (SECCOMP_RET_ERRNO | (why))

static void add(filter *f, struct sock_filter what)
{
    CHECK(f->n < MAX_FILTER);
    f->at[f->n++] = what;
}

static void add_load(filter *f, size_t offset)
{
    add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void add_return(filter *f, uint32_t what)
{
    add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* Skips the next `skip` instructions unless the loaded value is x. */
static void add_unless(filter *f, uint32_t x, uint8_t skip)
{
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, x, 0, skip));
}

/* Loads the number of the system call again. */
static void add_number(filter *f)
{
    add_load(f, offsetof(struct seccomp_data, nr));
}

static void refuse(filter *f, int number, uint32_t why)
{
    add_unless(f, (uint32_t)number, 1);
    add_return(f, REFUSE(why));
}

static void refuse_all(filter *f, const int *number, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number[i], (uint8_t)(n - 1 - i),
                                            i == n - 1));
    add_return(f, REFUSE(EPERM));
}

#define REFUSE_ALL(f, list) refuse_all(f, list, sizeof(list) / sizeof *(list))

/* Refuses a call whose first argument is a process other than this one (0 is this one if zero_is_self). */
static void refuse_for_others(filter *f, int number, bool zero_is_self)
{
    add_unless(f, (uint32_t)number, 5);
    add_load(f, ARGUMENT(0));
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 2, 0));
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, zero_is_self ? 0 : (uint32_t)getpid(), 1, 0));
    add_return(f, REFUSE(EPERM));
    add_number(f);
}

/* Refuses new processes, but allows threads. The flags of clone3() lie in memory, which a filter cannot read: it is
 * refused with ENOSYS, so that libc falls back to clone(). */
static void refuse_processes(filter *f)
{
    add_unless(f, SYS_clone, 4);
    add_load(f, ARGUMENT(0));
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0));
    add_return(f, REFUSE(EPERM));
    add_number(f);
    refuse(f, SYS_clone3, ENOSYS);
}

/* Begins a filter. Calls of other ABIs (32 bits, x32) have other numbers, so all of them are refused. */
static void begin_filter(filter *f)
{
    f->n = 0;
#ifdef OUR_ARCH
    add_load(f, offsetof(struct seccomp_data, arch));
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0));
    add_return(f, REFUSE(ENOSYS));
#endif
    add_number(f);
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
    add_return(f, REFUSE(ENOSYS));
    REFUSE_ALL(f, of_nobody);
}

/* Installs a filter in all threads of the process. */
static void install(filter *f)
{
    add_return(f, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {f->n, f->at};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#ifdef OUR_ARCH
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        log_info("system calls are not filtered: %s", strerror(errno));
#else
    (void)program;
#endif
}

/* Keeps, of root's capabilities, only those to read others' files and to listen on ports below 1024. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct who = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[2];
    const uint32_t needed = 1u << CAP_DAC_READ_SEARCH | 1u << CAP_NET_BIND_SERVICE;
    if (syscall(SYS_capget, &who, has) != 0)
        return;
    for (int i = 0; i < 2; i++) {
        has[i].permitted &= i == 0 ? needed : 0;
        has[i].effective &= has[i].permitted;
        has[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &who, has) != 0)
        log_info("capabilities are not dropped: %s", strerror(errno));
}

void sandbox_role(bool starts_programs)
{
    filter f;
    begin_filter(&f);
    if (!starts_programs)
        REFUSE_ALL(&f, starts_programs_by);
    drop_capabilities();
    install(&f);
}

void sandbox_worker_calls(bool uses_network)
{
    filter f;
    begin_filter(&f);
    if (!uses_network)
        REFUSE_ALL(&f, uses_network_by);
    REFUSE_ALL(&f, starts_programs_by);
    REFUSE_ALL(&f, of_no_worker);
    refuse_for_others(&f, SYS_kill, false);
    refuse_for_others(&f, SYS_tgkill, false);
    refuse_for_others(&f, SYS_rt_sigqueueinfo, false);
    refuse_for_others(&f, SYS_rt_tgsigqueueinfo, false);
    refuse_for_others(&f, SYS_prlimit64, true);
    if (!TRACES_ITSELF)
        refuse_processes(&f);
    install(&f);
}

static void allow_below(int rules, const char *folder, uint64_t what)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = what, .parent_fd = open(folder, O_PATH | O_CLOEXEC)};
    if (rule.parent_fd < 0)
        return;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
}

/* Returns every access right to change files that this kernel's Landlock knows. */
static uint64_t all_writing(long version)
{
    uint64_t known = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                     LANDLOCK_ACCESS_FS_MAKE_SYM;
    return known | (version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) | (version >= 3 ? LANDLOCK_ACCESS_FS_TRUNCATE : 0);
}

void sandbox_worker_files(const char *cache)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct landlock_ruleset_attr handled = {.handled_access_fs = all_writing(version)};
    long rules = version < 1 ? -1 : syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0) {
        log_info("files are not kept from being written: %s", strerror(errno));
        return;
    }
    allow_below((int)rules, "/dev", handled.handled_access_fs);
    allow_below((int)rules, "/proc", handled.handled_access_fs);
    if (cache)
        allow_below((int)rules, cache, handled.handled_access_fs);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        log_info("files are not kept from being written: %s", strerror(errno));
    close((int)rules);
}
