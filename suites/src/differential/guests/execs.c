/* Running programs: scripts, descriptors, errors, and what the new program gets. Runs itself
 * with an argument to print that. */
#include "step.h"
#include <elf.h>

extern char **environ;
static char *const none[] = {0};

static void script(const char *path, const char *text) { unlink(path); make(path, text); chmod(path, 0755); }

static void run(const char *path, char *const argv[]) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *env[] = {"A=1", "B=2", 0};
        execve(path, argv, env);
        printf("execve %s: %s\n", path, strerrorname_np(errno));
        fflush(stdout);
        _exit(99);
    }
    int status;
    waitpid(pid, &status, 0);
    show_end(path, status);
}

static void told(int argc, char **argv) {
    char text[4096];
    for (int i = 0; i < argc; i++) printf("  argv[%d]=%s\n", i, argv[i]);
    for (char **e = environ; *e; e++) printf("  env %s\n", *e);
    printf("  execfn=%s\n", (char *)getauxval(AT_EXECFN));
    printf("  secure=%lu uid=%lu euid=%lu gid=%lu\n", getauxval(AT_SECURE), getauxval(AT_UID), getauxval(AT_EUID), getauxval(AT_GID));
    prctl(PR_GET_NAME, text);
    printf("  comm=%s\n", text);
    int n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    printf("  exe=%s\n", text);
    int fd = open("/proc/self/cmdline", O_RDONLY);
    n = read(fd, text, sizeof text);
    for (int i = 0; i < n - 1; i++) if (!text[i]) text[i] = '|';
    printf("  cmdline=%.*s\n", n, text);
    close(fd);
    Elf64_Phdr *ph = (void *)getauxval(AT_PHDR);
    printf("  phdr=%d phnum=%s base=%s entry=%s\n", ph != 0 && getauxval(AT_PHENT) == sizeof *ph, getauxval(AT_PHNUM) ? "yes" : "no",
           getauxval(AT_BASE) ? "yes" : "no", getauxval(AT_ENTRY) ? "yes" : "no");
    printf("  random=%d pagesz=%lu clktck=%lu\n", getauxval(AT_RANDOM) != 0, getauxval(AT_PAGESZ), getauxval(AT_CLKTCK));
    for (fd = 3; fd < 20; fd++) if (fcntl(fd, F_GETFD) >= 0) printf("  open: %d\n", fd);
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    for (int s = 1; s < 64; s++) if (sigismember(&set, s) == 1) printf("  blocked: %d\n", s);
    struct sigaction act;
    for (int s = 1; s < 32; s++) if (!sigaction(s, 0, &act) && act.sa_handler != SIG_DFL) printf("  signal %d: %s\n", s, act.sa_handler == SIG_IGN ? "ignored" : "?");
    struct rlimit r;
    getrlimit(RLIMIT_STACK, &r);
    printf("  stack=%d umask=%o\n", r.rlim_cur > 0, umask(022));
    void *heap = sbrk(0);
    printf("  heap=%s\n", sbrk(64 << 20) == heap && sbrk(0) != heap ? "grows" : "stuck");
    fflush(stdout);
}

static void *from_thread(void *path) {
    char *argv[] = {"threaded", "tell", 0};
    execve(path, argv, none);
    return 0;
}

