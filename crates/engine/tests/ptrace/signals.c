/* Interrupted calls, stops, job control, signals that kill. */
#include "check.h"

static void interrupted_calls(void) {
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    alarm_in(50000, 0);
    CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR && alarms == 1);

    /* A call with a path, which was changed before it reached the kernel. */
    CHECK(mkfifo(pipe_name(), 0600) == 0);
    alarm_in(50000, 0);
    CHECK(open(pipe_name(), O_RDONLY) == -1 && errno == EINTR && alarms == 1);
    alarm_in(50000, SA_RESTART);
    pid_t writer = fork();
    if (writer == 0) {
        usleep(200000);
        _exit(write(open(pipe_name(), O_WRONLY), "x", 1) == 1 ? 0 : 1);
    }
    int reader = open(pipe_name(), O_RDONLY);
    CHECK(reader >= 0 && alarms == 1);
    CHECK(read(reader, &byte, 1) == 1 && byte == 'x');
    CHECK(exited_with(writer, 0));
    unlink(pipe_name());

    struct timespec time = {0, 150000000}, rest;
    alarm_in(50000, SA_RESTART);
    CHECK(nanosleep(&time, &rest) == -1 && errno == EINTR);
    struct pollfd poll_for = {ends[0], POLLIN, 0};
    alarm_in(50000, SA_RESTART);
    CHECK(poll(&poll_for, 1, 200) == -1 && errno == EINTR);
}

static void stops(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        for (;;) usleep(1000);
    }
    for (int i = 0; i < 20; i++) {
        kill(child, SIGSTOP);
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) &&
              WSTOPSIG(status) == SIGSTOP);
        kill(child, SIGCONT);
        CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    }
    kill(child, SIGTSTP);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WSTOPSIG(status) == SIGTSTP);
    kill(child, SIGKILL);
    CHECK(WTERMSIG(status_of(child)) == SIGKILL);

    child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(7);
    }
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT);
    CHECK(exited_with(child, 7));
}

/* A sleep that a stop interrupts is repeated by restart_syscall, for the rest of its time. */
static void stop_in_a_sleep(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct timespec before, after, time = {0, 300000000};
        clock_gettime(CLOCK_MONOTONIC, &before);
        int result = nanosleep(&time, NULL);
        clock_gettime(CLOCK_MONOTONIC, &after);
        long slept = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
        _exit(result == 0 && slept >= 300000000 ? 0 : 1);
    }
    usleep(50000);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    usleep(50000);
    kill(child, SIGCONT);
    CHECK(exited_with(child, 0));
}

/* SIGTRAP is not reserved for the tracer. */
static void traps(void) {
    pid_t child = fork();
    if (child == 0) {
        raise(SIGTRAP);
        _exit(0);
    }
    CHECK(WTERMSIG(status_of(child)) == SIGTRAP);
    child = fork();
    if (child == 0) {
        alarms = 0;
        signal(SIGTRAP, count_alarm);
        raise(SIGTRAP);
        kill(getpid(), SIGTRAP);
        __asm__ volatile("int3");
        _exit(alarms == 3 ? 0 : 1);
    }
    CHECK(exited_with(child, 0));
    child = fork();
    if (child == 0) *(volatile int *)8 = 1;
    CHECK(WTERMSIG(status_of(child)) == SIGSEGV);
}

/* Registers that a call does not change must keep their values. */
static void registers(void) {
    int rubbish = 0;
    for (int i = 0; i < 200; i++) {
        const char *path = "/etc";
        long number = SYS_open, result = 0, flags = O_PATH, third = 0x1234;
        long callee = 0x5678, fourth = 0x9abc;
        register long r10 __asm__("r10") = fourth;
        register long r12 __asm__("r12") = callee;
        __asm__ volatile("syscall"
                         : "=a"(result), "+D"(path), "+S"(flags), "+d"(third), "+r"(r10), "+r"(r12)
                         : "a"(number)
                         : "rcx", "r11", "memory");
        if (result < 0 || strcmp(path, "/etc") != 0 || flags != O_PATH) rubbish++;
        if (third != 0x1234 || r10 != 0x9abc || r12 != 0x5678) rubbish++;
        close(result);
    }
    CHECK(rubbish == 0);
}

int main(void) {
    interrupted_calls();
    stops();
    stop_in_a_sleep();
    traps();
    registers();
    return failures != 0;
}
