/* Processes that ask to be traced, with and without a parent that traces. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(int how)
{
    struct stat found;
    int status = 0;
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(1);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != -1 || errno != EPERM) _exit(2);
    for (int i = 0; i < 100; i++) status |= stat("/", &found) | chmod("/tmp", 01777);
    if (status) _exit(3);
    if (how == 1) raise(SIGSTOP);
    if (how == 2) kill(getpid(), SIGSTOP);
    if (how == 3) execl("/proc/self/exe", "traced", "again", (char *)0);
    for (int i = 0; i < 100; i++) status |= stat("/", &found);
    if (how && (ptrace(PTRACE_TRACEME, 0, 0, 0) != -1 || errno != EPERM)) _exit(4);
    _exit(20 + how + status);
}
int main(int count, char **words)
{
    (void)words;
    if (count > 1) return ptrace(PTRACE_TRACEME, 0, 0, 0) == -1 && errno == EPERM ? 30 : 31;
    for (int how = 0; how < 4; how++) {
        int status;
        fflush(stdout);
        pid_t made = fork();
        if (!made) child(how);
        while (waitpid(made, &status, 0) == made && WIFSTOPPED(status)) {
            printf("stopped by %d, ", WSTOPSIG(status));
            ptrace(PTRACE_CONT, made, 0, 0);
        }
        printf("end %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return 0;
}
