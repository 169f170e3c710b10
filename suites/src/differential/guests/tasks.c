/* Threads and processes with ids, filters and tracers of their own; prints unexpected results. */
#include "cases.h"
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/timex.h>
#include <sys/user.h>
#include <time.h>
#include <ucontext.h>
extern char **environ;
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif

static volatile sig_atomic_t hits, code, sysno, data;
static void *call_addr;
static int try_path(void) {
    struct stat st;
    return stat("/etc/passwd", &st);
}

static int wait_for(pid_t p) {
    int s = 0;
    pid_t r;
    while ((r = waitpid(p, &s, __WALL)) < 0 && errno == EINTR);
    return r < 0 ? -1 : s;
}

static void spawn(void) {
    for (int i = 0; i < 50; i++) {
        pid_t p;
        char *a[] = {"tasks", "true", 0};
        CHECK(posix_spawn(&p, "/bin/tasks", 0, 0, a, environ) == 0);
        CHECK(wait_for(p) == 0);
    }
    pid_t p;
    char *a[] = {"nope", 0};
    CHECK(posix_spawn(&p, "/nope", 0, 0, a, environ) == ENOENT);
    posix_spawnattr_t at;
    posix_spawnattr_init(&at);
    sigset_t d;
    sigfillset(&d);
    posix_spawnattr_setsigdefault(&at, &d);
    sigemptyset(&d);
    posix_spawnattr_setsigmask(&at, &d);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    struct sigaction s = {.sa_handler = SIG_IGN}, o;
    sigaction(SIGSEGV, &s, 0);
    s.sa_handler = (void *)try_path;
    sigaction(SIGBUS, &s, 0);
    char *b[] = {"tasks", "raise", 0};
    CHECK(posix_spawn(&p, "/bin/tasks", 0, &at, b, environ) == 0);
    int st = wait_for(p);
    CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
    sigaction(SIGSEGV, 0, &o);
    CHECK(o.sa_handler == SIG_IGN);
    sigaction(SIGBUS, 0, &o);
    CHECK(o.sa_handler == (void *)try_path);
    CHECK(!try_path());
    errno = 0;
    CHECK(open((char *)16, 0) == -1 && errno == EFAULT);
}

static void vforks(void) {
    for (int i = 0; i < 100; i++) {
        pid_t p = vfork();
        if (!p) {
            execl("/bin/tasks", "tasks", "true", NULL);
            _exit(9);
        }
        CHECK(p > 0 && wait_for(p) == 0);
    }
    pid_t p = vfork();
    if (!p) {
        execl("/nope", "x", NULL);
        _exit(errno);
    }
    int s = wait_for(p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == ENOENT);
}

static void *forker(void *v) {
    (void)v;
    for (int i = 0; i < 15; i++) {
        pid_t p = i & 1 ? vfork() : fork();
        if (!p) {
            if (i & 2) {
                execl("/bin/tasks", "tasks", "true", NULL);
                _exit(9);
            }
            _exit(try_path() ? 8 : 0);
        }
        int s = wait_for(p);
        if (s) {
            printf("  child: %x\n", s);
            bad++;
        }
        if (try_path()) bad++;
    }
    return 0;
}

static void thread_forks(void) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, forker, 0);
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
}

static void *nothing(void *v) {
    return try_path() ? v : 0;
}

static void many_threads(void) {
    for (int r = 0; r < 20; r++) {
        pthread_t t[50];
        int n = 0;
        for (int i = 0; i < 50; i++) if (!pthread_create(&t[n], 0, nothing, (void *)1)) n++;
        for (int i = 0; i < n; i++) {
            void *x;
            pthread_join(t[i], &x);
            CHECK(x == 0);
        }
    }
}

static void *opener(void *v) {
    int f = open("fifo", O_RDONLY);
    if (f < 0) bad++;
    else close(f);
    return 0;
}

