// What access lists (acl(5)) do: prints results of calls that root and other users make. The file
// beside it has what it prints where root runs it in a chroot on ext4.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define ANY UINT32_MAX
enum { U = 1, USER = 2, G = 4, GROUP = 8, M = 16, O = 32 };

struct entry { uint16_t tag, perm; uint32_t id; };
struct list { uint32_t version; struct entry entries[16]; };

// Sets a list, of which the entries follow.
#define SET(path, name, ...) ({ \
    struct entry all[] = { __VA_ARGS__ }; \
    struct list list = { 2 }; \
    memcpy(list.entries, all, sizeof all); \
    setxattr(path, name, &list, 4 + sizeof all, 0); })
// Prints the result of a call.
#define SAY(call) say(#call, call)
// The same, as another user, with two further groups.
#define AS(uid, gid, call) BEGIN(uid, gid, gid, gid, #call, call)
#define AS2(uid, gid, one, two, call) BEGIN(uid, gid, one, two, #call, call)
#define BEGIN(uid, gid, one, two, text, call) do { \
    if (begin(uid, gid, one, two)) { say(text, call); fflush(stdout); _exit(0); } \
    wait(NULL); } while (0)

static void say(const char *what, long result) {
    int error = errno;
    if (result < 0) printf("%s: %s\n", what, strerrorname_np(error));
    else printf("%s: ok\n", what);
}

static int begin(int uid, int gid, gid_t one, gid_t two) {
    fflush(stdout);
    if (fork()) return 0;
    gid_t groups[] = { one, two };
    if (setgroups(2, groups) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid)) _exit(9);
    printf("  %d: ", uid);
    return 1;
}

static void show_list(const char *path, const char *name) {
    struct list list;
    ssize_t size = getxattr(path, name, &list, sizeof list);
    if (size < 0) { printf(" %s", strerrorname_np(errno)); return; }
    putchar(' ');
    for (ssize_t at = 0; at < (size - 4) / 8; at++) {
        struct entry *e = &list.entries[at];
        int is_user = e->tag == U || e->tag == USER;
        char tag = is_user ? 'u' : e->tag == M ? 'm' : e->tag == O ? 'o' : 'g';
        printf("%s%c:", at ? "," : "", tag);
        if (e->tag == USER || e->tag == GROUP) printf("%u", e->id);
        printf(":%d", e->perm);
    }
}

static void show(const char *path) {
    struct stat status;
    if (lstat(path, &status)) { printf("%s: %s\n", path, strerrorname_np(errno)); return; }
    printf("%s: %o %d:%d", path, status.st_mode, status.st_uid, status.st_gid);
    show_list(path, ACCESS);
    show_list(path, DEFAULT);
    char names[512];
    ssize_t size = listxattr(path, names, sizeof names);
    int lists = 0;
    for (ssize_t at = 0; at < size; at += strlen(names + at) + 1)
        lists += !strncmp(names + at, "system.", 7);
    printf(" (%d)\n", lists);
}

static int opens(const char *path, int flags) {
    int fd = open(path, flags, 0666);
    if (fd >= 0) close(fd);
    return fd;
}

static int makes(const char *path, int mode) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, mode);
    if (fd < 0) return fd;
    int wrote = write(fd, "x", 1);
    close(fd);
    return wrote;
}

static int makes_nameless(const char *directory, const char *path, int mode) {
    int fd = open(directory, O_TMPFILE | O_RDWR, mode);
    if (fd < 0) return fd;
    char name[64];
    sprintf(name, "/proc/self/fd/%d", fd);
    int linked = linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    close(fd);
    return linked;
}

static int socket_at(const char *path, int (*use)(int, const struct sockaddr *, socklen_t)) {
    struct sockaddr_un address = { AF_UNIX };
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    int result = use(fd, (struct sockaddr *)&address, sizeof address), error = errno;
    if (use == connect) close(fd);
    errno = error;
    return result;
}

static int runs(const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) { execl(path, path, "ran", NULL); _exit(errno); }
    int status;
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

static void copy_self(const char *path) {
    char bytes[4096];
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_CREAT | O_WRONLY, 0700);
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, n) != n) _exit(8);
    close(from); close(to);
}

