/* Executes itself with every kind of vector, file and table of descriptors; says what arrived. Its argv[0] is "main" at first. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *none[] = {0}, *shown[] = {"x", "show", 0};

static long length(const char *name) {
    char buffer[4096];
    long sum = 0, got;
    int file = open(name, O_RDONLY);
    while ((got = read(file, buffer, sizeof buffer)) > 0) sum += got;
    close(file);
    return sum;
}

static int show(int argc, char **argv) {
    int variables = 0, last = -1;
    long bytes = 0, words = 0;
    for (char **variable = environ; *variable; variable++) { variables++; bytes += strlen(*variable) + 1; }
    for (int i = 0; i < argc; i++) words += strlen(argv[i]) + 1;
    for (int i = 3; i < 64; i++) if (fcntl(i, F_GETFD) >= 0) last = i;
    printf("argc %d (%ld bytes), %d variables (%ld bytes), cmdline %ld, environ %ld, last descriptor %d\n", argc, words, variables, bytes,
        length("/proc/self/cmdline"), length("/proc/self/environ"), last);
    return 0;
}

#define RUN(...) do { \
    fflush(stdout); \
    pid_t child = fork(); \
    if (!child) { __VA_ARGS__; printf("%s: %s\n", #__VA_ARGS__, strerror(errno)); fflush(stdout); _exit(1); } \
    int status; waitpid(child, &status, 0); \
    if (status) printf("status %x\n", status); \
} while (0)

static char **many(int count, char *text) {
    char **vector = malloc((count + 1) * sizeof *vector);
    for (int i = 0; i < count; i++) vector[i] = text;
    vector[count] = 0;
    return vector;
}

int main(int argc, char **argv) {
    if (argc == 0 || strcmp(argv[0], "main")) return show(argc, argv);
    char me[4096];
    me[readlink("/proc/self/exe", me, sizeof me - 1)] = 0;
    RUN(execve(me, shown, none));
    RUN(execve(me, shown, NULL));
    RUN(execve(me, none, none));
    RUN(execve(me, NULL, NULL));
    char *text = malloc(101), *longest = malloc(131073);
    memset(text, 'e', 100); text[100] = 0;
    RUN(execve(me, shown, many(15000, "A=1")));
    RUN(execve(me, shown, many(100000, "A=1")));
    RUN(execve(me, shown, many(9000, text)));
    RUN(execve(me, many(9000, text), none));
    RUN(execve(me, shown, many(1000000, "A=1")));
    memset(longest, 'b', 131072); longest[131071] = 0;
    char *one[] = {"x", longest, 0};
    RUN(execve(me, one, one));
    longest[131071] = 'b'; longest[131072] = 0;
    RUN(execve(me, one, none));
    RUN(execve(me, shown, one));
    char *bad[] = {"x", (char *)8, 0};
    RUN(execve(me, (char **)8, none));
    RUN(execve(me, shown, (char **)8));
    RUN(execve(me, bad, none));
    RUN(execve(me, shown, bad));
    RUN(execve("/proc", shown, none));
    RUN(execve("/none", shown, none));
    RUN(execve("/etc/passwd", shown, none));
    int file = open(me, O_RDONLY | O_CLOEXEC);
    RUN(fexecve(file, shown, none));
    int memory = memfd_create("m", MFD_CLOEXEC);
    char buffer[4096];
    for (long got; (got = read(file, buffer, sizeof buffer)) > 0;) if (write(memory, buffer, got) != got) return 1;
    RUN(fexecve(memory, shown, none));
    close(memory); close(file);
    file = open(me, O_PATH);
    RUN(syscall(SYS_execveat, file, "", shown, none, AT_EMPTY_PATH));
    close(file);
    RUN(for (int i = 3; i < 40; i++) dup2(1, i); execve(me, shown, none));
    RUN(struct rlimit limit; getrlimit(RLIMIT_NOFILE, &limit); limit.rlim_cur = 64; setrlimit(RLIMIT_NOFILE, &limit); while (dup(1) >= 0) {}
        execve(me, shown, none));
    return 0;
}
