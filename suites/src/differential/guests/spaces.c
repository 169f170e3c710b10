/* Unusual address spaces: little room, fixed mappings, changing code, libraries that are loaded
 * and unloaded, 32-bit calls. */
#include "step.h"
#include <sys/personality.h>

static struct stat st;
static int look(void) {
    int fd = open("/etc/passwd", O_RDONLY), bad = fd < 0;
    if (fd >= 0) close(fd);
    return bad + (stat("/etc/passwd", &st) != 0);
}

/* mov $21, %eax; syscall; ret: access(2). */
static const unsigned char CODE[] = {0xb8, 21, 0, 0, 0, 0x0f, 0x05, 0xc3};
typedef long (*Access)(const char *, long);

static long narrow(long number, long a, long b, long c) {
    long value;
    __asm__ volatile("int $0x80" : "=a"(value) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return (int)value;
}

int main(int n, char **v) {
    if (n > 1 && !strcmp(v[1], "child")) return look() ? 1 : 5;
    start("spaces");
    char *words[] = {"/bin/spaces", "child", 0};
    puts("-- code that is made, changed, and goes");
    int fd = open("code", O_RDWR | O_CREAT, 0755), bad = 0;
    unsigned char page[4096];
    memset(page, 0x90, sizeof page);
    memcpy(page + 64, CODE, sizeof CODE);
    write(fd, page, sizeof page);
    for (int i = 0; i < 40; i++) {
        /* From a file, so that it may be rewritten; then other code at the same address. */
        unsigned char *at = mmap((void *)0x20000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
        if (at == MAP_FAILED) { bad++; continue; }
        for (int j = 0; j < 4; j++) {
            if (((Access)(at + 64))("/etc/passwd", F_OK) != 0) bad++;
            if (((Access)(at + 64))("/none", F_OK) != -ENOENT) bad++;
        }
        if (i % 2) { mprotect(at, 4096, PROT_READ | PROT_WRITE); at[64] = 0xb8; at[65] = 39; mprotect(at, 4096, PROT_READ | PROT_EXEC); if (((Access)(at + 64))(0, 0) != getpid()) bad++; }
        munmap(at, 4096);
    }
    printf("mapped code: bad %d\n", bad);
    bad = 0;
    unsigned char *rwx = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 200; i++) {
        memcpy(rwx + (i % 100) * 16, CODE, sizeof CODE);
        rwx[(i % 100) * 16 + 1] = i % 3 ? 21 : 39;
        long r = ((Access)(rwx + (i % 100) * 16))("/none", F_OK);
        if (r != (i % 3 ? -ENOENT : getpid())) bad++;
    }
    printf("written code: bad %d\n", bad);
    IS(!memcmp(rwx, CODE, 1));
    puts("-- own text");
    extern char __executable_start, etext;
    char *from = (char *)((long)&__executable_start & ~4095l);
    unsigned long length = ((&etext - from) + 4095) & ~4095l;
    IS(mprotect(from, length, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    IS(look() == 0);
    IS(mprotect(from, length, PROT_READ | PROT_EXEC) == 0);
    IS(look() == 0);
    puts("-- fixed places");
    bad = 0;
    for (unsigned long at = 0x540000000000; at < 0x560000000000; at += 0x4000000000) {
        void *m = mmap((void *)at, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (m != (void *)at) { bad++; if (m != MAP_FAILED) munmap(m, 65536); continue; }
        munmap(m, 65536);
    }
    IS(bad <= 1);
    IS(look() == 0);
    char *moved = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    moved = mremap(moved, 8192, 1 << 20, MREMAP_MAYMOVE);
    IS(moved != MAP_FAILED);
    IS(look() == 0);
    puts("-- little room");
    CHILD("ulimit -v", { struct rlimit l = {200 << 20, 200 << 20}; setrlimit(RLIMIT_AS, &l); IS(look() == 0); if (fork() == 0) { execv("/bin/spaces", words); _exit(9); } int s; wait(&s); show_end("exec", s); });
    CHILD("ulimit -d", { struct rlimit l = {16 << 20, 16 << 20}; setrlimit(RLIMIT_DATA, &l); IS(look() == 0); if (fork() == 0) { execv("/bin/spaces", words); _exit(9); } int s; wait(&s); show_end("exec", s); });
    CHILD("ulimit -s", { struct rlimit l = {128 << 10, 128 << 10}; setrlimit(RLIMIT_STACK, &l); IS(look() == 0); if (fork() == 0) { execv("/bin/spaces", words); _exit(9); } int s; wait(&s); show_end("exec", s); });
    CHILD("ulimit -n", { struct rlimit l = {8, 8}; setrlimit(RLIMIT_NOFILE, &l); while (open("/dev/null", O_RDONLY) >= 0) {} DO(errno); DO(stat("/etc/passwd", &st)); DO(access("/none", F_OK)); DO(mkdir("in-need", 0755)); DO(rmdir("in-need"));
        DO(open("/none", O_RDONLY)); DO(open("new", O_RDWR | O_CREAT, 0600)); DO(access("new", F_OK)); DO(symlink("/etc/passwd", "l")); show_link("l"); DO(stat("l", &st)); DO(rename("l", "l2")); DO(link("code", "c2"));
        DO(chmod("c2", 0600)); DO(truncate("c2", 5)); DO(utimensat(AT_FDCWD, "c2", 0, 0)); DO(unlink("c2")); DO(unlink("l2")); DO(mkfifo("p", 0600)); DO(unlink("p")); DO(chdir("/etc")); show_cwd(); DO(access("passwd", F_OK)); DO(chdir("/work"));
        char text[64]; DO(getxattr("/etc/passwd", "user.none", text, sizeof text)); DO(readlink("/proc/self/exe", text, sizeof text)); DO(statfs("/", &(struct statfs){0}));
        execv("/bin/spaces", words); });
    CHILD("no randomisation", { DO(personality(ADDR_NO_RANDOMIZE) >= 0); execv("/bin/spaces", words); _exit(9); });
    CHILD("compatible layout", { DO(personality(ADDR_COMPAT_LAYOUT) >= 0); execv("/bin/spaces", words); _exit(9); });
    CHILD("ulimit -s unlimited", { struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY}; if (setrlimit(RLIMIT_STACK, &l)) { getrlimit(RLIMIT_STACK, &l); l.rlim_cur = l.rlim_max; setrlimit(RLIMIT_STACK, &l); } IS(look() == 0); execv("/bin/spaces", words); _exit(9); });
    CHILD("ulimit -f", { struct rlimit l = {4096, 4096}; setrlimit(RLIMIT_FSIZE, &l); signal(SIGXFSZ, SIG_IGN); for (int i = 0; i < 40; i++) if (look()) _exit(7);
        int f = open("limited", O_RDWR | O_CREAT, 0600); DO(pwrite(f, "x", 1, 4095)); DO(pwrite(f, "x", 1, 4096)); DO(rename("limited", "moved")); DO(chmod("moved", 0600)); DO(unlink("moved")); execv("/bin/spaces", words); _exit(9); });
    CHILD("locked memory", { struct rlimit l = {64 << 10, 64 << 10}; setrlimit(RLIMIT_MEMLOCK, &l); IS(look() == 0); });
    puts("-- calls of 32 bits");
    char *low = mmap((void *)0x30000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    strcpy(low, v[1]);
    int r = narrow(5, (long)low, O_RDONLY, 0);
    /* A refusal is as acceptable as a lookup in the right place. */
    printf("open of what only the host has: %s\n", r == -ENOENT || r == -ENOSYS ? "none" : "there");
    strcpy(low, "/etc/passwd");
    r = narrow(33, (long)low, 0, 0);
    printf("access: %s\n", r == 0 || r == -ENOSYS ? "fine" : strerrorname_np(-r));
    IS(narrow(20, 0, 0, 0) == getpid());
    puts("-- what lies where");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];
    int host = 0, mine = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        char *name = strchr(line, '/');
        if (name && strstr(name, "coracle")) host++;
        if (name && !strncmp(name, "/bin/spaces", 11)) mine++;
    }
    IS(host == 0);
    IS(mine > 0);
    return 0;
}