static void files(void) {
    puts("-- files");
    makes("f", 0600);
    chmod("f", 0600);
    AS(33, 33, opens("f", O_RDONLY));
    SAY(SET("f", ACCESS, {U,6,ANY}, {USER,6,33}, {G,0,ANY}, {M,6,ANY}, {O,0,ANY}));
    show("f");
    AS(33, 33, opens("f", O_RDWR));
    AS(34, 34, opens("f", O_RDONLY));
    AS(34, 0, opens("f", O_RDONLY));
    AS(33, 33, access("f", R_OK | W_OK));
    AS(33, 33, faccessat(AT_FDCWD, "f", X_OK, AT_EACCESS));
    AS(33, 33, truncate("f", 1));
    AS(34, 34, truncate("f", 1));
    AS(33, 33, utimensat(AT_FDCWD, "f", NULL, 0));
    AS(34, 34, utimensat(AT_FDCWD, "f", NULL, 0));
    AS(33, 33, chmod("f", 0777));
    AS(33, 33, SET("f", ACCESS, {U,6,ANY}, {G,0,ANY}, {O,0,ANY}));
    AS(33, 33, removexattr("f", ACCESS));
    puts("mask");
    chmod("f", 0640);
    show("f");
    AS(33, 33, opens("f", O_RDONLY));
    AS(33, 33, opens("f", O_WRONLY));
    chmod("f", 0604);
    show("f");
    AS(33, 33, opens("f", O_RDONLY));
    chmod("f", 02664);
    chown("f", 35, 60);
    show("f");
    AS(33, 33, opens("f", O_WRONLY));
    puts("denied");
    SAY(SET("f", ACCESS, {U,4,ANY}, {USER,0,34}, {USER,7,35},
            {G,4,ANY}, {GROUP,2,50}, {M,7,ANY}, {O,7,ANY}));
    AS(34, 34, opens("f", O_RDONLY));
    AS(36, 36, opens("f", O_RDWR));
    AS(35, 35, opens("f", O_WRONLY));
    puts("groups");
    AS(36, 50, opens("f", O_RDONLY));
    AS(36, 50, opens("f", O_WRONLY));
    AS2(36, 36, 50, 60, opens("f", O_RDONLY));
    AS2(36, 36, 50, 60, opens("f", O_WRONLY));
    AS2(36, 36, 50, 60, opens("f", O_RDWR));
    SAY(opens("f", O_RDWR));
    SAY(link("f", "f2"));
    SAY(rename("f", "f3"));
    AS(34, 34, opens("f2", O_RDONLY));
    AS(34, 34, opens("f3", O_RDONLY));
}

static void programs(void) {
    puts("-- programs");
    copy_self("x");
    AS(33, 33, runs("./x"));
    SAY(SET("x", ACCESS, {U,7,ANY}, {USER,1,33}, {G,0,ANY}, {M,5,ANY}, {O,4,ANY}));
    AS(33, 33, runs("./x"));
    AS(34, 34, runs("./x"));
    AS(33, 33, access("x", X_OK));
    chmod("x", 0604);
    AS(33, 33, runs("./x"));
    SAY(runs("./x"));
}

static void directories(void) {
    puts("-- directories");
    mkdir("d", 0700);
    makes("d/f", 0666);
    chmod("d/f", 0666);
    SAY(SET("d", ACCESS, {U,7,ANY}, {USER,1,33}, {USER,3,37}, {G,0,ANY}, {M,7,ANY}, {O,0,ANY}));
    show("d");
    AS(33, 33, opens("d/f", O_RDONLY));
    AS(34, 34, opens("d/f", O_RDONLY));
    AS(33, 33, opens("d", O_RDONLY | O_DIRECTORY));
    AS(33, 33, chdir("d"));
    AS(34, 34, chdir("d"));
    AS(33, 33, unlink("d/f"));
    AS(33, 33, makes("d/n", 0600));
    AS(37, 37, makes("d/n", 0600));
    AS(37, 37, mkdir("d/e", 0700));
    AS(37, 37, symlink("n", "d/l"));
    AS(37, 37, link("d/n", "d/n2"));
    AS(37, 37, mknod("d/p", S_IFIFO | 0600, 0));
    AS(37, 37, socket_at("d/s", bind));
    AS(37, 37, rename("d/n", "d/m"));
    AS(33, 33, rename("d/m", "d/n"));
    AS(37, 37, makes_nameless("d", "d/t", 0600));
    AS(37, 37, unlink("d/f"));
    AS(37, 37, rmdir("d/e"));
    puts("others may search");
    mkdir("d2", 0755);
    makes("d2/f", 0644);
    AS(34, 34, access("d2/f", R_OK));
    AS(34, 34, access("d2/f", R_OK));
    SAY(SET("d2", ACCESS, {U,7,ANY}, {USER,0,34}, {G,5,ANY}, {M,5,ANY}, {O,5,ANY}));
    show("d2");
    AS(34, 34, access("d2/f", R_OK));
    AS(34, 34, opens("d2/f", O_RDONLY));
    AS(35, 35, access("d2/f", R_OK));
    AS(34, 34, access("d2/f", R_OK));
    SAY(removexattr("d2", ACCESS));
    AS(34, 34, access("d2/f", R_OK));
}

