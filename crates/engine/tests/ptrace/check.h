/* Shared code of the guests of these tests: checks that continue after a failure, and alarms. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures __attribute__((unused));

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);          \
            failures++;                                                                       \
        }                                                                                     \
    } while (0)

static volatile int alarms;

static void count_alarm(int signal) {
    (void)signal;
    alarms++;
}

/* SIGALRM after this many microseconds, with these SA_* flags. */
static inline void alarm_in(int microseconds, int flags) {
    struct sigaction action = {.sa_handler = count_alarm, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {0, microseconds}};
    alarms = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* A name of a pipe for this process and its children. */
static inline const char *pipe_name(void) {
    static char name[64];
    if (name[0] == 0) snprintf(name, sizeof name, "/tmp/guest-pipe-%d", getpid());
    return name;
}

/* Status of a child that has ended, or -1. */
static inline int status_of(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child ? status : -1;
}

static inline int exited_with(pid_t child, int code) {
    int status = status_of(child);
    return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == code;
}