static void blocked(void) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    static pthread_t t[300];
    for (int i = 0; i < 300; i++) CHECK(pthread_create(&t[i], &a, opener, 0) == 0);
    usleep(100000);
    for (int i = 0; i < 10; i++) CHECK(!try_path());
    pid_t p = fork();
    if (!p) _exit(try_path());
    CHECK(wait_for(p) == 0);
    int w = open("fifo", O_RDWR);
    CHECK(w >= 0);
    for (int i = 0; i < 300; i++) pthread_join(t[i], 0);
    close(w);
    CHECK(!try_path());
}

static char stk[65536] __attribute__((aligned(16)));
static volatile int vm_value;
static int vm_child(void *a) {
    vm_value = try_path() ? -1 : 7;
    chdir("/tmp");
    umask(011);
    struct sigaction s = {.sa_handler = SIG_DFL};
    sigaction(SIGUSR1, &s, 0);
    return 5;
}

static void vm_clone(void) {
    umask(022);
    struct sigaction s = {.sa_handler = (void *)try_path}, o;
    sigaction(SIGUSR1, &s, 0);
    chdir("/");
    pid_t p = clone(vm_child, stk + sizeof stk, CLONE_VM | SIGCHLD, 0);
    CHECK(p > 0);
    int st = wait_for(p);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 5 && vm_value == 7);
    char b[100];
    CHECK(getcwd(b, 100) && !strcmp(b, "/"));
    mode_t m = umask(022);
    CHECK(m == 022);
    sigaction(SIGUSR1, 0, &o);
    CHECK(o.sa_handler == (void *)try_path);
    const char *n = "/tmp/m";
    int f = open(n, O_CREAT | O_WRONLY, 0666);
    struct stat q;
    fstat(f, &q);
    CHECK((q.st_mode & 0777) == 0644);
    close(f);
    unlink(n);
    chdir("/");
    p = clone(vm_child, stk + sizeof stk, CLONE_VM | CLONE_FS | SIGCHLD, 0);
    st = wait_for(p);
    CHECK(WIFEXITED(st));
    CHECK(getcwd(b, 100) && !strcmp(b, "/tmp"));
    m = umask(022);
    CHECK(m == 011);
    chdir("/");
    p = clone(vm_child, stk + sizeof stk, CLONE_FS | SIGCHLD, 0);
    st = wait_for(p);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 5);
    CHECK(getcwd(b, 100) && !strcmp(b, "/tmp"));
    chdir("/");
    f = open(n, O_CREAT | O_WRONLY, 0666);
    fstat(f, &q);
    CHECK((q.st_mode & 0777) == 0666);
    close(f);
    unlink(n);
    umask(022);
}

struct args3 { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
    cgroup; };
static void clone3s(void) {
    struct args3 a = {.exit_signal = SIGCHLD};
    for (int i = 0; i < 10; i++) {
        long p = syscall(435, &a, sizeof a);
        if (!p) _exit(try_path() ? 1 : 6);
        if (p < 0 && errno == ENOSYS) return;
        int s = wait_for(p);
        CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 6);
    }
    int pidfd = -1;
    a.flags = CLONE_PIDFD;
    a.pidfd = (uint64_t)&pidfd;
    long p = syscall(435, &a, sizeof a);
    if (!p) _exit(0);
    CHECK(p > 0 && pidfd >= 0);
    wait_for(p);
    close(pidfd);
    signal(SIGUSR2, (void *)try_path);
    a = (struct args3){.flags = 0x100000000ull, .exit_signal = SIGCHLD};
    p = syscall(435, &a, sizeof a);
    if (!p) {
        struct sigaction o;
        sigaction(SIGUSR2, 0, &o);
        _exit(try_path() || o.sa_handler != SIG_DFL ? 1 : 6);
    }
    if (p < 0) CHECK(errno == EINVAL && "clear sighand refused");
    else {
        int s = wait_for(p);
        CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 6);
    }
    errno = 0;
    CHECK(syscall(435, &a, 8) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(435, (void *)8, 88) == -1 && errno == EFAULT);
    a = (struct args3){.flags = 0x10000000, .exit_signal = SIGCHLD};
    errno = 0;
    p = syscall(435, &a, sizeof a);
    if (!p) _exit(0);
    if (p > 0) {
        wait_for(p);
    }
}
static volatile int go;
static volatile unsigned t_uid[4];

