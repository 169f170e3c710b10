/* steps FILE LOW HIGH PROGRAM [ARGUMENT]...: executes PROGRAM an instruction at a time, and writes
 * each address from LOW on and below HIGH to FILE when it is first executed, in hexadecimal.
 *
 * Processes that PROGRAM forks are followed until they execute another program.
 * See ptrace(2), PTRACE_SINGLESTEP. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count < 5)
        return 2;
    unsigned long low = strtoul(words[2], NULL, 16), high = strtoul(words[3], NULL, 16);
    FILE *file = fopen(words[1], "w");
    unsigned char *seen = high > low ? calloc(high - low, 1) : NULL;
    if (!file || !seen)
        return 2;
    pid_t first = fork();
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(words[4], words + 4);
        _exit(127);
    }
    long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE
        | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    int status, code = 1, begun = 0, executed = 0;
    for (;;) {
        pid_t process = waitpid(-1, &status, __WALL);
        if (process < 0 && errno == ECHILD)
            break;
        if (process < 0)
            continue;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (process == first)
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            continue;
        }
        int event = status >> 16, number = WSTOPSIG(status);
        if (!begun) {
            ptrace(PTRACE_SETOPTIONS, process, NULL, options);
            begun = 1;
        }
        /* The first program is the one to watch. */
        if (event == PTRACE_EVENT_EXEC && executed++) {
            ptrace(PTRACE_DETACH, process, NULL, NULL);
            continue;
        }
        unsigned long at =
            ptrace(PTRACE_PEEKUSER, process, offsetof(struct user_regs_struct, rip), NULL);
        if (at >= low && at < high && !seen[at - low]) {
            seen[at - low] = 1;
            fprintf(file, "%lx\n", at);
        }
        if (event || number == SIGTRAP || number == SIGSTOP)
            number = 0;
        ptrace(PTRACE_SINGLESTEP, process, NULL, (long)number);
    }
    return fclose(file) == 0 ? code : 2;
}
