/* Many threads and processes at once: blocked in calls, ending together, sharing memory without being threads. */
#include "step.h"
#include <linux/sched.h>

static volatile int failures, blocked;
extern char **environ;

static int look(void) {
    struct stat st;
    int bad = stat("/etc/passwd", &st) != 0, fd = open("/etc/passwd", O_RDONLY);
    if (fd < 0) return bad + 1;
    close(fd);
    return bad;
}

static void fails(const char *what) { printf("%s: failures %d\n", what, failures); fflush(stdout); failures = 0; }

static void *waits(void *name) {
    __sync_fetch_and_add(&blocked, 1);
    int fd = open(name, O_RDONLY);
    if (fd < 0) __sync_fetch_and_add(&failures, 1);
    close(fd);
    return 0;
}

static void *quick(void *x) { if (look()) __sync_fetch_and_add(&failures, 1); return x; }
static void *forever(void *x) { for (;;) look(); return x; }

static void *spawns(void *x) {
    char *words[] = {"/bin/crowds", "child", 0};
    for (int i = 0; i < 12; i++) {
        pid_t pid;
        int s;
        if (posix_spawn(&pid, "/bin/crowds", 0, 0, words, environ) || waitpid(pid, &s, 0) != pid || WEXITSTATUS(s) != 5) __sync_fetch_and_add(&failures, 1);
        if (posix_spawn(&pid, "/none", 0, 0, words, environ) != ENOENT) __sync_fetch_and_add(&failures, 1);
        pid = vfork();
        if (pid == 0) { execv("/bin/crowds", words); _exit(9); }
        if (waitpid(pid, &s, 0) != pid || WEXITSTATUS(s) != 5) __sync_fetch_and_add(&failures, 1);
    }
    return x;
}

static volatile int shared;
static int sibling(void *x) { shared = 1 + look(); return 6 + (x != 0); }

static void quick_handler(int s) { (void)s; if (look()) failures++; }

/* Counts how many of four signals have the disposition that main has set. */
static int are_cleared(void) {
    struct sigaction a;
    int kept = 0;
    int of[] = {SIGUSR1, SIGSEGV};
    for (int i = 0; i < 2; i++) { sigaction(of[i], 0, &a); kept += a.sa_handler == quick_handler; if (a.sa_handler == SIG_DFL && (a.sa_flags & SA_RESTART)) kept += 10; }
    int ignored[] = {SIGUSR2, SIGBUS};
    for (int i = 0; i < 2; i++) { sigaction(ignored[i], 0, &a); if (a.sa_handler != SIG_IGN) kept += 20; else if (kept) kept++; }
    return kept;
}

static volatile int cleared_result;
static int cleared_sibling(void) { cleared_result = are_cleared() ? 1 : 10 + look(); return 11; }

/* Stores the argument registers after the call; the child calls a function. */
static long clone3_with(struct clone_args *args, int (*f)(void), long *after) {
    register long result __asm__("rax") = SYS_clone3;
    register long first __asm__("rdi") = (long)args;
    register long second __asm__("rsi") = sizeof *args;
    register long third __asm__("rdx") = (long)f;
    register long fourth __asm__("r10") = 0x10;
    register long fifth __asm__("r8") = 0x8;
    register long sixth __asm__("r9") = 0x9;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n test %%rdx, %%rdx\n jz 1f\n xor %%ebp, %%ebp\n call *%%rdx\n"
        "mov %%eax, %%edi\n mov $60, %%eax\n syscall\n 1:"
        : "+r"(result), "+r"(first), "+r"(second), "+r"(third), "+r"(fourth), "+r"(fifth), "+r"(sixth) : : "rcx", "r11", "memory", "cc");
    after[0] = first - (long)args; after[1] = second - sizeof *args; after[2] = third - (long)f;
    after[3] = fourth - 0x10; after[4] = fifth - 8; after[5] = sixth - 9;
    if (result < 0) { errno = -result; return -1; }
    return result;
}
static int wrong(const long *after) { for (int i = 0; i < 6; i++) if (after[i]) return 1; return 0; }