static void *own_ids(void *v) {
    long i = (long)v;
    if (syscall(SYS_setresuid, -1, 100 + i, -1)) {
        bad++;
        printf("  setresuid %d\n", errno);
    }
    __sync_add_and_fetch(&go, 1);
    while (go < 4) usleep(100);
    t_uid[i] = geteuid();
    char n[100];
    sprintf(n, "own%ld", i);
    int f = open(n, O_CREAT | O_WRONLY, 0644);
    struct stat st;
    if (f < 0 || fstat(f, &st) || st.st_uid != 100 + i) {
        bad++;
        printf("  owner of %s: %d %d\n", n, f, st.st_uid);
    }
    close(f);
    return 0;
}

static void thread_ids(void) {
    if (getuid()) {
        return;
    }
    chmod(".", 0777);
    pthread_t t[4];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, own_ids, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    for (int i = 0; i < 4; i++) {
        CHECK(t_uid[i] == 100u + i);
        char n[100];
        sprintf(n, "own%d", i);
        unlink(n);
    }
    CHECK(geteuid() == 0 && getuid() == 0);
}

static volatile int seen_uid[6], phase;
static void *see_ids(void *v) {
    long i = (long)v;
    while (!phase) usleep(500);
    seen_uid[i] = getuid();
    uid_t a, b, c;
    getresuid(&a, &b, &c);
    if (a != b || b != c) bad++;
    return 0;
}

static void all_ids(void) {
    if (getuid()) {
        return;
    }
    pthread_t t[6];
    for (long i = 0; i < 6; i++) pthread_create(&t[i], 0, see_ids, (void *)i);
    usleep(2000);
    gid_t g[2] = {7, 8};
    CHECK(setgroups(2, g) == 0);
    CHECK(setgid(55) == 0);
    CHECK(setuid(54) == 0);
    phase = 1;
    for (int i = 0; i < 6; i++) {
        pthread_join(t[i], 0);
        CHECK(seen_uid[i] == 54);
    }
    CHECK(getuid() == 54 && getgid() == 55 && getgroups(0, 0) == 2);
    errno = 0;
    CHECK(setuid(0) == -1 && errno == EPERM);
    pid_t p = fork();
    if (!p) _exit(getuid() == 54 ? 0 : 1);
    CHECK(wait_for(p) == 0);
}

static void vfork_ids(void) {
    if (getuid()) {
        return;
    }
    pid_t p = vfork();
    if (!p) {
        setgid(33);
        setuid(33);
        umask(077);
        execl("/bin/tasks", "tasks", "ids", NULL);
        _exit(9);
    }
    CHECK(wait_for(p) == 0);
    CHECK(getuid() == 0 && geteuid() == 0 && getgid() == 0);
    mode_t m = umask(022);
    CHECK(m == 022);
    for (int i = 0; i < 70; i++) {
        p = vfork();
        if (!p) {
            setuid(40);
            _exit(geteuid() == 40 ? 0 : 1);
        }
        CHECK(wait_for(p) == 0);
    }
    CHECK(getuid() == 0);
}

static void *fork_ids_t(void *v) {
    (void)v;
    if (syscall(SYS_setresuid, 77, 77, 77)) bad++;
    pid_t p = fork();
    if (!p) _exit(getuid() == 77 && geteuid() == 77 ? 0 : 1);
    if (wait_for(p)) {
        bad++;
        printf("  child of a thread with ids of its own\n");
    }
    return 0;
}

static void fork_ids(void) {
    if (getuid()) {
        return;
    }
    pthread_t t;
    pthread_create(&t, 0, fork_ids_t, 0);
    pthread_join(t, 0);
    CHECK(getuid() == 0);
    pid_t p = fork();
    if (!p) _exit(getuid());
    CHECK(wait_for(p) == 0);
}

static void on_sys(int s, siginfo_t *i, void *v) {
    hits++;
    code = i->si_code;
    sysno = i->si_syscall;
    data = i->si_errno;
    ucontext_t *u = v;
    u->uc_mcontext.gregs[REG_RAX] = -77;
}