static void inheritance(void) {
    puts("-- inheritance");
    umask(077);
    mkdir("i", 0777);
    chmod("i", 0777);
    SAY(SET("i", DEFAULT, {U,7,ANY}, {G,7,ANY}, {O,5,ANY}));
    show("i");
    SAY(mkdir("i/d", 0777));
    show("i/d");
    SAY(makes("i/f", 0666));
    show("i/f");
    SAY(makes("i/g", 0640));
    show("i/g");
    SAY(mknod("i/p", S_IFIFO | 0666, 0));
    show("i/p");
    SAY(mknod("i/m", S_IFREG | 0666, 0));
    show("i/m");
    SAY(socket_at("i/s", bind));
    show("i/s");
    SAY(symlink("f", "i/l"));
    show("i/l");
    SAY(makes_nameless("i", "i/t", 0666));
    show("i/t");
    puts("with names");
    SAY(SET("i", DEFAULT, {U,7,ANY}, {USER,7,33}, {G,5,ANY}, {GROUP,3,50}, {M,7,ANY}, {O,1,ANY}));
    SAY(mkdir("i/d2", 0777));
    show("i/d2");
    SAY(mkdir("i/d2/d3", 02750));
    show("i/d2/d3");
    SAY(makes("i/d2/f", 0666));
    show("i/d2/f");
    AS(33, 33, opens("i/d2/f", O_RDWR));
    AS(34, 34, opens("i/d2/f", O_RDONLY));
    SAY(makes("i/f2", 0640));
    show("i/f2");
    AS(33, 33, opens("i/f2", O_RDONLY));
    AS(33, 33, opens("i/f2", O_RDWR));
    SAY(makes("i/f3", 0400));
    show("i/f3");
    struct open_how how = { .flags = O_CREAT | O_RDWR, .mode = 0660 };
    SAY(syscall(SYS_openat2, AT_FDCWD, "i/f4", &how, sizeof how));
    show("i/f4");
    SAY(makes_nameless("i", "i/t2", 0660));
    show("i/t2");
    SAY(opens("i/f5", O_CREAT | O_RDONLY));
    show("i/f5");
    SAY(opens("i/f5", O_CREAT | O_WRONLY | O_TRUNC));
    SAY(mknod("i/n", S_IFREG | 0666, 0));
    show("i/n");
    SAY(mknod("i/p2", S_IFIFO | 0666, 0));
    show("i/p2");
    AS(33, 33, opens("i/p2", O_RDWR));
    AS(34, 34, opens("i/p2", O_RDWR));
    umask(0);
    SAY(socket_at("i/s2", bind));
    show("i/s2");
    AS(33, 33, socket_at("i/s2", connect));
    AS(34, 34, socket_at("i/s2", connect));
    AS2(34, 34, 50, 50, socket_at("i/s2", connect));
    umask(077);
    chown("i", 0, 60);
    chmod("i", 02777);
    AS(36, 36, makes("i/f6", 0666));
    show("i/f6");
    AS(36, 36, mkdir("i/d6", 0777));
    show("i/d6");
    SAY(removexattr("i", DEFAULT));
    show("i");
    SAY(makes("i/f7", 0666));
    show("i/f7");
    umask(022);
}

