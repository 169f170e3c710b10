//! Docker's default profile as a table (moby's `profiles/seccomp/default.json` of 2024, kernel 4.8
//! and later).

use super::{Compare, Condition, ENOSYS, Rule};
use abi::bpf;

/// Allowed to everybody.
#[rustfmt::skip]
const ALWAYS: &[&str] = &[
    "_llseek", "_newselect", "accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk",
    "cachestat", "capget", "capset", "chdir", "chmod", "chown", "chown32", "clock_adjtime",
    "clock_adjtime64", "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64",
    "clock_nanosleep", "clock_nanosleep_time64", "close", "close_range", "connect", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "execve",
    "execveat", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64", "fadvise64_64", "fallocate",
    "fanotify_mark", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat", "fcntl",
    "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr", "fsetxattr", "fstat",
    "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64", "futex",
    "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "futimesat",
    "get_robust_list", "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64", "getegid",
    "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32", "getitimer",
    "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
    "getresgid32", "getresuid", "getresuid32", "getrlimit", "getrusage", "getsid", "getsockname",
    "getsockopt", "gettid", "gettimeofday", "getuid", "getuid32", "getxattr", "getxattrat",
    "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy",
    "io_getevents", "io_pgetevents", "io_pgetevents_time64", "io_setup", "io_submit", "ioctl", "ioprio_get",
    "ioprio_set", "ipc", "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
    "lchown", "lchown32", "lgetxattr", "link", "linkat", "listen", "listmount", "listxattr", "listxattrat",
    "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64", "madvise", "map_shadow_stack",
    "membarrier", "memfd_create", "memfd_secret", "mincore", "mkdir", "mkdirat", "mknod", "mknodat", "mlock",
    "mlock2", "mlockall", "mmap", "mmap2", "modify_ldt", "mprotect", "mq_getsetattr", "mq_notify", "mq_open",
    "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend", "mq_timedsend_time64", "mq_unlink",
    "mremap", "mseal", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock", "munlockall", "munmap",
    "name_to_handle_at", "nanosleep", "newfstatat", "open", "openat", "openat2", "pause", "pidfd_open",
    "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll", "ppoll",
    "ppoll_time64", "prctl", "pread64", "preadv", "preadv2", "prlimit64", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "pselect6", "pselect6_time64", "ptrace", "pwrite64", "pwritev",
    "pwritev2", "read", "readahead", "readdir", "readlink", "readlinkat", "readv", "recv", "recvfrom",
    "recvmmsg", "recvmmsg_time64", "recvmsg", "remap_file_pages", "removexattr", "removexattrat", "rename",
    "renameat", "renameat2", "restart_syscall", "rmdir", "rseq", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
    "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget", "semop", "semtimedop",
    "semtimedop_time64", "send", "sendfile", "sendfile64", "sendmmsg", "sendmsg", "sendto",
    "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsgid32", "setfsuid",
    "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setitimer", "setpgid", "setpriority",
    "setregid", "setregid32", "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid",
    "setreuid32", "setrlimit", "setsid", "setsockopt", "setuid", "setuid32", "setxattr", "setxattrat",
    "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaction", "sigaltstack", "signal", "signalfd",
    "signalfd4", "sigpending", "sigprocmask", "sigreturn", "sigsuspend", "socketcall", "socketpair",
    "splice", "stat", "stat64", "statfs", "statfs64", "statmount", "statx", "symlink", "symlinkat", "sync",
    "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill", "time", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime", "timerfd_settime64",
    "times", "tkill", "truncate", "truncate64", "ugetrlimit", "umask", "uname", "unlink", "unlinkat",
    "uretprobe", "utime", "utimensat", "utimensat_time64", "utimes", "vfork", "vmsplice", "wait4", "waitid",
    "waitpid", "write", "writev",
];

/// Allowed with a capability.
#[rustfmt::skip]
const WITH: &[(&str, &[&str])] = &[
    ("SYS_ADMIN", &[
        "bpf", "clone", "clone3", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie", "mount",
        "mount_setattr", "move_mount", "open_tree", "perf_event_open", "quotactl", "quotactl_fd", "setdomainname",
        "sethostname", "setns", "syslog", "umount", "umount2", "unshare",
    ]),
    ("BPF", &["bpf"]),
    ("DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("PERFMON", &["perf_event_open"]),
    ("SYS_BOOT", &["reboot"]),
    ("SYS_CHROOT", &["chroot"]),
    ("SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"]),
    ("SYS_PACCT", &["acct"]),
    ("SYS_PTRACE", &["kcmp", "pidfd_getfd", "process_madvise"]),
    ("SYS_RAWIO", &["iopl", "ioperm"]),
    ("SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("SYS_TTY_CONFIG", &["vhangup"]),
    ("SYSLOG", &["syslog"]),
];

/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// Address family of virtual machine sockets, which know no network namespace.
const AF_VSOCK: u64 = 40;
/// Personalities that are harmless: Linux, 32-bit Linux, both with another `uname`, and the
/// question.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The rules for a program with these capabilities.
pub(super) fn rules(has: &dyn Fn(&str) -> bool) -> Vec<Rule> {
    let rule = |names: &[&str], conditions: Vec<Condition>, action| Rule {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        conditions,
        action,
    };
    let first = |compare, value| vec![Condition { argument: 0, compare, value }];
    let mut rules = vec![rule(ALWAYS, Vec::new(), bpf::ALLOW)];
    for (capability, names) in WITH {
        if has(capability) {
            rules.push(rule(names, Vec::new(), bpf::ALLOW));
        }
    }
    for value in PERSONALITIES {
        rules.push(rule(&["personality"], first(Compare::Equal, value), bpf::ALLOW));
    }
    rules.push(rule(&["socket"], first(Compare::NotEqual, AF_VSOCK), bpf::ALLOW));
    if !has("SYS_ADMIN") {
        rules.push(rule(&["clone"], first(Compare::Masked(NAMESPACE_FLAGS), 0), bpf::ALLOW));
        // Its flags lie in memory, where a filter cannot look; C libraries fall back to `clone`.
        rules.push(rule(&["clone3"], Vec::new(), bpf::ERRNO | ENOSYS));
    }
    rules
}