static int install(unsigned nr, unsigned action, int flags) {
    struct sock_filter f[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog p = {4, f};
    return flags < 0 ? prctl(PR_SET_SECCOMP, 2, &p) : syscall(SYS_seccomp, 1, flags, &p);
}

static void filters(void) {
    CHECK(prctl(PR_GET_SECCOMP) == 0);
    if (getuid()) {
        errno = 0;
        CHECK(install(SYS_mkdir, 0x50000 | 13, -1) == -1 && errno == EACCES);
    }
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(install(SYS_mkdir, 0x50000 | 13, -1) == 0);
    CHECK(prctl(PR_GET_SECCOMP) == 2);
    for (int i = 0; i < 5; i++) {
        errno = 0;
        CHECK(syscall(SYS_mkdir, "/tmp/never", 0755) == -1 && errno == 13);
    }
    CHECK(!try_path());
    CHECK(install(SYS_getppid, 0x50000 | 14, 0) == 0);
    errno = 0;
    CHECK(syscall(SYS_getppid) == -1 && errno == 14);
    struct sigaction a = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &a, 0);
    CHECK(install(SYS_chmod, SECCOMP_RET_TRAP | 5, 0) == 0);
    for (int i = 1; i < 5; i++) {
        errno = 0;
        long r = syscall(SYS_chmod, "/tmp/never", 0);
        CHECK(r == -1 && errno == 77 && hits == i && sysno == SYS_chmod && code == 1 && data == 5);
    }
    CHECK(!try_path());
    pid_t p = fork();
    if (!p) {
        errno = 0;
        _exit(syscall(SYS_mkdir, "/tmp/never", 0) == -1 && errno == 13 ? 0 : 1);
    }
    CHECK(wait_for(p) == 0);
    p = vfork();
    if (!p) {
        execl("/bin/tasks", "tasks", "filtered", NULL);
        _exit(9);
    }
    CHECK(wait_for(p) == 0);
    p = fork();
    if (!p) {
        if (install(SYS_rmdir, SECCOMP_RET_KILL_PROCESS, 0)) _exit(2);
        try_path();
        rmdir("/tmp/never");
        _exit(3);
    }
    int s = wait_for(p);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS);
    p = fork();
    if (!p) {
        struct sock_filter f[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
            SYS_exit_group, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K,
                SECCOMP_RET_KILL_PROCESS) };
        struct sock_fprog g = {4, f};
        syscall(SYS_seccomp, 1, 0, &g);
        syscall(SYS_getuid);
        _exit(4);
    }
    s = wait_for(p);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS);
}

/* The result of a call that has been made often before. */
static void filters_hot(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (int i = 0; i < 80; i++) {
        CHECK(chmod("/none", 0) == -1 && errno == ENOENT);
        CHECK(access("/etc/passwd", 0) == 0);
        CHECK(rmdir("/none") == -1 && errno == ENOENT);
    }
    struct sigaction a = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &a, 0);
    CHECK(install(SYS_chmod, SECCOMP_RET_TRAP | 9, 0) == 0);
    for (int i = 1; i < 60; i++) {
        errno = 0;
        CHECK(chmod("/none", 0) == -1 && errno == 77 && hits == i && sysno == SYS_chmod && code == 1 && data == 9);
    }
    CHECK(install(SYS_access, SECCOMP_RET_ERRNO | 14, 0) == 0);
    CHECK(install(SYS_rmdir, SECCOMP_RET_TRACE, 0) == 0);
    CHECK(install(SYS_readlink, SECCOMP_RET_LOG, 0) == 0);
    for (int i = 0; i < 60; i++) {
        char link[64];
        errno = 0;
        CHECK(access("/etc/passwd", 0) == -1 && errno == 14);
        errno = 0;
        CHECK(rmdir("/none") == -1 && errno == ENOSYS);
        CHECK(readlink("/proc/self/exe", link, sizeof link) == 10);
        CHECK(!try_path());
    }
    // The most severe action counts, whatever the order.
    CHECK(install(SYS_chmod, SECCOMP_RET_ERRNO | 13, 0) == 0);
    errno = 0;
    CHECK(chmod("/none", 0) == -1 && errno == 77);
    CHECK(install(SYS_chmod, SECCOMP_RET_KILL_THREAD, 0) == 0);
    pid_t p = fork();
    if (!p) {
        chmod("/none", 0);
        _exit(3);
    }
    int s = wait_for(p);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS);
}