static void changes(void) {
    puts("-- changes");
    makes("c", 0640);
    mkdir("k", 0755);
    struct list none = { 2 }, bad = { 1 };
    char small[8];
    SAY(getxattr("c", ACCESS, small, sizeof small));
    SAY(removexattr("c", ACCESS));
    SAY(removexattr("c", DEFAULT));
    SAY(SET("c", DEFAULT, {U,6,ANY}, {G,0,ANY}, {O,0,ANY}));
    SAY(SET("c", ACCESS, {U,6,ANY}, {USER,6,33}, {G,0,ANY}, {O,0,ANY}));
    SAY(SET("c", ACCESS, {U,6,ANY}, {G,0,ANY}, {USER,6,33}, {M,6,ANY}, {O,0,ANY}));
    SAY(SET("c", ACCESS, {U,8,ANY}, {G,0,ANY}, {O,0,ANY}));
    SAY(setxattr("c", ACCESS, &none, 3, 0));
    SAY(setxattr("c", ACCESS, &bad, 4, 0));
    SAY(SET("c", ACCESS, {U,7,ANY}, {G,5,ANY}, {O,1,ANY}));
    show("c");
    SAY(SET("c", ACCESS, {U,6,ANY}, {G,6,ANY}, {M,4,ANY}, {O,0,ANY}));
    show("c");
    SAY(getxattr("c", ACCESS, small, sizeof small));
    SAY(getxattr("c", ACCESS, NULL, 0));
    struct list again = { 2, { {U,6,ANY}, {G,6,ANY}, {M,6,ANY}, {O,0,ANY} } };
    SAY(setxattr("c", ACCESS, &again, 36, XATTR_CREATE));
    SAY(removexattr("c", ACCESS));
    show("c");
    SAY(setxattr("c", ACCESS, &again, 36, XATTR_REPLACE));
    SAY(setxattr("c", ACCESS, &none, 4, 0));
    show("c");
    SAY(setxattr("c", ACCESS, &again, 36, 0));
    SAY(SET("c", ACCESS, {U,6,ANY}, {G,4,ANY}, {O,4,ANY}));
    show("c");
    SAY(SET("k", DEFAULT, {U,7,ANY}, {G,0,ANY}, {O,0,ANY}));
    SAY(setxattr("k", DEFAULT, NULL, 0, 0));
    show("k");
    symlink("c", "y");
    SAY(lsetxattr("y", ACCESS, &again, 36, 0));
    chown("c", 36, 60);
    chmod("c", 02755);
    AS(36, 36, setxattr("c", ACCESS, &again, 36, 0));
    show("c");
    AS(36, 36, removexattr("c", ACCESS));
    chmod("c", 02755);
    AS2(36, 36, 60, 60, setxattr("c", ACCESS, &again, 36, 0));
    show("c");
    int fd = open("c", O_RDWR);
    SAY(fchmod(fd, 0604));
    show("c");
    SAY(fremovexattr(fd, ACCESS));
    show("c");
    SAY(fsetxattr(fd, ACCESS, &again, 36, 0));
    show("c");
    AS(33, 33, setxattr("c", "user.x", "1", 1, 0));
    SAY(SET("c", ACCESS, {U,6,ANY}, {USER,6,33}, {G,0,ANY}, {M,6,ANY}, {O,0,ANY}));
    AS(33, 33, setxattr("c", "user.x", "1", 1, 0));
    AS(33, 33, getxattr("c", "user.x", small, 1));
    AS(34, 34, getxattr("c", "user.x", small, 1));
}

static int keep(void) {
    makes("/kept", 0600);
    SAY(SET("/kept", ACCESS, {U,6,ANY}, {USER,6,33}, {G,0,ANY}, {M,6,ANY}, {O,0,ANY}));
    return chmod("/kept", 0640);
}

static int kept(void) {
    show("/kept");
    AS(33, 33, opens("/kept", O_RDONLY));
    AS(33, 33, opens("/kept", O_WRONLY));
    return 0;
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    if (!strcmp(word, "ran")) return 0;
    if (!strcmp(word, "keep")) return keep();
    if (!strcmp(word, "kept")) return kept();
    char top[64];
    sprintf(top, "%s/lists-XXXXXX", word);
    if (!mkdtemp(top) || chmod(top, 0755) || chdir(top)) { perror(top); return 1; }
    umask(022);
    files();
    programs();
    directories();
    inheritance();
    changes();
}