int main(int n, char **v) {
    if (n > 1 && !strcmp(v[1], "child")) return look() ? 1 : 5;
    start("crowds");
    setvbuf(stdout, 0, _IOLBF, 0);
    enum { MANY = 300 };
    static pthread_t t[MANY];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    mkfifo("fifo", 0600);
    for (int i = 0; i < MANY; i++) if (pthread_create(&t[i], &small, waits, "fifo")) failures++;
    while (blocked < MANY) usleep(1000);
    usleep(50000);
    if (look()) failures++;
    pid_t p = fork();
    if (p == 0) _exit(look());
    int s;
    waitpid(p, &s, 0);
    show_end("fork beside the blocked", s);
    int w = open("fifo", O_RDWR);
    for (int i = 0; i < MANY; i++) pthread_join(t[i], 0);
    close(w);
    fails("blocked in open");
    for (int i = 0; i < 2000; i++) { if (pthread_create(&t[0], &small, quick, 0)) { failures++; continue; } pthread_join(t[0], 0); }
    fails("thousands of threads");
    for (int i = 0; i < 6; i++) pthread_create(&t[i], 0, spawns, 0);
    for (int i = 0; i < 6; i++) pthread_join(t[i], 0);
    fails("vfork and spawn from threads");
    for (int i = 0; i < 200; i++) { p = vfork(); if (p == 0) _exit(look()); waitpid(p, &s, 0); if (s) failures++; }
    fails("vfork");
    for (int round = 0; round < 20; round++) {
        fflush(stdout);
        p = fork();
        if (p == 0) { for (int i = 0; i < 12; i++) pthread_create(&t[i], 0, forever, 0); usleep(round * 300); exit(round); }
        waitpid(p, &s, 0);
        if (!WIFEXITED(s) || WEXITSTATUS(s) != round) failures++;
    }
    fails("ending beside busy threads");
    for (int round = 0; round < 10; round++) {
        p = fork();
        if (p == 0) {
            char *words[] = {"/bin/crowds", "child", 0};
            for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, forever, 0);
            usleep(round * 300);
            execv("/bin/crowds", words);
            _exit(9);
        }
        waitpid(p, &s, 0);
        if (!WIFEXITED(s) || WEXITSTATUS(s) != 5) failures++;
    }
    fails("exec beside busy threads");
    for (int round = 0; round < 20; round++) {
        p = fork();
        if (p == 0) { for (int i = 0; i < 6; i++) pthread_create(&t[i], 0, forever, 0); for (;;) look(); }
        usleep(round * 200);
        kill(p, SIGKILL);
        waitpid(p, &s, 0);
        if (!WIFSIGNALED(s)) failures++;
    }
    fails("killed while busy");
    puts("-- memory shared without threads");
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 50; i++) {
        shared = 0;
        p = clone(sibling, stack + 65536, CLONE_VM | SIGCHLD, (void *)0);
        if (look()) failures++;
        waitpid(p, &s, 0);
        if (shared != 1 || WEXITSTATUS(s) != 6) failures++;
    }
    fails("CLONE_VM");
    for (int i = 0; i < 50; i++) {
        p = clone(sibling, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)1);
        waitpid(p, &s, 0);
        if (WEXITSTATUS(s) != 7) failures++;
    }
    fails("CLONE_VM and CLONE_VFORK");
    puts("-- without handlers");
    signal(SIGUSR1, quick_handler); signal(SIGSEGV, quick_handler); signal(SIGUSR2, SIG_IGN); signal(SIGBUS, SIG_IGN);
    struct clone_args cleared = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    for (int i = 0; i < 60; i++) {
        long unchanged[6];
        p = clone3_with(&cleared, 0, unchanged);
        if (p == 0) _exit(are_cleared() ? 1 : 10 + look());
        if (p < 0) { printf("clone3 without handlers: %s\n", strerrorname_np(errno)); break; }
        waitpid(p, &s, 0);
        if (!WIFEXITED(s) || WEXITSTATUS(s) != 10 || are_cleared() != 4 || wrong(unchanged)) failures++;
    }
    fails("clone3 without handlers");
    cleared.flags |= CLONE_VM | CLONE_VFORK;
    cleared.stack = (uintptr_t)stack;
    cleared.stack_size = 65536;
    for (int i = 0; i < 60; i++) {
        long unchanged[6];
        cleared_result = 0;
        p = clone3_with(&cleared, cleared_sibling, unchanged);
        if (p < 0) { printf("clone3 on a stack: %s\n", strerrorname_np(errno)); break; }
        waitpid(p, &s, 0);
        if (!WIFEXITED(s) || WEXITSTATUS(s) != 11 || cleared_result != 10 || are_cleared() != 4 || wrong(unchanged)) failures++;
    }
    fails("clone3 on a stack");
    cleared.stack = 0;
    DO(syscall(SYS_clone3, &cleared, sizeof cleared));
    cleared.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM;
    cleared.stack_size = 0;
    DO(syscall(SYS_clone3, &cleared, sizeof cleared));
    cleared.flags = CLONE_CLEAR_SIGHAND;
    cleared.exit_signal = 200;
    DO(syscall(SYS_clone3, &cleared, sizeof cleared));
    raise(SIGUSR1);
    fails("handlers afterwards");
    signal(SIGUSR1, SIG_DFL); signal(SIGSEGV, SIG_DFL); signal(SIGUSR2, SIG_DFL); signal(SIGBUS, SIG_DFL);
    puts("-- cancelled");
    for (int i = 0; i < 20; i++) {
        void *end;
        pthread_create(&t[0], 0, waits, "fifo");
        usleep(2000);
        pthread_cancel(t[0]);
        pthread_join(t[0], &end);
        if (end != PTHREAD_CANCELED) failures++;
    }
    if (look()) failures++;
    fails("cancelled");
    puts("-- a tree of processes");
    for (int i = 0; i < 5; i++) if (fork() == 0) { for (int j = 0; j < 5; j++) if (fork() == 0) _exit(look()); int bad = 0; while (wait(&s) > 0) bad += s != 0; _exit(bad); }
    while (wait(&s) > 0) if (s) failures++;
    fails("tree");
    return 0;
}
