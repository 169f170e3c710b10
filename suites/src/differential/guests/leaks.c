/* Every call that takes a path, with a file that only the host has; and other ways to such a
 * file. */
#include "step.h"
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* Paths by `..` through the root, to a directory that has the same name in the guest and on the
 * host; often enough that the resolution is cached. */
static void by_the_root(const char *p) {
    char directory[4096], path[8192];
    struct stat st;
    strcpy(directory, p);
    *strrchr(directory, '/') = 0;
    const char *base = strrchr(directory, '/'), *file = strrchr(p, '/');
    mkdir(directory, 0755);
    int found = 0, here = open(".", O_RDONLY);
    chdir("/");
    const char *forms[] = {"/usr/..%s/..%s%s", "usr/..%s/..%s%s", "/%s/..%s%s", "/..%s/..%s%s"};
    for (int turn = 0; turn < 40; turn++) {
        for (unsigned i = 0; i < 4; i++) {
            sprintf(path, forms[i], directory, base, file);
            int fd = open(path, O_RDONLY);
            if (fd >= 0) close(fd);
            found += (fd >= 0) + (stat(path, &st) == 0) + (access(path, F_OK) == 0);
        }
    }
    printf("by ways through the root: %d\n", found);
    rmdir(directory);
    fchdir(here);
    close(here);
}

int main(int argc, char **argv) {
    start("leaks");
    const char *p = argc > 1 ? argv[1] : "/none/such/file";
    by_the_root(p);
    char b[4096];
    struct stat st;
    int in = inotify_init();
#define L(name, ...) do { errno = 0; long r_ = syscall(SYS_##name, __VA_ARGS__); printf("%s: %ld %s\n", #name, r_, errno ? strerrorname_np(errno) : "-"); fflush(stdout); } while (0)
    L(open, p, 0); L(openat, AT_FDCWD, p, 0); L(creat, p, 0600); L(stat, p, &st); L(lstat, p, &st); L(newfstatat, AT_FDCWD, p, &st, 0); L(statx, AT_FDCWD, p, 0, 0xfff, b);
    L(access, p, 0); L(faccessat, AT_FDCWD, p, 0); L(faccessat2, AT_FDCWD, p, 0, 0); L(readlink, p, b, 100); L(readlinkat, AT_FDCWD, p, b, 100); L(chdir, p); L(truncate, p, 0);
    L(mkdir, p, 0755); L(mkdirat, AT_FDCWD, p, 0755); L(mknod, p, S_IFREG, 0); L(rmdir, p); L(unlink, p); L(unlinkat, AT_FDCWD, p, 0); L(rename, p, "x"); L(renameat, AT_FDCWD, p, AT_FDCWD, "x"); L(renameat2, AT_FDCWD, p, AT_FDCWD, "x", 0);
    L(link, p, "x"); L(linkat, AT_FDCWD, p, AT_FDCWD, "x", 0); L(symlink, "x", p); L(chmod, p, 0); L(fchmodat, AT_FDCWD, p, 0); L(fchmodat2, AT_FDCWD, p, 0, 0); L(chown, p, -1, -1); L(lchown, p, -1, -1); L(fchownat, AT_FDCWD, p, -1, -1, 0);
    L(utime, p, 0); L(utimes, p, 0); L(utimensat, AT_FDCWD, p, 0, 0); L(futimesat, AT_FDCWD, p, 0); L(statfs, p, b);
    L(getxattr, p, "user.x", b, 10); L(lgetxattr, p, "user.x", b, 10); L(setxattr, p, "user.x", b, 1, 0); L(lsetxattr, p, "user.x", b, 1, 0); L(listxattr, p, b, 10); L(llistxattr, p, b, 10); L(removexattr, p, "user.x"); L(lremovexattr, p, "user.x");
    L(execve, p, 0, 0); L(execveat, AT_FDCWD, p, 0, 0, 0); L(inotify_add_watch, in, p, 1); L(name_to_handle_at, AT_FDCWD, p, b, b + 200, 0);
    struct open_how how = {0};
    L(openat2, AT_FDCWD, p, &how, sizeof how);
    errno = 0;
    /* Guests have no rings; natively they exist, so only the relevant result is shown. */
    long ring = syscall(SYS_io_uring_setup, 8, 0);
    printf("io_uring without parameters: %s\n", ring < 0 ? "refused" : "made");
    /* Calls of the other architecture, from 64-bit code. */
    char *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    strcpy(low, p);
    long r;
#define I(name, nr, b_, c_, d_) do { __asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(b_), "c"(c_), "d"(d_) : "memory", "r8", "r9", "r10", "r11"); printf("i386 %s: %ld\n", name, (long)(int)r); fflush(stdout); } while (0)
    I("open", 5, low, 0, 0); I("access", 33, low, 0, 0); I("stat64", 195, low, low + 2048, 0); I("chdir", 12, low, 0, 0); I("mkdir", 39, low, 0755, 0); I("execve", 11, low, 0, 0);
    strcpy(low, "/etc/passwd");
    I("open", 5, low, 0, 0); if (r >= 0) close(r);
    I("access", 33, low, 0, 0); I("stat64", 195, low, low + 2048, 0); printf("mode %o size %lld\n", *(unsigned *)(low + 2048 + 16), *(long long *)(low + 2048 + 44));
    I("getuid32", 199, 0, 0, 0); I("getcwd", 183, low, 4096, 0); printf("cwd %s\n", low);
    /* x32 does not exist on most kernels. */
    DO(syscall(0x40000000 | SYS_getpid));
    DO(syscall(10000));
    /* A descriptor from outside must not lead out. */
    int up = open("/", O_RDONLY);
    DO(openat(up, "../../../../none-such-here", O_RDONLY));
    DO(faccessat(up, p + 1, F_OK, 0));
    DO(mount("x", "/work", "tmpfs", 0, 0) < 0 || 1);
    DO(syscall(SYS_open_by_handle_at, AT_FDCWD, b, 0) < 0);
    return 0;
}
