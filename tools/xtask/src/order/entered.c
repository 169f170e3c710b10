/* entered FILE FUNCTIONS PROGRAM [ARGUMENT]...: executes PROGRAM, and writes the address of each
 * function to FILE when it is first entered, in hexadecimal, a line each.
 *
 * FUNCTIONS has the addresses of all functions, in the same form; PROGRAM is loaded where it says
 * itself. Each function begins with a breakpoint until it is entered. Processes that PROGRAM forks
 * are followed until they execute another program. See ptrace(2). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BREAKPOINT = 0xcc, RIP = offsetof(struct user_regs_struct, rip) };

static unsigned long low = -1UL, high;
/* For each address from LOW on and below HIGH: whether a function begins there, and is entered; and
 * the bytes of PROGRAM. */
static unsigned char *begins, *entered, *bytes;

static int read_functions(const char *name)
{
    for (int pass = 0; pass < 2; pass++) {
        FILE *file = fopen(name, "r");
        unsigned long at;
        if (!file)
            return -1;
        while (fscanf(file, "%lx", &at) == 1) {
            if (pass)
                begins[at - low] = 1;
            low = at < low ? at : low;
            high = at >= high ? at + 1 : high;
        }
        fclose(file);
        if (high <= low)
            return -1;
        if (!pass) {
            begins = calloc(high - low, 1);
            entered = calloc(high - low, 1);
            bytes = malloc(high - low);
            if (!begins || !entered || !bytes)
                return -1;
        }
    }
    return 0;
}

static int memory(pid_t process)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/mem", process);
    return open(name, O_RDWR | O_CLOEXEC);
}

/* Writes all breakpoints. */
static int place(pid_t process)
{
    size_t size = high - low;
    int file = memory(process);
    unsigned char *changed = malloc(size);
    if (file < 0 || !changed || pread(file, bytes, size, low) != (ssize_t)size)
        return -1;
    for (size_t at = 0; at < size; at++)
        changed[at] = begins[at] ? BREAKPOINT : bytes[at];
    int failed = pwrite(file, changed, size, low) != (ssize_t)size;
    free(changed);
    close(file);
    return failed ? -1 : 0;
}

/* Takes the breakpoint away that PROCESS has stopped behind; a fork has breakpoints of its own. */
static int take_away(pid_t process, FILE *list)
{
    unsigned long at = ptrace(PTRACE_PEEKUSER, process, RIP, NULL) - 1;
    if (at < low || at >= high || !begins[at - low])
        return 0;
    int file = memory(process);
    if (file < 0 || pwrite(file, bytes + (at - low), 1, at) != 1)
        return -1;
    close(file);
    if (!entered[at - low]) {
        entered[at - low] = 1;
        fprintf(list, "%lx\n", at);
    }
    return ptrace(PTRACE_POKEUSER, process, RIP, at) ? -1 : 1;
}

int main(int count, char **words)
{
    if (count < 4 || read_functions(words[2]))
        return 2;
    FILE *list = fopen(words[1], "w");
    if (!list)
        return 2;
    pid_t first = fork();
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(words[3], words + 3);
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
        if (event == PTRACE_EVENT_EXEC) {
            /* The first program is the one to watch. */
            if (executed++) {
                ptrace(PTRACE_DETACH, process, NULL, NULL);
                continue;
            }
            if (place(process))
                return 2;
        }
        if (!event && number == SIGTRAP) {
            int taken = take_away(process, list);
            if (taken < 0)
                return 2;
            number = taken ? 0 : SIGTRAP;
        }
        if (event || number == SIGSTOP)
            number = 0;
        ptrace(PTRACE_CONT, process, NULL, (long)number);
    }
    return fclose(list) == 0 ? code : 2;
}
