/* The attributes of a file, by every call that returns them. */
#include "step.h"

static void same(const char *path) {
    struct stat a, b, c, d;
    struct statx x;
    int fd = open(path, O_PATH | O_NOFOLLOW);
    errno = 0;
    int r = lstat(path, &a);
    printf("%s: %d %s\n", path, r, errno ? strerrorname_np(errno) : "-");
    if (r) return;
    fstat(fd, &b);
    fstatat(fd, "", &c, AT_EMPTY_PATH);
    syscall(SYS_newfstatat, AT_FDCWD, path, &d, AT_SYMLINK_NOFOLLOW);
    syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x);
    /* Other processes may read files of the image meanwhile, or add a name to them, and write to
     * a device of the host. */
    struct stat *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) {
        all[i]->st_atim = all[i]->st_ctim = (struct timespec){0, 0};
        if (S_ISCHR(a.st_mode)) all[i]->st_mtim = all[i]->st_atim;
    }
    printf("same: %d %d %d\n", !memcmp(&a, &b, sizeof a), !memcmp(&a, &c, sizeof a), !memcmp(&a, &d, sizeof a));
    printf("statx: %d %d %d %d %d\n", x.stx_mode == a.st_mode, x.stx_uid == a.st_uid && x.stx_gid == a.st_gid, x.stx_ino == a.st_ino,
           x.stx_nlink == a.st_nlink, makedev(x.stx_dev_major, x.stx_dev_minor) == a.st_dev);
    facts(path, 0, &a);
    close(fd);
}

int main(void) {
    start("stats");
    mkdir("d", 0751); make("f", "text"); symlink("f", "l"); mkfifo("p", 0640); link("f", "g");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un u = {AF_UNIX, "s"};
    bind(s, (void *)&u, sizeof u);
    same("f"); same("d"); same("l"); same("p"); same("s"); same("none"); same("/bin"); same("/etc/passwd"); same("/dev/null"); same("/work");
    same("/shared/one"); same("/shared/two"); same("/owned"); same("/owned/secret"); same("/suid"); same("/a-link");
    struct statx x;
    DO(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_ALL, &x));
    DO(syscall(SYS_statx, AT_FDCWD, "f", 0x10, STATX_ALL, &x));
    DO(syscall(SYS_statx, AT_FDCWD, "f", 0, 0x80000000u, &x));
    DO(syscall(SYS_statx, AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_ALL, &x));
    DO(syscall(SYS_statx, 99, "", AT_EMPTY_PATH, STATX_ALL, &x));
    DO(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_ALL, (void *)8));
    struct statfs fs;
    DO(statfs("f", &fs));
    DO(statfs("/proc", &fs));
    printf("proc: %lx\n", (long)fs.f_type);
    DO(statfs("none", &fs));
    int fd = open("f", O_RDONLY);
    DO(fstatfs(fd, &fs));
    puts("-- times");
    struct timespec t[2] = {{1000000000, 5}, {1200000000, 7}};
    struct stat st;
    DO(utimensat(AT_FDCWD, "f", t, 0));
    stat("f", &st);
    printf("%lld.%ld %lld.%ld\n", (long long)st.st_atime, st.st_atim.tv_nsec, (long long)st.st_mtime, st.st_mtim.tv_nsec);
    t[0].tv_nsec = UTIME_OMIT; t[1].tv_sec = 7;
    DO(futimens(fd, t));
    stat("f", &st);
    printf("%lld %lld\n", (long long)st.st_atime, (long long)st.st_mtime);
    DO(utimensat(AT_FDCWD, "l", t, AT_SYMLINK_NOFOLLOW));
    lstat("l", &st);
    printf("%lld\n", (long long)st.st_mtime);
    t[0].tv_nsec = 2000000000;
    DO(utimensat(AT_FDCWD, "f", t, 0));
    DO(utimensat(AT_FDCWD, "none", 0, 0));
    struct timeval v[2] = {{5, 500000}, {6, 1000000}};
    DO(utimes("f", v));
    v[1].tv_usec = 1;
    DO(utimes("f", v));
    DO(futimesat(AT_FDCWD, "f", v));
    DO(utimensat(fd, 0, 0, 0));
    DO(utimensat(AT_FDCWD, 0, 0, 0));
    DO(utimensat(AT_FDCWD, "f", t, 0x4000000));
    puts("-- modes");
    DO(chmod("f", 04711)); STAT("f");
    DO(fchmod(fd, 0600)); STAT("f");
    DO(chmod("l", 0644)); STAT("g"); LSTAT("l");
    DO(fchmodat(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
    DO(chmod("d", 03775)); STAT("d");
    DO(chmod("p", 0)); STAT("p");
    DO(chmod("none", 0));
    DO(chmod("f", 0777777)); STAT("f");
    DO(chmod("f", 0)); STAT("f");
    OPEN(open("f", O_RDONLY));
    DO(access("f", R_OK));
    DO(access("f", X_OK));
    DO(chmod("f", 0644));
    DO(truncate("f", 100)); STAT("f");
    DO(truncate("f", -1));
    DO(truncate("d", 1));
    DO(truncate("p", 1));
    DO(unlink("s"));
    return 0;
}
