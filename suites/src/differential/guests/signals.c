/* Signals around calls that are caught. */
#include "step.h"

static volatile int count, last;
static void handler(int s) { count++; last = s; }
static void in_storm(int s) { handler(s); storm_seen(); }

static void on(int s, void (*f)(int), int flags) {
    struct sigaction a = {0};
    a.sa_handler = f;
    a.sa_flags = flags;
    sigaction(s, &a, 0);
}

static void timer(int ms) {
    struct itimerval t = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}

static void siginfo(int s, siginfo_t *i, void *c) {
    (void)c;
    printf("signal %d code %d address %s\n", s, i->si_code, i->si_addr == (void *)16 ? "16" : "other");
    fflush(stdout);
    _exit(0);
}

int main(void) {
    start("signals");
    mkfifo("p", 0600);
    int fds[2];
    char c;
    pipe(fds);
    on(SIGALRM, handler, 0);
    timer(50); DO(read(fds[0], &c, 1));
    timer(50); DO(open("p", O_RDONLY));
    timer(50); DO(poll(0, 0, 2000));
    timer(50); DO(pause());
    timer(50); DO(usleep(2000000));
    printf("count %d\n", count);
    on(SIGALRM, handler, SA_RESTART);
    CHILD("restarted read", {
        pid_t me = getpid();
        // Before the other process is there: it may be quick.
        on(SIGUSR1, handler, SA_RESTART);
        if (fork() == 0) { usleep(50000); kill(me, SIGUSR1); usleep(50000); write(fds[1], "x", 1); _exit(0); }
        DO(read(fds[0], &c, 1));
        IS(last == SIGUSR1);
    });
    CHILD("restarted open", {
        pid_t me = getpid();
        on(SIGUSR1, handler, SA_RESTART);
        if (fork() == 0) { usleep(50000); kill(me, SIGUSR1); usleep(50000); close(open("p", O_WRONLY)); _exit(0); }
        int f = open("p", O_RDONLY);
        IS(f >= 0);
        IS(last == SIGUSR1);
    });
    puts("-- masks");
    sigset_t all, old, pending;
    sigfillset(&all);
    DO(sigprocmask(SIG_SETMASK, &all, &old));
    sigset_t read_back;
    sigprocmask(SIG_BLOCK, 0, &read_back);
    for (int s = 1; s < 32; s++) if (!sigismember(&read_back, s)) printf("not blocked: %d\n", s);
    struct timespec none = {0, 0};
    CHILD("blocked SIGSYS", { raise(SIGSYS); sigpending(&pending); IS(sigismember(&pending, SIGSYS) == 1); DO(sigtimedwait(&all, 0, &none)); });
    raise(SIGUSR1);
    sigpending(&pending);
    IS(sigismember(&pending, SIGUSR1) == 1);
    DO(sigtimedwait(&all, 0, &none));
    DO(sigtimedwait(&all, 0, &none));
    DO(access("/etc/passwd", F_OK));
    sigprocmask(SIG_SETMASK, &old, 0);
    DO(syscall(SYS_rt_sigprocmask, 77, &all, 0, 8));
    DO(syscall(SYS_rt_sigprocmask, 0, (void *)8, 0, 8));
    on(SIGSYS, handler, 0);
    struct sigaction a;
    sigaction(SIGSYS, 0, &a);
    IS(a.sa_handler == handler);
    raise(SIGSYS);
    IS(last == SIGSYS);
    puts("-- faults");
    CHILD("segv", { struct sigaction s = {0}; s.sa_sigaction = siginfo; s.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &s, 0); *(volatile int *)16 = 1; });
    CHILD("access", { struct sigaction s = {0}; s.sa_sigaction = siginfo; s.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &s, 0);
        volatile int *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); *m = 1; });
    CHILD("trap", { struct sigaction s = {0}; s.sa_sigaction = siginfo; s.sa_flags = SA_SIGINFO; sigaction(SIGTRAP, &s, 0); __asm__("int3"); });
    CHILD("trap dies", { raise(SIGTRAP); });
    CHILD("dies", { abort(); });
    CHILD("kill", { kill(getpid(), SIGKILL); });
    CHILD("term", { raise(SIGTERM); });
    CHILD("null call", { void (*f)(void) = 0; __asm__ volatile("" : "+r"(f)); f(); });
    puts("-- stops");
    pid_t p = fork();
    if (p == 0) { raise(SIGSTOP); usleep(200000); raise(SIGTSTP); usleep(200000); _exit(5); }
    int s;
    waitpid(p, &s, WUNTRACED); show_end("child", s);
    kill(p, SIGCONT); waitpid(p, &s, WCONTINUED); show_end("child", s);
    waitpid(p, &s, WUNTRACED); show_end("child", s);
    kill(p, SIGCONT); waitpid(p, &s, WCONTINUED); show_end("child", s);
    waitpid(p, &s, 0); show_end("child", s);
    p = fork();
    if (p == 0) { for (;;) access("/etc/passwd", F_OK); }
    usleep(20000);
    kill(p, SIGSTOP); waitpid(p, &s, WUNTRACED); show_end("busy", s);
    siginfo_t info;
    info.si_pid = 0;
    DO(waitid(P_PID, p, &info, WEXITED | WNOHANG));
    IS(info.si_pid == 0);
    kill(p, SIGKILL); DO(waitid(P_PID, p, &info, WEXITED | WNOWAIT)); printf("code %d status %d\n", info.si_code, info.si_status);
    waitpid(p, &s, 0); show_end("busy", s);
    DO(wait(0));
    puts("-- storm");
    count = 0;
    on(SIGALRM, in_storm, SA_RESTART);
    storm_begin(1000);
    int bad = 0;
    struct stat st;
    for (int i = 0; i < 3000; i++) {
        if (stat("/etc/passwd", &st)) bad++;
        int fd = open("/etc/passwd", O_RDONLY);
        if (fd < 0) bad++; else close(fd);
        if (mkdir("storm", 0755)) bad++;
        if (rmdir("storm")) bad++;
    }
    storm_end();
    printf("bad %d\n", bad);
    IS(count > 0);
    stack_t stack = {malloc(MINSIGSTKSZ + 16384), 0, MINSIGSTKSZ + 16384};
    DO(sigaltstack(&stack, 0));
    on(SIGUSR1, handler, SA_ONSTACK);
    raise(SIGUSR1);
    IS(last == SIGUSR1);
    DO(kill(getpid(), 0)); DO(kill(0x3fffffff, 0)); DO(kill(getpid(), 99));
    return 0;
}