static volatile int handled;
static void on_usr(int s, siginfo_t *i, void *v) { (void)s; (void)i; (void)v; handled += !try_path(); }
static void on_usr_plain(int s) { (void)s; handled += !try_path(); }

/* A sandbox: allows only the listed calls, not the additional ones of an engine. */
static void filters_list(void) {
    static const unsigned allowed[] = {SYS_read, SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_newfstatat, SYS_access,
        SYS_getcwd, SYS_getpid, SYS_gettid, SYS_tgkill, SYS_rt_sigprocmask};
    enum { N = sizeof allowed / sizeof *allowed };
    pid_t p = fork();
    if (!p) {
        struct sigaction a = {.sa_sigaction = on_usr, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR1, &a, 0);
        signal(SIGUSR2, on_usr_plain);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        struct sock_filter f[N + 3];
        f[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
        for (int i = 0; i < N; i++) f[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], N - i, 0);
        f[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        f[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog g = {N + 3, f};
        if (syscall(SYS_seccomp, 1, 0, &g)) _exit(2);
        char text[64];
        for (int i = 0; i < 60; i++) {
            if (try_path() || syscall(SYS_access, "/none", 0) != -1 || syscall(SYS_getcwd, text, 64L) <= 0) _exit(3);
            raise(SIGUSR1);
            raise(SIGUSR2);
        }
        if (handled != 120) _exit(4);
        write(1, "  in the sandbox\n", 17);
        syscall(SYS_open, "/etc/passwd", O_RDONLY);
        _exit(5);
    }
    int s = wait_for(p);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS);
}

static void strict(void) {
    pid_t p = fork();
    if (!p) {
        if (prctl(PR_SET_SECCOMP, 1)) _exit(2);
        write(1, "", 0);
        syscall(SYS_exit, 5);
    }
    int s = wait_for(p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 5);
}

static void big_filter(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    static struct sock_filter f[4000];
    for (int i = 0; i < 3998; i++) f[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, i);
    f[3998] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0);
    f[3999] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog p = {4000, f};
    CHECK(syscall(SYS_seccomp, 1, 0, &p) == 0);
    CHECK(!try_path());
    f[3999].k = 0;
    p.len = 0;
    errno = 0;
    CHECK(syscall(SYS_seccomp, 1, 0, &p) == -1 && errno == EINVAL);
    f[0].code = 0xffff;
    p.len = 4000;
    errno = 0;
    CHECK(syscall(SYS_seccomp, 1, 0, &p) == -1 && errno == EINVAL);
}

static void *filtered(void *v) {
    CHECK(install(SYS_mkdir, 0x50000 | 13, 0) == 0);
    errno = 0;
    CHECK(syscall(SYS_mkdir, "/tmp/never", 0) == -1 && errno == 13);
    return 0;
}

static void thread_filters(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    pthread_t t;
    pthread_create(&t, 0, filtered, 0);
    pthread_join(t, 0);
    const char *n = "d";
    CHECK(mkdir(n, 0755) == 0);
    rmdir(n);
    CHECK(install(SYS_rmdir, 0x50000 | 12, 1) == 0);
    errno = 0;
    CHECK(rmdir(n) == -1 && errno == 12);
}

static int is_traceable(void) {
    pid_t p = fork();
    if (!p) _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) ? 1 : 0);
    int right = wait_for(p) == 0;
    if (!right) printf("  nobody is traced\n");
    return right;
}

