// Cancellation of threads that are blocked in calls, and programs that posix_spawn starts, by the
// newest methods of C libraries.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int ends[2];
static int cleaned;

static void clean(void *nothing) { (void)nothing; __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST); }

static void *blocked(void *which) {
    pthread_cleanup_push(clean, 0);
    char byte;
    struct pollfd none = {.fd = ends[0], .events = POLLIN};
    switch ((long)which) {
    case 0: open("/srv/fifo", O_RDONLY); break;
    case 1: (void)!read(ends[0], &byte, 1); break;
    case 2: poll(&none, 1, -1); break;
    case 3: pause(); break;
    case 4: (void)!openat(AT_FDCWD, "../srv/./fifo", O_WRONLY); break;
    case 5: for (;;) open("/nowhere/file", O_RDONLY);
    case 6: waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED); pause(); break;
    }
    pthread_cleanup_pop(0);
    return 0;
}

static void cancels(void) {
    // One at a time: a reader and a writer of the pipe would unblock each other.
    for (long which = 0; which < 7; which++) {
        pthread_t thread;
        void *end;
        pthread_create(&thread, 0, blocked, (void *)which);
        usleep(50000);
        pthread_cancel(thread);
        pthread_join(thread, &end);
        printf("%ld %s %d\n", which, end == PTHREAD_CANCELED ? "cancelled" : "went on", cleaned);
    }
    int lowest = open("/dev/null", O_RDONLY);
    printf("descriptors left open: %d\n", lowest - ends[1] - 1);
    close(lowest);
}

static int spawn(const char *script, int group) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t mask, defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, "/etc/apt");
    posix_spawn_file_actions_addopen(&actions, 5, "sources.list.d", O_RDONLY | O_DIRECTORY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, 6);
    posix_spawnattr_init(&attributes);
    sigemptyset(&mask); sigaddset(&mask, SIGUSR2); sigaddset(&mask, SIGSYS); sigfillset(&defaults);
    posix_spawnattr_setsigmask(&attributes, &mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (group ? POSIX_SPAWN_SETPGROUP : 0));
    pid_t pid;
    char *words[] = {"sh", "-c", (char *)script, 0};
    int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, words, environ), status = 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error) return -error;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void *spawner(void *wrong) {
    for (int n = 0; n < 20; n++)
        if (spawn(n % 2 ? "[ \"$(pwd)\" = /etc/apt ] && [ -e /proc/self/fd/5 ] && exit 7" : "kill -USR1 $$", n % 3 == 0) != (n % 2 ? 7 : 1000 + SIGUSR1))
            __atomic_add_fetch((int *)wrong, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void ignored(int signal) { (void)signal; }

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    fprintf(stderr, "%s\n", gnu_get_libc_version());
    mkfifo("/srv/fifo", 0600);
    if (chdir("/srv") || pipe(ends)) return 1;
    cancels();
    signal(SIGUSR1, ignored);
    pthread_t threads[8];
    int wrong = 0;
    for (int n = 0; n < 8; n++) pthread_create(&threads[n], 0, spawner, &wrong);
    for (int n = 0; n < 8; n++) pthread_join(threads[n], 0);
    printf("spawned 160, wrong %d\n", wrong);
    pid_t pid;
    char *words[] = {"missing", 0};
    printf("%s\n", strerror(posix_spawnp(&pid, "missing", 0, 0, words, environ)));
    printf("%s\n", strerror(posix_spawn(&pid, "/etc/passwd", 0, 0, words, environ)));
    // Newer than the library with which this is compiled.
    int (*spawn_to_descriptor)(int *, const char *, void *, void *, char *const[], char *const[]) = (int (*)(int *, const char *, void *, void *, char *const[], char *const[]))dlsym(RTLD_DEFAULT, "pidfd_spawnp");
    int file = -1;
    char *again[] = {"sh", "-c", "exit 9", 0};
    siginfo_t end = {0};
    if (spawn_to_descriptor && spawn_to_descriptor(&file, "sh", 0, 0, again, environ) == 0) waitid(P_PIDFD, (id_t)file, &end, WEXITED);
    printf("by descriptor %d\n", end.si_status);
    FILE *read_from = popen("pwd; exit 4", "r");
    char line[100] = "";
    (void)!fgets(line, sizeof line, read_from);
    printf("system %d, popen %d %s", WEXITSTATUS(system("exit 6")), WEXITSTATUS(pclose(read_from)), line);
    return 0;
}
