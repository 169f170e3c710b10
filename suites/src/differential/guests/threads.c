/* Threads and processes, and the state that they share. */
#include "step.h"
#include <linux/sched.h>

static int failures;
static void *open_files(void *id) {
    char name[40];
    for (int i = 0; i < 300; i++) {
        sprintf(name, "t%ld-%d", (long)id, i);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) || stat(name, &st) || unlink(name)) __sync_fetch_and_add(&failures, 1);
        close(fd);
    }
    return 0;
}

static int child(void *flags) {
    umask(077);
    chdir("/");
    if (flags) open("/etc/passwd", O_RDONLY);
    return 3;
}

static char stack[1 << 16] __attribute__((aligned(16)));

static void shared(const char *what, int flags) {
    int s;
    umask(022);
    chdir("/work");
    int next = open("/dev/null", O_RDONLY);
    close(next);
    access("here", F_OK);
    pid_t p = clone(child, stack + sizeof stack, flags | SIGCHLD, (void *)1);
    if (p < 0) { say(what, -1, errno); return; }
    waitpid(p, &s, 0);
    show_end(what, s);
    int now = open("/dev/null", O_RDONLY);
    printf("%s: umask %o descriptors %s\n", what, umask(022), now == next ? "own" : "shared");
    close(now);
    printf("%s: relative names are %s\n", what, access("etc/passwd", F_OK) ? "own" : "shared");
    show_cwd();
}

/* A thread that shares the umask, and has made no call since another one changed it, makes
 * children with the new one. */
static int masks(void *x) { umask(0137); return 0; }
static void behind(void) {
    int s;
    umask(022);
    chdir("/work");
    waitpid(clone(masks, stack + sizeof stack, CLONE_FS | SIGCHLD, 0), &s, 0);
    pid_t p = fork();
    if (p == 0) _exit(umask(0) == 0137);
    waitpid(p, &s, 0);
    show_end("a child of who is behind", s);
    waitpid(clone(masks, stack + sizeof stack, CLONE_FS | SIGCHLD, 0), &s, 0);
    p = vfork();
    if (p == 0) _exit(close(open("after vfork", O_CREAT | O_EXCL, 0777)) == 0);
    waitpid(p, &s, 0);
    show_end("the same of vfork", s);
    STAT("after vfork");
    unlink("after vfork");
    umask(022);
}

static volatile int gone;
static int apart(void *x) {
    chdir("/");
    gone = 1 + (access("etc/passwd", F_OK) != 0);
    syscall(SYS_exit, 0);
    return 0;
}

static void *blocked(void *path) { return (void *)(long)open(path, O_RDONLY); }
static void *quick(void *x) { return x; }

int main(void) {
    start("threads");
    pthread_t t[16];
    for (long i = 0; i < 16; i++) pthread_create(&t[i], 0, open_files, (void *)i);
    for (int i = 0; i < 40; i++) { pid_t p = fork(); if (p == 0) { struct stat st; _exit(stat("/etc/passwd", &st) ? 1 : 0); } int s; waitpid(p, &s, 0); if (s) failures++; }
    for (int i = 0; i < 16; i++) pthread_join(t[i], 0);
    printf("failures: %d\n", failures);
    for (int i = 0; i < 500; i++) { pthread_create(&t[0], 0, quick, 0); pthread_join(t[0], 0); }
    puts("created");
    int s, bad = 0;
    pid_t p[60];
    for (int i = 0; i < 60; i++) if ((p[i] = fork()) == 0) { usleep(1000); _exit(access("/etc/passwd", F_OK) ? 1 : i); }
    for (int i = 0; i < 60; i++) { waitpid(p[i], &s, 0); if (WEXITSTATUS(s) != i) bad++; }
    printf("bad: %d\n", bad);
    show_cwd();
    shared("nothing", 0);
    shared("fs", CLONE_FS);
    shared("files", CLONE_FILES);
    shared("vm vfork", CLONE_VM | CLONE_VFORK);
    shared("untraced", CLONE_UNTRACED);
    shared("fs and semaphores", CLONE_FS | CLONE_SYSVSEM);
    shared("fs and io", CLONE_FS | CLONE_IO | CLONE_FILES);
    shared("fs and vm vfork", CLONE_FS | CLONE_VM | CLONE_VFORK);
    behind();
    chdir("/work");
    access("here", F_OK);
    if (clone(apart, stack + sizeof stack, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, 0) > 0) {
        while (!gone) usleep(1000);
        printf("a thread with a directory of its own: %d\n", gone);
        IS(access("etc/passwd", F_OK) != 0);
        show_cwd();
        usleep(20000);
    }
    shared("newuser", CLONE_NEWUSER | CLONE_FILES | 0x100);
    struct clone_args args = {.flags = 0, .exit_signal = SIGCHLD};
    fflush(stdout);
    long c = syscall(SYS_clone3, &args, sizeof args);
    if (c == 0) _exit(access("/etc/passwd", F_OK) ? 1 : 6);
    waitpid(c, &s, 0);
    show_end("clone3", s);
    DO(syscall(SYS_clone3, (void *)8, sizeof args));
    DO(syscall(SYS_clone3, &args, 8));
    DO(unshare(CLONE_FS));
    DO(unshare(CLONE_FILES));
    DO(unshare(0x2));
    IS(syscall(SYS_gettid) == getpid());
    chdir("/work");
    mkfifo("pipe-of-threads", 0600);
    pthread_create(&t[0], 0, blocked, "pipe-of-threads");
    usleep(30000);
    pthread_cancel(t[0]);
    void *result;
    pthread_join(t[0], &result);
    IS(result == PTHREAD_CANCELED);
    unlink("pipe-of-threads");
    CHILD("exit with threads", { pthread_create(&t[0], 0, blocked, "/dev/null"); for (int i = 1; i < 8; i++) pthread_create(&t[i], 0, (void *(*)(void *))pause, 0); exit(4); });
#ifdef __GLIBC__
    /* With musl it hangs everywhere. */
    CHILD("leader ends first", { pthread_create(&t[0], 0, (void *(*)(void *))usleep, (void *)30000); pthread_exit(0); });
#endif
    int fd = syscall(SYS_pidfd_open, getpid(), 0);
    IS(fd >= 0);
    close(fd);
    CHILD("subreaper", {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (fork() == 0) { if (fork() == 0) { usleep(20000); _exit(8); } _exit(0); }
        int st;
        wait(&st); show_end("first", st);
        wait(&st); show_end("second", st);
    });
    pid_t g = fork();
    if (g == 0) { setsid(); _exit(getpgrp() == getpid() && getsid(0) == getpid() ? 0 : 1); }
    waitpid(g, &s, 0);
    show_end("session", s);
    CHILD("parent dies", { prctl(PR_SET_PDEATHSIG, SIGKILL); int sig; prctl(PR_GET_PDEATHSIG, &sig); printf("%d\n", sig); });
    return 0;
}
