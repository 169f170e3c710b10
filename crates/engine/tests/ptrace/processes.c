/* fork, vfork, clone, clone3, threads, execve from threads, ends at any moment. */
#include "check.h"

static const char *self;

static void *stat_often(void *unused) {
    (void)unused;
    struct stat facts;
    for (int i = 0; i < 300; i++) {
        if (stat("/etc/passwd", &facts) != 0) return (void *)1;
    }
    return NULL;
}

static void many_threads(void) {
    pthread_t threads[64];
    void *result;
    for (int i = 0; i < 64; i++) CHECK(pthread_create(&threads[i], NULL, stat_often, NULL) == 0);
    for (int i = 0; i < 64; i++) CHECK(pthread_join(threads[i], &result) == 0 && result == NULL);
}

static void many_processes(void) {
    int status, count = 0, sum = 0;
    for (int i = 0; i < 200; i++) {
        if (fork() == 0) {
            stat_often(NULL);
            usleep(50000);
            _exit(i % 100);
        }
    }
    while (wait(&status) > 0) {
        count++;
        sum += WEXITSTATUS(status);
    }
    CHECK(count == 200 && sum == 9900 && errno == ECHILD);
}

static int five(void *unused) {
    (void)unused;
    struct stat facts;
    return stat("/etc/passwd", &facts) == 0 ? 5 : 1;
}

/* A process that requests not to be traced is traced all the same, and does not notice. */
static void untraced(void) {
    char *stack = malloc(65536);
    pid_t child = clone(five, stack + 65536, CLONE_UNTRACED | SIGCHLD, NULL);
    CHECK(child > 0 && exited_with(child, 5));
    unsigned long arguments[8] = {CLONE_UNTRACED, 0, 0, 0, SIGCHLD};
    child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0) _exit(five(NULL));
    if (child < 0 && errno == ENOSYS) return;
    CHECK(child > 0 && exited_with(child, 5));
    CHECK(arguments[0] == CLONE_UNTRACED);
}

static void vforks(void) {
    for (int i = 0; i < 100; i++) {
        pid_t child = vfork();
        if (child == 0) _exit(4);
        CHECK(exited_with(child, 4));
    }
    pid_t child = vfork();
    if (child == 0) {
        execl(self, self, "exit", "6", NULL);
        _exit(9);
    }
    CHECK(exited_with(child, 6));
    child = vfork();
    if (child == 0) {
        execl("/nope", "nope", NULL);
        _exit(errno);
    }
    CHECK(exited_with(child, ENOENT));
}

static void *sleep_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static void *execute(void *unused) {
    execl(self, self, "threads", NULL);
    return unused;
}

/* A thread that is not the first executes the program; then there is one thread, with the
 * process's id. */
static void execute_from_a_thread(void) {
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (int j = 0; j < 5; j++) pthread_create(&thread, NULL, sleep_for_ever, NULL);
            pthread_create(&thread, NULL, execute, NULL);
            if (i % 2 == 1) pthread_exit(NULL);
            pause();
        }
        CHECK(exited_with(child, 1));
    }
}

static void killed_at_any_moment(void) {
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (;;) {
                struct stat facts;
                stat("/etc/passwd", &facts);
                close(open("/etc/passwd", O_RDONLY));
                pid_t grandchild = fork();
                if (grandchild == 0) _exit(0);
                waitpid(grandchild, NULL, 0);
            }
        }
        usleep(500 + i * 37);
        kill(child, SIGKILL);
        CHECK(WTERMSIG(status_of(child)) == SIGKILL);
    }
}

static void *open_pipe(void *unused) {
    (void)unused;
    return (void *)(long)open(pipe_name(), O_RDONLY);
}

static void cancelled(void) {
    CHECK(mkfifo(pipe_name(), 0600) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, open_pipe, NULL);
        usleep(5000);
        pthread_cancel(thread);
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    unlink(pipe_name());
}

static void waiting(void) {
    siginfo_t info;
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    pid_t child = fork();
    if (child == 0) _exit(3);
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 3);
    CHECK(exited_with(child, 3));
}

/* A process that hides its memory is traced like any other. */
static void not_dumpable(void) {
    struct stat facts;
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(stat("/etc/passwd", &facts) == 0);
    CHECK(prctl(PR_GET_DUMPABLE) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "exit") == 0) return atoi(words[2]);
    if (count == 2 && strcmp(words[1], "threads") == 0) {
        struct stat tasks;
        /* One entry in addition to "." and "..". */
        CHECK(getpid() == syscall(SYS_gettid));
        CHECK(stat("/proc/self/task", &tasks) == 0);
        return failures != 0 ? 99 : tasks.st_nlink - 2;
    }
    self = words[0];
    waiting();
    many_threads();
    many_processes();
    untraced();
    vforks();
    execute_from_a_thread();
    killed_at_any_moment();
    cancelled();
    not_dumpable();
    return failures != 0;
}
