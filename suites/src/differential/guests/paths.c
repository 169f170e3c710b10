/* Names: links, dots, slashes, dirfds, errors and their order. */
#include "step.h"

static void matrix(void) {
    static const char *names[] = {
        "", ".", "..", "/", "//", "/.", "/..", "/../..", "f", "f/", "f/.", "f/..", "f/x", "d", "d/", "d/.", "d/..", "d//", "d/./f", "d/none",
        "d/none/", "none", "none/", "none/.", "none/..", "none/x", "lf", "lf/", "ld", "ld/", "ld/.", "ld/..", "ld/f", "ld/../f", "dangling",
        "dangling/", "dangling/x", "loop", "loop/", "loop/x", "abs", "abs/", "abs/f", "up/f", "up/../d", "../../../../../../etc/passwd",
        "/bin/../etc/passwd", "d/../d/../d/f", "chain0", "chain0/f", 0 };
    char line[256];
    for (const char **name = names; *name; name++) {
        struct stat st;
        int n = 0;
        n += sprintf(line + n, "%-32s", *name);
#define TRY(label, expr) do { errno = 0; long r = (long)(expr); \
    n += sprintf(line + n, " %s=%s", label, r < 0 ? strerrorname_np(errno) : "ok"); } while (0)
        TRY("stat", stat(*name, &st));
        TRY("lstat", lstat(*name, &st));
        TRY("access", access(*name, F_OK));
        int fd = open(*name, O_RDONLY);
        TRY("open", fd);
        if (fd >= 0) close(fd);
        fd = open(*name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        TRY("dir", fd);
        if (fd >= 0) close(fd);
        char text[100];
        TRY("readlink", readlink(*name, text, sizeof text));
        puts(line);
        n = sprintf(line, "%-32s", *name);
        TRY("mkdir", mkdir(*name, 0755));
        if (!strcmp(*name, "none")) rmdir("none");
        if (!strcmp(*name, "none/")) rmdir("none");
        if (!strcmp(*name, "d/none") || !strcmp(*name, "d/none/")) rmdir("d/none");
        TRY("rmdir", strcmp(*name, "d") && strcmp(*name, "d/") && strcmp(*name, "d//") ? rmdir(*name) : (errno = 0, 0));
        TRY("creat", (fd = open(*name, O_WRONLY | O_CREAT | O_EXCL, 0600)));
        if (fd >= 0) { close(fd); unlink(*name); }
        TRY("chdir", chdir("."));
        TRY("symlink", symlink("x", *name));
        if (!strcmp(*name, "none")) unlink("none");
        if (!strstr(*name, "passwd")) TRY("truncate", truncate(*name, 3));
        puts(line);
    }
    fflush(stdout);
}

