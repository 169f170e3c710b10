/* Rarely used calls and states. */
#include "check.h"
#include <sys/mman.h>

/* A 32-bit call of 64-bit code. */
static long call32(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(first), "c"(second), "d"(third)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

enum { OPEN_32 = 5, CHDIR_32 = 12, MKDIR_32 = 39 };

/* The memory of a rewritten path must be addressable with 32 bits. */
static void narrow(void) {
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    for (int round = 0; round < 3; round++) {
        strcpy(low, "/etc/passwd");
        int file = call32(OPEN_32, (long)low, O_RDONLY, 0);
        CHECK(file >= 0);
        struct stat facts, here;
        CHECK(fstat(file, &here) == 0 && stat(low, &facts) == 0 && facts.st_ino == here.st_ino);
        close(file);
    }
    pid_t child = fork();
    if (child == 0) _exit(call32(OPEN_32, (long)low, O_RDONLY, 0) < 0);
    CHECK(exited_with(child, 0));
    strcpy(low, "/nowhere");
    CHECK(call32(OPEN_32, (long)low, O_RDONLY, 0) == -ENOENT);
    strcpy(low, "/etc");
    CHECK(call32(CHDIR_32, (long)low, 0, 0) == 0);
    CHECK(access("passwd", R_OK) == 0);
    CHECK(chdir("/") == 0);
}

static void *other_mask(void *before) {
    CHECK(unshare(CLONE_FS) == 0);
    *(mode_t *)before = umask(077);
    return NULL;
}

/* A thread that has its own umask keeps it from the others. */
static void apart(void) {
    mode_t before = 0;
    umask(022);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_mask, &before) == 0);
    pthread_join(thread, NULL);
    CHECK(before == 022);
    struct stat facts;
    char name[64];
    snprintf(name, sizeof name, "/tmp/apart-%d", getpid());
    CHECK(mkdir(name, 0777) == 0 && stat(name, &facts) == 0 && (facts.st_mode & 0777) == 0755);
    rmdir(name);
    CHECK(umask(022) == 022);
}

/* Number of processors that the thread may use. Read from a file, since the engine may lift its own
 * restriction at once for a thread that asks by sched_getaffinity. */
static int processors(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[1024];
    int count = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "Cpus_allowed:", 13) != 0) continue;
        for (char *digit = line + 13; *digit != 0; digit++) {
            char one[2] = {*digit, 0};
            count += __builtin_popcountl(strtoul(one, NULL, 16));
        }
    }
    if (file != NULL) fclose(file);
    return count;
}

/* A thread that computes after many calls may use all its processors again, and so may its
 * children. */
static void computing(void) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    int all = CPU_COUNT(&set);
    struct stat facts;
    for (int count = 0; count < 3000; count++) stat("/etc/passwd", &facts);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 2);
    CHECK(processors() == all);
    for (int count = 0; count < 3000; count++) stat("/etc/passwd", &facts);
    pid_t child = fork();
    if (child == 0) {
        sched_getaffinity(0, sizeof set, &set);
        _exit(CPU_COUNT(&set) != all);
    }
    CHECK(exited_with(child, 0));
}

enum { MANY = 60000 };

/* A script may have as many arguments as any program. */
static void many(char *self) {
    char name[64];
    snprintf(name, sizeof name, "/tmp/script-%d", getpid());
    FILE *script = fopen(name, "w");
    CHECK(script != NULL);
    if (script == NULL) return;
    fprintf(script, "#!%s count\n", self);
    fclose(script);
    CHECK(chmod(name, 0755) == 0);
    static char *words[MANY + 1];
    for (int word = 0; word < MANY; word++) words[word] = "x";
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            execv("/nowhere", words);
            execv(name, words);
            _exit(2);
        }
        CHECK(exited_with(child, 0));
    }
    unlink(name);
}

int main(int count, char **words) {
    /* Interpreter, its argument, the script, and the arguments after the script's own name. */
    if (count > 2 && strcmp(words[1], "count") == 0) return count != MANY + 2;
    many(words[0]);
    narrow();
    apart();
    if (access("/proc/self/status", R_OK) == 0) computing();
    return failures != 0;
}