static void handler(int s) { (void)s; }

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "tell")) { told(argc, argv); return 7; }
    if (argc > 1 && strstr(argv[1], "deep")) { told(argc, argv); return 8; }
    if (argc > 2 && (strstr(argv[2], "script") || strstr(argv[1], "script"))) { told(argc, argv); return 9; }
    start("execs");
    char *me = "/bin/execs", *tell[] = {"zero", "tell", "two words", 0}, *plain[] = {"zero", 0};
    symlink(me, "link"); symlink("link", "link2"); mkdir("d", 0755);
    run(me, tell);
    run("link2", tell);
    run("../../bin/execs", tell);
    run("./d/../link", tell);
    run("/proc/self/exe", tell);
    puts("-- scripts");
    script("script", "#!/bin/execs\n"); run("script", plain); run("./script", (char *[]){"zero", "a", "b", 0});
    script("script-arg", "#!   /bin/execs   one  two \t\nrest\n"); run("/work/../work/script", plain); run("script-arg", (char *[]){"zero", "x", 0});
    script("script-rel", "#!link tell\n"); run("script-rel", plain);
    script("script-no", "#!/none/such\n"); run("script-no", plain);
    script("script-empty", "#!\n"); run("script-empty", plain);
    script("script-dir", "#!/bin\n"); run("script-dir", plain);
    script("script-text", "#!/etc/passwd\n"); run("script-text", plain);
    script("n0", "#!/bin/execs deep\n");
    char a[300], b[300], cwd[200];
    getcwd(cwd, sizeof cwd);
    for (int i = 1; i < 7; i++) { sprintf(a, "n%d", i); sprintf(b, "#!%s/n%d\n", cwd, i - 1); script(a, b); }
    run("n3", plain); run("n4", plain); run("n5", plain);
    memset(a, ' ', 255); memcpy(a, "#!/bin/execs tell", 17); a[254] = '\n'; a[255] = 0; script("script-long", a); run("script-long", plain);
    memset(a + 2, 'x', 298); a[2] = '/'; a[299] = 0; script("script-longer", a); run("script-longer", plain);
    script("script-crlf", "#!/bin/execs tell\r\n"); run("script-crlf", plain);
    puts("-- errors");
    make("text", "just text\n"); run("text", plain); chmod("text", 0755); run("text", plain);
    make("empty", ""); chmod("empty", 0755); run("empty", plain);
    run("d", plain); run("none", plain); run("text/x", plain); run("", plain); run("link/", plain); run("/etc/passwd", plain);
    script("elf-short", "\177ELF"); run("elf-short", plain);
    script("elf-wrong", "\177ELF\2\1\1xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); run("elf-wrong", plain);
    int in = open(me, O_RDONLY), out = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    struct stat st;
    fstat(in, &st);
    sendfile(out, in, 0, st.st_size);
    close(out);
    run("./copy", tell);
    CHILD("foreign", {
        int fd = open("copy", O_RDWR);
        pwrite(fd, "\x34\x12", 2, 18);
        close(fd);
        char *v[] = {"x", 0};
        execv("copy", v);
        say("execv", -1, errno);
    });
    CHILD("mended", {
        int fd = open("copy", O_RDWR);
        pwrite(fd, "\x3e\0", 2, 18);
        close(fd);
    });
    CHILD("vectors", {
        DO(execve(me, (char **)8, environ)); DO(execve(me, tell, (char **)8)); DO(execve((char *)8, tell, environ));
        char *big = malloc(200 << 10);
        memset(big, 'x', 200 << 10);
        big[140 << 10] = 0;
        char *v[] = {"x", big, 0};
        DO(execve(me, v, environ));
        int kept = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        DO(execve("none", tell, environ));
        DO(fcntl(kept, F_GETFD));
    });
    puts("-- execveat");
    CHILD("at", { int d = open("/bin", O_PATH); DO(syscall(SYS_execveat, d, "execs", tell, none, 0)); });
    CHILD("empty", { int f = open(me, O_PATH | O_CLOEXEC); DO(syscall(SYS_execveat, f, "", tell, none, AT_EMPTY_PATH)); });
    CHILD("nofollow", { DO(syscall(SYS_execveat, AT_FDCWD, "link", tell, none, AT_SYMLINK_NOFOLLOW)); });
    CHILD("flags", { DO(syscall(SYS_execveat, AT_FDCWD, me, tell, none, 0x8000)); });
    CHILD("dir", { int d = open("d", O_RDONLY); DO(syscall(SYS_execveat, d, "", tell, none, AT_EMPTY_PATH)); });
    CHILD("bad", { DO(syscall(SYS_execveat, 99, "x", tell, none, 0)); });
    CHILD("script", { int f = open("script", O_RDONLY | O_CLOEXEC); DO(syscall(SYS_execveat, f, "", plain, none, AT_EMPTY_PATH)); });
    CHILD("memfd", {
        int m = memfd_create("program", 0);
        lseek(in, 0, SEEK_SET);
        sendfile(m, in, 0, st.st_size);
        DO(syscall(SYS_execveat, m, "", plain, none, AT_EMPTY_PATH) < 0);
    });
    puts("-- state");
    CHILD("kept", {
        sigset_t set;
        sigemptyset(&set); sigaddset(&set, SIGUSR1); sigprocmask(SIG_BLOCK, &set, 0);
        signal(SIGUSR2, SIG_IGN); signal(SIGHUP, handler);
        int f = open("/etc/passwd", O_RDONLY), c = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        (void)f; (void)c;
        umask(077);
        struct itimerval t = {{0, 0}, {100, 0}};
        setitimer(ITIMER_REAL, &t, 0);
        execve(me, tell, none);
    });
    CHILD("thread", {
        pthread_t t;
        pthread_create(&t, 0, from_thread, me);
        pause();
    });
    CHILD("vfork", {
        for (int i = 0; i < 20; i++) {
            pid_t p = vfork();
            if (p == 0) { execve("/none", tell, none); _exit(errno); }
            int s;
            waitpid(p, &s, 0);
            if (WEXITSTATUS(s) != ENOENT) printf("vfork: %d\n", s);
        }
    });
    pid_t p;
    say("posix_spawn", posix_spawn(&p, "/nope", 0, 0, tell, none), 0);
    int s, spawned = posix_spawn(&p, me, 0, 0, tell, none);
    waitpid(p, &s, 0);
    say("posix_spawn", spawned, 0);
    show_end("spawned", s);
    puts("-- permissions");
    chmod("copy", 0644); run("copy", tell);
    chmod("copy", 0111); run("copy", tell);
    chmod("copy", 0755);
    DO(open("/bin/execs", O_WRONLY) < 0);
    CHILD("busy", { int f = open("/proc/self/exe", O_WRONLY); say("write self", f < 0 ? -1 : 0, errno); });
    return 0;
}