static void dirfds(void) {
    int d = open("d", O_RDONLY | O_DIRECTORY), p = open("d", O_PATH), f = open("f", O_RDONLY), l = open("lf", O_PATH | O_NOFOLLOW);
    struct stat st;
    char text[100];
    OPEN(openat(d, "f", O_RDONLY));
    OPEN(openat(d, "../f", O_RDONLY));
    OPEN(openat(p, "../../../../../../etc/passwd", O_RDONLY));
    OPEN(openat(f, "x", O_RDONLY));
    OPEN(openat(99, "x", O_RDONLY));
    OPEN(openat(99, "/etc/passwd", O_RDONLY));
    OPEN(openat(-5, "x", O_RDONLY));
    OPEN(openat(f, "", O_RDONLY));
    DO(fstatat(f, "", &st, AT_EMPTY_PATH));
    DO(fstatat(f, "", &st, 0));
    DO(fstatat(AT_FDCWD, "", &st, AT_EMPTY_PATH));
    DO(fstatat(l, "", &st, AT_EMPTY_PATH));
    IS(S_ISLNK(st.st_mode));
    DO(readlinkat(l, "", text, sizeof text));
    DO(readlinkat(f, "", text, sizeof text));
    DO(readlinkat(d, "", text, sizeof text));
    DO(fstatat(d, "f", &st, 0x8000000));
    DO(syscall(SYS_faccessat2, d, "f", R_OK, AT_SYMLINK_NOFOLLOW));
    DO(syscall(SYS_faccessat2, AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
    DO(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, 0x4000));
    DO(syscall(SYS_faccessat, d, "f", F_OK, 0x100, 0x1000));
    DO(faccessat(f, "", F_OK, AT_EMPTY_PATH));
    DO(syscall(SYS_fchmodat, d, "f", 0640, 0xdeadbeef));
    DO(fchownat(f, "", -1, -1, AT_EMPTY_PATH));
    DO(linkat(f, "", AT_FDCWD, "by-fd", 0));
    DO(mkdirat(d, "../made", 0755));
    DO(unlinkat(d, "../made", 0));
    DO(unlinkat(d, "../made", AT_REMOVEDIR));
    DO(unlinkat(d, "f", 0x1));
    DO(fchdir(f));
    DO(fchdir(p));
    show_cwd();
    DO(fchdir(99));
    DO(chdir(".."));
    close(d); close(p); close(f); close(l);
}

static void working_directory(void) {
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    DO(chdir("a/b"));
    DO(rename("../../a", "../../z"));
    show_cwd();
    OK(make("x", "1"));
    DO(access("../../z/b/x", F_OK));
    DO(unlink("x"));
    DO(rmdir("../b"));
    show_cwd();
    DO(access(".", F_OK));
    OPEN(open("new", O_CREAT | O_WRONLY, 0600));
    OPEN(open("..", O_RDONLY));
    DO(chdir(".."));
    DO(chdir("../.."));
    DO(chdir("/work"));
    char small[4];
    DO(syscall(SYS_getcwd, small, sizeof small));
    DO(syscall(SYS_getcwd, small, 0));
    DO(chdir("/"));
    show_cwd();
    DO(syscall(SYS_getcwd, (void *)8, 100));
}

static void pointers(void) {
    struct stat st;
    char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(two + 4096, 4096, PROT_NONE);
    strcpy(two + 4096 - 12, "/etc/passwd");
    DO(access(two + 4096 - 12, F_OK));
    two[4095] = 'x';
    DO(access(two + 4096 - 12, F_OK));
    DO(access((char *)8, F_OK));
    DO(access((char *)-4096, F_OK));
    DO(access(0, F_OK));
    DO(syscall(SYS_stat, "/etc/passwd", (void *)16));
    DO(syscall(SYS_stat, "/etc/passwd", two + 4096 - 20));
    DO(syscall(SYS_readlink, "/work", (void *)16, 100));
    DO(syscall(SYS_readlink, "/work/link", (void *)16, 100));
    DO(syscall(SYS_readlink, "/work/link", two, 0));
    DO(syscall(SYS_openat, AT_FDCWD, 0, O_RDONLY));
    DO(rename("/none", 0));
    DO(rename(0, "/none"));
    DO(symlink(0, "/none"));
    DO(stat("/etc/passwd", &st));
    munmap(two, 8192);
}

static void lengths(void) {
    char name[5000];
    struct stat st;
    memset(name, 'n', sizeof name);
    name[255] = 0;
    OPEN(open(name, O_CREAT | O_WRONLY, 0600));
    DO(unlink(name));
    name[255] = 'n'; name[256] = 0;
    OPEN(open(name, O_CREAT | O_WRONLY, 0600));
    name[256] = 'n'; name[4999] = 0;
    DO(stat(name, &st));
    for (int i = 0; i < 4094; i += 2) { name[i] = '.'; name[i + 1] = '/'; }
    name[4094] = 'f'; name[4095] = 0;
    DO(stat(name, &st));
    name[4095] = 'f'; name[4096] = 0;
    DO(stat(name, &st));
    /* A tree deeper than any path, made step by step. */
    memset(name, 'd', 200); name[200] = 0;
    int here = open(".", O_RDONLY), depth = 0;
    for (; depth < 30; depth++) if (mkdir(name, 0755) || chdir(name)) break;
    printf("depth: %d\n", depth);
    OK(make("deep", "1"));
    DO(stat("deep", &st));
    errno = 0;
    char text[PATH_MAX];
    say("getcwd", syscall(SYS_getcwd, text, sizeof text) < 0 ? -1 : 0, errno);
    for (int i = 0; i < 3; i++) DO(chdir(".."));
    DO(stat(".", &st));
    fchdir(here);
    /* 4,000 bytes in one name: near the guest's limit, beyond it with the host's prefix. */
    char path[PATH_MAX];
    int n = 0;
    for (int i = 0; i < 19; i++) n += sprintf(path + n, "%s/", name);
    strcpy(path + n, "file");
    printf("length: %zu\n", strlen(path));
    OK(make(path, "long"));
    DO(stat(path, &st));
    printf("size: %lld\n", (long long)st.st_size);
    DO(unlink(path));
    char full[PATH_MAX + 100];
    snprintf(full, sizeof full, "/work/paths-%u/%s", (unsigned)getuid(), path);
    full[strlen(full) - 5] = 0;
    DO(chdir(full));
    show_cwd();
    OK(make("x", "1"));
    DO(unlink("x"));
    fchdir(here);
    close(here);
}

int main(void) {
    start("paths");
    mkdir("d", 0755); make("f", "text"); make("d/f", "inner"); symlink("f", "lf"); symlink("d", "ld"); symlink("none", "dangling");
    symlink("loop", "loop"); symlink("/work", "abs"); symlink("../../work", "up");
    char a[20], b[20];
    for (int i = 0; i < 39; i++) { sprintf(a, "chain%d", i); sprintf(b, "chain%d", i + 1); symlink(b, a); }
    symlink("d", "chain39");
    matrix();
    symlink("chain0", "chainx");
    DO(access("chain0", F_OK));
    DO(access("chainx", F_OK));
    dirfds();
    pointers();
    lengths();
    static const char literal[] = "d/..";
    DO(chdir(literal));
    TEXT("literal", literal);
    working_directory();
    return 0;
}
