/* A program that looks at everything that is done for it behind its back, in a tree of the container's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int bad;
#define IS(what) \
    do { errno = 0; if (!(what)) { bad = 1; printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); } } while (0)
#define FAILS(what, error) IS((long)(what) == -1 && errno == (error))

enum { LONG = 300 };

static int open_files(void) {
    int count = 0;
    for (int file = 3; file < 256; file++) count += fcntl(file, F_GETFD) >= 0;
    return count;
}

static void lowest(const char *path, int flags) {
    int file = open(path, flags, 0644);
    if (file != 3) { bad = 1; printf("%s, %x: %d (errno %d)\n", path, flags, file, errno); }
    close(file);
}

static int child(void) {
    fflush(stdout);
    return fork();
}

static int status_of(int process) {
    int status = -1;
    waitpid(process, &status, 0);
    return status;
}

static void descriptors(void) {
    IS(mkdir("/tmp/d", 0755) == 0 && symlink("d", "/tmp/ld") == 0 && symlink("/etc/small", "/tmp/lh") == 0);
    lowest("/etc/small", O_RDONLY);
    lowest("/tmp/lh", O_RDONLY);
    lowest("/tmp/ld/new", O_RDWR | O_CREAT);
    lowest("/tmp/ld/../ld/new", O_RDONLY);
    lowest("/lib64/../share", O_RDONLY);
    lowest("/proc/self/status", O_RDONLY);
    lowest("/proc/self/exe", O_RDONLY);
    lowest("/proc/self/maps", O_RDONLY);
    lowest("/proc/self/fd/1", O_WRONLY);
    lowest("/", O_RDONLY | O_DIRECTORY);
    lowest("/dev/null", O_RDWR);
    lowest("/tmp/lh", O_PATH | O_NOFOLLOW);
    lowest("/etc/small", O_RDWR);
    IS(chdir("/tmp/d") == 0);
    lowest("new", O_RDONLY);
    lowest("../ld/new", O_RDONLY);
    lowest("../../etc/small", O_RDONLY);
    IS(chmod("new", 0) == 0);
    lowest("new", O_RDWR);
    IS(open_files() == 0);
}

static void pointers(void) {
    struct stat facts;
    char *none = (char *)8, *name = malloc(6000);
    FAILS(syscall(SYS_stat, none, &facts), EFAULT);
    FAILS(syscall(SYS_stat, 0xffff800000000000, &facts), EFAULT);
    FAILS(syscall(SYS_stat, 0x7ff000000000ff0, &facts), EFAULT);
    FAILS(syscall(SYS_stat, "/etc", none), EFAULT);
    FAILS(syscall(SYS_stat, "/etc", "read only"), EFAULT);
    FAILS(syscall(SYS_getcwd, none, 100), EFAULT);
    FAILS(syscall(SYS_readlink, "/tmp/lh", none, 100), EFAULT);
    FAILS(syscall(SYS_execve, "/bin/guest", none, 0), EFAULT);
    FAILS(open("", O_RDONLY), ENOENT);
    memset(name, 'x', 5999);
    name[5999] = 0;
    FAILS(open(name, O_RDONLY), ENAMETOOLONG);
    FAILS(fstatat(99, "x", &facts, 0), EBADF);
    FAILS(fchownat(99, "", 1, 2, AT_EMPTY_PATH), EBADF);
    FAILS(utimensat(99, "x", 0, 0), EBADF);
    free(name);
}

/* With all descriptors used that it may have, what needs none works on. */
static void limit(void) {
    struct rlimit before, now;
    struct stat facts;
    char text[4096];
    int last = -1, file;
    IS(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = before;
    now.rlim_cur = 20;
    IS(setrlimit(RLIMIT_NOFILE, &now) == 0);
    while ((file = open("/etc/small", O_RDONLY)) >= 0) last = file;
    int why = errno;
    IS(why == EMFILE && last == 19);
    IS(stat("/lib64/../share/../../etc/small", &facts) == 0);
    IS(access("/tmp/ld/new", R_OK) == 0 && chmod("/tmp/ld/new", 0640) == 0);
    IS(rename("/tmp/ld/new", "/tmp/ld/old") == 0 && unlink("/tmp/ld/old") == 0);
    IS(mkdir("/tmp/ld/sub", 0700) == 0 && rmdir("/tmp/ld/sub") == 0);
    IS(readlink("/proc/self/exe", text, sizeof text) == 10 && getcwd(text, sizeof text) && !strcmp(text, "/tmp/d"));
    FAILS(open("/etc/many", O_RDWR), EMFILE);
    IS(truncate("/etc/short", 3) == 0 && stat("/etc/short", &facts) == 0 && facts.st_size == 3);
    int process = child();
    if (process == 0) _exit(execl("/bin/guest", "guest", "nothing", NULL));
    IS(status_of(process) == 0);
    IS(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 20);
    for (file = 3; file < 20; file++) close(file);
    IS(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void named(const char *name) {
    struct sockaddr_un address = {AF_UNIX}, back = {0};
    socklen_t length = sizeof back;
    strcpy(address.sun_path, name);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    IS(bind(server, (void *)&address, sizeof address) == 0 && listen(server, 5) == 0);
    IS(getsockname(server, (void *)&back, &length) == 0 && !strcmp(back.sun_path, name));
    int process = child();
    if (process == 0) _exit(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&address, sizeof address) != 0);
    IS(status_of(process) == 0);
    close(server);
}

static int reaches(const struct sockaddr_un *address) {
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    int result = connect(one, (const void *)address, sizeof *address);
    close(one);
    return result == 0;
}

/* Paths of 107 bytes, too long on the host, with names of all lengths. */
static void long_names(void) {
    for (int length = 50; length <= 100; length++) {
        struct sockaddr_un address = {AF_UNIX}, near = {AF_UNIX};
        strcpy(address.sun_path, "/tmp/");
        memset(address.sun_path + 5, 'w', 101 - length);
        IS(mkdir(address.sun_path, 0755) == 0);
        address.sun_path[106 - length] = '/';
        memset(address.sun_path + 107 - length, 'n', length);
        if (length <= 83) {
            named(address.sun_path);
            continue;
        }
        int server = socket(AF_UNIX, SOCK_STREAM, 0);
        int there = bind(server, (void *)&address, sizeof address) == 0;
        int error = errno;
        IS(length > 88 || there);
        if (!there) {
            IS(error == ENAMETOOLONG);
            strcpy(near.sun_path, address.sun_path + 107 - length);
            address.sun_path[106 - length] = 0;
            IS(chdir(address.sun_path) == 0);
            address.sun_path[106 - length] = '/';
            IS(bind(server, (void *)&near, sizeof near) == 0 && chdir("/tmp") == 0);
        }
        IS(listen(server, 5) == 0 && reaches(&address));
        int only = open(address.sun_path, O_PATH);
        sprintf(near.sun_path, "/proc/self/fd/%d", only);
        IS(reaches(&near));
        close(only);
        close(server);
        IS(open_files() == 0 && fcntl(1001, F_GETFD) < 0);
        struct stat facts;
        IS(lstat(address.sun_path, &facts) == 0 && S_ISSOCK(facts.st_mode));
    }
    /* Many in one call. */
    struct sockaddr_un address = {AF_UNIX};
    strcpy(address.sun_path, "/tmp/");
    memset(address.sun_path + 5, 'm', 102);
    int here = socket(AF_UNIX, SOCK_DGRAM, 0), away = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un near = {AF_UNIX};
    strcpy(near.sun_path, address.sun_path + 5);
    IS(chdir("/tmp") == 0 && bind(here, (void *)&near, sizeof near) == 0);
    struct iovec text = {"text", 4};
    struct mmsghdr many[9] = {0};
    for (int at = 0; at < 9; at++)
        many[at].msg_hdr = (struct msghdr){&address, sizeof address, &text, 1};
    int sent = sendmmsg(away, many, 9, 0);
    IS(sent > 0);
    while (sent--) IS(recv(here, address.sun_path, 4, MSG_DONTWAIT) == 4);
    close(here);
    close(away);
    IS(open_files() == 0 && fcntl(1001, F_GETFD) < 0);
}

static void sockets(void) {
    char deep[LONG] = "/tmp";
    for (int level = 0; level < 6; level++) {
        strcat(deep, "/a-rather-long-name-of-a-directory");
        IS(mkdir(deep, 0755) == 0);
    }
    IS(chdir(deep) == 0);
    named("sock");
    IS(chdir("/tmp") == 0);
    /* Short enough for the guest, too long on the host. */
    IS(mkdir("/tmp/ninety-bytes-are-short-enough-for-the-guest-and-too-long-on-the-host-with-its-tree-before", 0755) == 0);
    named("/tmp/ninety-bytes-are-short-enough-for-the-guest-and-too-long-on-the-host-with-its-tree-before/s");
    IS(open_files() == 0);
}

static void attributes(void) {
    struct statfs space;
    struct stat facts;
    char text[100];
    IS(statfs("/etc", &space) == 0 && space.f_bsize != 0);
    int file = open("/tmp/x", O_RDWR | O_CREAT, 0600);
    if (fsetxattr(file, "user.a", "b", 1, 0) == 0) {
        IS(getxattr("/tmp/x", "user.a", text, sizeof text) == 1);
        IS(listxattr("/tmp/x", text, sizeof text) == 7 && removexattr("/tmp/x", "user.a") == 0);
    }
    IS(fchown(file, 5, 6) == 0 && fstat(file, &facts) == 0 && facts.st_uid == 5 && facts.st_gid == 6);
    sprintf(text, "/proc/self/fd/%d", file);
    IS(chmod(text, 04711) == 0 && stat("/tmp/x", &facts) == 0 && (facts.st_mode & 07777) == 04711);
    close(file);
    file = open("/tmp/x", O_PATH);
    IS(fstatat(file, "", &facts, AT_EMPTY_PATH) == 0 && fchownat(file, "", 1, 2, AT_EMPTY_PATH) == 0);
    FAILS(read(file, text, 1), EBADF);
    FAILS(fchmod(file, 0600), EBADF);
    close(file);
}

/* Several processes change one file of the image, and write notes of their own. */
static void together(void) {
    struct stat facts;
    int processes[8];
    for (int each = 0; each < 8; each++) {
        if ((processes[each] = child()) != 0) continue;
        int file = open("/etc/many", O_WRONLY | O_APPEND), wrong = write(file, "#\n", 2) != 2;
        for (int link = 0; link < 50; link++) {
            char name[64];
            sprintf(name, "/tmp/d/l%d-%d", each, link);
            wrong += symlink("t", name) != 0 || lchown(name, each + 1, link) != 0;
        }
        _exit(wrong);
    }
    for (int each = 0; each < 8; each++) IS(status_of(processes[each]) == 0);
    IS(stat("/etc/many", &facts) == 0 && facts.st_size == 116 && facts.st_nlink == 1);
    for (int each = 0; each < 8; each++)
        for (int link = 0; link < 50; link++) {
            char name[64];
            sprintf(name, "/tmp/d/l%d-%d", each, link);
            IS(lstat(name, &facts) == 0 && facts.st_uid == each + 1 && facts.st_gid == link);
        }
}

static void others(void) {
    char name[64], text[8192];
    int ends[2], kids[3];
    IS(pipe(ends) == 0);
    for (int kid = 0; kid < 3; kid++) {
        if ((kids[kid] = child()) != 0) continue;
        if (kid == 1) execl("/bin/guest", "guest", "wait", NULL);
        if (kid == 2) IS(setuid(77) == 0);
        write(ends[1], "", 1);
        pause();
        _exit(0);
    }
    for (int kid = 0; kid < 3; kid++) read(ends[0], text, 1);
    for (int kid = 0; kid < 3; kid++) {
        sprintf(name, "/proc/%d/exe", kids[kid]);
        IS(readlink(name, text, sizeof text) == 10 && !memcmp(text, "/bin/guest", 10));
    }
    sprintf(name, "/proc/%d/status", kids[2]);
    int file = open(name, O_RDONLY), length = read(file, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    IS(strstr(text, "Uid:\t77\t77\t77\t77") != NULL);
    close(file);
    FAILS(open("/bin/guest", O_WRONLY), ETXTBSY);
    int process = child();
    if (process == 0) _exit(setuid(78) != 0 || kill(kids[2], 0) != -1 || errno != EPERM);
    IS(status_of(process) == 0);
    IS(kill(-1, SIGTERM) == 0);
    for (int kid = 0; kid < 3; kid++) IS(status_of(kids[kid]) == SIGTERM);
    FAILS(kill(-1, SIGTERM), ESRCH);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "nothing")) return 0;
    if (argc > 1) {
        /* Its descriptor 4 is the pipe of whoever started it. */
        write(4, "", 1);
        return pause();
    }
    alarm(60);
    umask(022);
    /* Tests beside this one may have files open while it is started. */
    for (int file = 3; file < 1000; file++) close(file);
    descriptors();
    pointers();
    limit();
    sockets();
    long_names();
    attributes();
    together();
    others();
    if (!bad) puts("good");
    return bad;
}
