/* Prints one line for each step: its name, its result, the error's name. Must not print anything
 * that differs between two correct kernels or two runs (process ids, inode numbers, times,
 * addresses). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say(const char *what, long result, int error) {
    if (result < 0 && result >= -4095)
        printf("%s: %ld %s\n", what, result, error ? strerrorname_np(error) : "-");
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
}

/* SIGALRM every 200 us, for at most this many signals. If a call takes longer than that (a
 * tracer on a busy machine), only handlers run, so the storm has to end from within: its handler
 * calls storm_seen. */
static volatile int storm_left;
static void storm_begin(int signals) {
    struct itimerval every = {{0, 200}, {0, 200}};
    storm_left = signals;
    setitimer(ITIMER_REAL, &every, 0);
}
static void storm_end(void) {
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, 0);
}
static void storm_seen(void) { if (--storm_left == 0) storm_end(); }

/* A call: its source text is its name. */
#define DO(expr) do { errno = 0; long result_ = (long)(expr); say(#expr, result_, errno); } while (0)
/* Success or the error, if the number has no meaning. */
#define OK(expr) do { errno = 0; long result_ = (long)(expr); say(#expr, result_ < 0 ? -1 : 0, errno); } while (0)
/* A descriptor that is closed again at once. */
#define OPEN(expr) do { errno = 0; int fd_ = (int)(expr); say(#expr, fd_, errno); if (fd_ >= 0) close(fd_); } while (0)
/* A condition. */
#define IS(expr) do { printf("%s: %s\n", #expr, (expr) ? "yes" : "no"); fflush(stdout); } while (0)
#define TEXT(what, text) do { printf("%s: \"%s\"\n", what, text); fflush(stdout); } while (0)

static void facts(const char *what, int result, const struct stat *st) {
    if (result) { say(what, result, errno); return; }
    printf("%s: %06o %u:%u", what, st->st_mode, st->st_uid, st->st_gid);
    if (!S_ISDIR(st->st_mode)) printf(" links %lu size %lld", (unsigned long)st->st_nlink, (long long)st->st_size);
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) printf(" device %u:%u", major(st->st_rdev), minor(st->st_rdev));
    printf("\n");
    fflush(stdout);
}
#define STAT(path) do { struct stat st_; int r_ = stat(path, &st_); facts("stat " path, r_, &st_); } while (0)
#define LSTAT(path) do { struct stat st_; int r_ = lstat(path, &st_); facts("lstat " path, r_, &st_); } while (0)

static void show_link(const char *path) {
    char text[PATH_MAX + 1];
    ssize_t n = readlink(path, text, PATH_MAX);
    if (n < 0) { printf("readlink %s: %s\n", path, strerrorname_np(errno)); return; }
    text[n] = 0;
    printf("readlink %s: \"%s\"\n", path, text);
    fflush(stdout);
}

static void show_cwd(void) {
    char text[PATH_MAX];
    errno = 0;
    long n = syscall(SYS_getcwd, text, sizeof text);
    if (n < 0) say("getcwd", n, errno); else printf("getcwd: \"%s\" %ld\n", text, n);
    fflush(stdout);
}

static int make(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

/* The status of a child from wait. */
static void show_end(const char *what, int status) {
    if (WIFEXITED(status)) printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status)) printf("%s: killed by %d%s\n", what, WTERMSIG(status), WCOREDUMP(status) ? "" : "");
    else if (WIFSTOPPED(status)) printf("%s: stopped by %d\n", what, WSTOPSIG(status));
    else if (WIFCONTINUED(status)) printf("%s: continued\n", what);
    fflush(stdout);
}

/* Runs a body in a child, and waits for it. */
#define CHILD(what, ...) do { \
    fflush(stdout); \
    pid_t pid_ = fork(); \
    if (pid_ == 0) { __VA_ARGS__; fflush(stdout); _exit(0); } \
    int status_ = 0; \
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {} \
    show_end(what, status_); } while (0)

/* A new working directory, at the start of a case. */
static void start(const char *name) {
    char path[64];
    umask(022);
    snprintf(path, sizeof path, "/work/%s-%u", name, (unsigned)getuid());
    if (mkdir(path, 0755) || chdir(path)) { printf("no directory %s: %s\n", path, strerrorname_np(errno)); exit(3); }
}
