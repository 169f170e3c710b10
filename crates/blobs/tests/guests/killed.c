/* Processes that are killed while the stage writes notes and copies for them, and threads that use up their descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int bad;
#define IS(what) \
    do { errno = 0; if (!(what)) { bad = 1; printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); } } while (0)
enum { THREADS = 8, ROUNDS = 40, WRITERS = 4, LARGE = 4 << 20 };

static void *look(void *nothing) {
    struct stat facts;
    for (int count = 0; count < 300; count++) IS(stat("/lib64/../share/../../etc/small", &facts) == 0);
    return nothing;
}

static void crowded(void) {
    struct rlimit before, now;
    pthread_t threads[THREADS];
    IS(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = before;
    now.rlim_cur = 30;
    IS(setrlimit(RLIMIT_NOFILE, &now) == 0);
    while (open("/etc/small", O_RDONLY) >= 0) {}
    for (int each = 0; each < THREADS; each++) IS(pthread_create(&threads[each], NULL, look, NULL) == 0);
    for (int each = 0; each < THREADS; each++) pthread_join(threads[each], NULL);
    IS(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 30);
    for (int file = 3; file < 30; file++) close(file);
    IS(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void notes(void) {
    struct stat facts;
    IS(mkdir("/tmp/d", 0755) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        int writers[WRITERS];
        for (int each = 0; each < WRITERS; each++) {
            if ((writers[each] = fork()) != 0) continue;
            for (int count = 0;; count++) {
                char name[64];
                sprintf(name, "/tmp/d/%d-%d-%d", round, each, count % 20);
                unlink(name);
                symlink("t", name);
                lchown(name, 7, count);
            }
        }
        usleep(1000 + 97 * round);
        for (int each = 0; each < WRITERS; each++) {
            kill(writers[each], SIGKILL);
            waitpid(writers[each], NULL, 0);
        }
    }
    IS(symlink("t", "/tmp/last") == 0 && lchown("/tmp/last", 70, 71) == 0);
    IS(lstat("/tmp/last", &facts) == 0 && facts.st_uid == 70 && facts.st_gid == 71);
}

static void copies(void) {
    struct stat before, now;
    IS(stat("/etc/large", &before) == 0 && before.st_size == LARGE);
    int copied = 0;
    for (int round = 0; round < 200 && !copied; round++) {
        int process = fork();
        if (process == 0) _exit(open("/etc/large", O_WRONLY | O_APPEND) < 0);
        usleep(round * 50);
        kill(process, SIGKILL);
        waitpid(process, NULL, 0);
        IS(stat("/etc/large", &now) == 0 && now.st_size == LARGE);
        copied = now.st_ino != before.st_ino;
    }
    IS(open("/etc/large", O_WRONLY | O_APPEND) >= 0 && stat("/etc/large", &now) == 0);
    IS(now.st_ino != before.st_ino && now.st_nlink == 1 && now.st_size == LARGE);
}

int main(void) {
    alarm(120);
    crowded();
    notes();
    copies();
    if (!bad) puts("good");
    return bad;
}