static void traced(void) {
    if (!is_traceable()) return;
    pid_t p = fork();
    if (!p) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(7);
        raise(SIGSTOP);
        int b = try_path();
        _exit(b ? 1 : 3);
    }
    int s = wait_for(p);
    CHECK(WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP);
    struct user_regs_struct r;
    CHECK(ptrace(PTRACE_GETREGS, p, 0, &r) == 0);
    ptrace(PTRACE_CONT, p, 0, 0);
    s = wait_for(p);
    while (WIFSTOPPED(s)) {
        ptrace(PTRACE_CONT, p, 0, (long)WSTOPSIG(s));
        s = wait_for(p);
    }
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 3);
    p = fork();
    if (!p) {
        for (int i = 0; i < 400; i++) {
            try_path();
            usleep(1000);
        }
        _exit(0);
    }
    usleep(5000);
    CHECK(ptrace(PTRACE_SEIZE, p, 0, 0) == 0);
    CHECK(ptrace(PTRACE_INTERRUPT, p, 0, 0) == 0);
    s = wait_for(p);
    while (WIFSTOPPED(s) && (s >> 16) != PTRACE_EVENT_STOP) {
        ptrace(PTRACE_CONT, p, 0, (long)WSTOPSIG(s));
        s = wait_for(p);
    }
    CHECK(WIFSTOPPED(s));
    CHECK(ptrace(PTRACE_DETACH, p, 0, 0) == 0);
    CHECK(wait_for(p) == 0);
    p = vfork();
    if (!p) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl("/bin/tasks", "tasks", "true", NULL);
        _exit(9);
    }
    s = wait_for(p);
    CHECK(WIFSTOPPED(s) && WSTOPSIG(s) == SIGTRAP);
    int n = 0;
    while (WIFSTOPPED(s) && n++ < 10000) {
        ptrace(PTRACE_CONT, p, 0, (long)(WSTOPSIG(s) == SIGTRAP ? 0 : WSTOPSIG(s)));
        s = wait_for(p);
    }
    CHECK(s == 0);
    CHECK(n == 1);
}

static void traced_plain(void) {
    if (!is_traceable()) return;
    pid_t p = fork();
    if (!p) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (int i = 0; i < 20; i++) if (try_path()) _exit(1);
        _exit(3);
    }
    int s;
    CHECK(waitpid(p, &s, 0) == p && WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP);
    CHECK(ptrace(PTRACE_CONT, p, 0, 0) == 0);
    CHECK(waitpid(p, &s, 0) == p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 3);
    p = fork();
    if (!p) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execl("/bin/tasks", "tasks", "true", NULL);
        _exit(9);
    }
    CHECK(waitpid(p, &s, 0) == p && WSTOPSIG(s) == SIGSTOP);
    CHECK(ptrace(PTRACE_CONT, p, 0, 0) == 0);
    CHECK(waitpid(p, &s, 0) == p && WIFSTOPPED(s) && WSTOPSIG(s) == SIGTRAP);
    CHECK(ptrace(PTRACE_CONT, p, 0, 0) == 0);
    siginfo_t i;
    CHECK(waitid(P_PID, p, &i, WEXITED | WSTOPPED) == 0 && i.si_code == CLD_EXITED && i.si_status == 0);
    p = fork();
    if (!p) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        try_path();
        _exit(3);
    }
    CHECK(waitid(P_PID, p, &i, WEXITED | WSTOPPED) == 0 && i.si_status == SIGSTOP);
    int n = 0;
    do {
        CHECK(ptrace(PTRACE_SINGLESTEP, p, 0, 0) == 0);
        CHECK(waitpid(p, &s, 0) == p);
        n++;
    } while (WIFSTOPPED(s) && n < 100000 && !bad);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 3 && n > 10);
}

/* The limit of file sizes holds for truncate too, and raises its signal. */
static void file_limit(void) {
    struct rlimit limit = {4096, 8192};
    sigset_t wanted, pending;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &wanted, 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    int f = open("limited", O_RDWR | O_CREAT, 0600);
    CHECK(truncate("limited", 4096) == 0);
    sigpending(&pending);
    CHECK(!sigismember(&pending, SIGXFSZ));
    errno = 0;
    CHECK(truncate("limited", 4097) == -1 && errno == EFBIG);
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGXFSZ));
    char whole[4096];
    CHECK(truncate(realpath("limited", whole), 10000) == -1 && errno == EFBIG);
    CHECK(truncate("limited", 10) == 0 && lseek(f, 0, SEEK_END) == 10);
    chmod("limited", 0400);
    CHECK(truncate("limited", 100) == (geteuid() ? -1 : 0));
    struct stat st;
    CHECK(fstat(f, &st) == 0 && (st.st_mode & 0777) == 0400);
    signal(SIGXFSZ, SIG_IGN);
    unlink("limited");
    close(f);
}

/* Objects of System V belong to who made them. */
static void sysv_owners(void) {
    struct shmid_ds memory;
    struct msqid_ds queue;
    struct semid_ds set;
    int m = shmget(IPC_PRIVATE, 4096, 0600), q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 2, 0600);
    CHECK(m >= 0 && q >= 0 && s >= 0);
    for (int again = 0; again < 2; again++) {
        CHECK(shmctl(m, IPC_STAT, &memory) == 0 && memory.shm_perm.uid == geteuid() && memory.shm_perm.cuid == geteuid());
        CHECK(memory.shm_perm.gid == getegid() && memory.shm_perm.cgid == getegid() && memory.shm_segsz == 4096);
        CHECK(msgctl(q, IPC_STAT, &queue) == 0 && queue.msg_perm.uid == geteuid() && queue.msg_perm.cgid == getegid());
        CHECK(semctl(s, 0, IPC_STAT, &set) == 0 && set.sem_perm.uid == geteuid() && set.sem_perm.gid == getegid() && set.sem_nsems == 2);
        CHECK((memory.shm_perm.mode & 0777) == (again ? 0640 : 0600));
        memory.shm_perm.mode = 0640;
        CHECK(shmctl(m, IPC_SET, &memory) == 0);
        set.sem_perm.mode = 0640;
        CHECK(semctl(s, 0, IPC_SET, &set) == 0);
    }
    unsigned short values[2] = {7, 8};
    CHECK(semctl(s, 0, SETALL, values) == 0 && semctl(s, 1, GETVAL) == 8);
    values[0] = values[1] = 0;
    CHECK(semctl(s, 0, GETALL, values) == 0 && values[0] == 7 && values[1] == 8);
    errno = 0;
    CHECK(shmctl(m, IPC_STAT, (void *)8) == -1 && errno == EFAULT);
    CHECK(shmctl(m, IPC_SET, (void *)8) == -1 && errno == EFAULT);
    CHECK(shmctl(-1, IPC_STAT, &memory) == -1 && errno == EINVAL);
    CHECK(shmctl(m, IPC_RMID, 0) == 0 && msgctl(q, IPC_RMID, 0) == 0 && semctl(s, 0, IPC_RMID) == 0);
}

/* Bad flags are found before a missing privilege. */
static void bad_flags(void) {
    errno = 0;
    CHECK(unshare(-1) == -1 && errno == EINVAL);
    errno = 0;
    struct { uint64_t flags, rest[10]; } arguments = {CLONE_FS | CLONE_NEWNS, {0}};
    CHECK(syscall(SYS_clone3, &arguments, sizeof arguments) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    errno = 0;
    struct timex clock = {.modes = 0x8000};
    CHECK(adjtimex(&clock) == -1 && errno == EINVAL);
}

static const struct one cases[] = {
    T(spawn), T(vforks), T(thread_forks), T(many_threads), T(blocked), T(vm_clone), T(clone3s), T(thread_ids),
    T(all_ids), T(vfork_ids), T(fork_ids), T(filters), T(filters_hot), T(filters_list), T(strict), T(big_filter), T(thread_filters), T(traced),
    T(traced_plain), T(file_limit), T(sysv_owners), T(bad_flags),
};

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "true")) return 0;
    if (argc > 1 && !strcmp(argv[1], "raise")) {
        raise(SIGSEGV);
        return 3;
    }
    if (argc > 1 && !strcmp(argv[1], "ids")) return getuid() != 33 || geteuid() != 33 || getgid() != 33 || umask(0) != 077;
    if (argc > 1 && !strcmp(argv[1], "filtered")) {
        errno = 0;
        return syscall(SYS_mkdir, "/tmp/never", 0755) != -1 || errno != 13 || prctl(PR_GET_SECCOMP) != 2;
    }
    setvbuf(stdout, 0, _IONBF, 0);
    start("tasks");
    mkfifo("fifo", 0600);
    run_cases(cases, sizeof cases / sizeof *cases);
    return 0;
}
