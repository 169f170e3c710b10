/* What a program may do with the signals that catch calls, as with any other: prints the same in
   every mode. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int calls, deepest, depth, is_own;
static sigjmp_buf out;

static void nests(int signal)
{
    calls++;
    if (++depth > deepest) deepest = depth;
    if (calls < 6) raise(signal);
    depth--;
}
static void counts(int signal, siginfo_t *information, void *context)
{
    (void)signal, (void)context;
    calls++;
    is_own = information->si_pid == getpid() && information->si_code == SI_TKILL && !information->si_errno;
}
static void leaves(int signal)
{
    (void)signal;
    calls++;
    siglongjmp(out, 1);
}
static void handle(int signal, void *handler, int flags)
{
    struct sigaction action = { .sa_flags = flags };
    action.sa_handler = handler;
    sigaction(signal, &action, 0);
    calls = depth = deepest = 0;
}
static int is_blocked(int signal)
{
    sigset_t now;
    sigprocmask(SIG_SETMASK, 0, &now);
    return sigismember(&now, signal);
}
static void child(int signal, int how)
{
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, 0);
    if (how == 0) {
        raise(signal);
        sigprocmask(SIG_UNBLOCK, &set, 0);
    } else if (how == 1) {
        raise(signal);
        _exit(7);
    } else if (how == 2) {
        handle(signal, leaves, 0);
        __builtin_trap();
    } else if (how == 3) {
        handle(signal, counts, SA_SIGINFO);
        raise(signal);
        sigsuspend(&none);
        _exit(20 + calls);
    } else {
        raise(signal);
        execl("/proc/self/exe", "signals", "unblock", signal == SIGSYS ? "S" : "I", (char *)0);
    }
    _exit(9);
}
static int end_of(int signal, int how)
{
    int status;
    fflush(stdout);
    pid_t made = fork();
    if (!made) child(signal, how);
    waitpid(made, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
static void test(const char *name, int signal)
{
    sigset_t set, old;
    struct stat found;
    struct sigaction action = { .sa_handler = nests }, shown;
    sigemptyset(&set);
    sigaddset(&set, signal);
    handle(signal, nests, 0);
    raise(signal);
    printf("%s: %d deep of %d", name, deepest, calls);
    handle(signal, nests, SA_NODEFER);
    raise(signal);
    printf(", SA_NODEFER %d of %d\n", deepest, calls);
    handle(signal, counts, SA_SIGINFO);
    sigprocmask(SIG_BLOCK, &set, &old);
    printf("mask %d %d", sigismember(&old, signal), is_blocked(signal));
    raise(signal);
    raise(signal);
    stat("/", &found);
    printf(", held %d", calls);
    sigprocmask(SIG_UNBLOCK, &set, &old);
    printf(", let through %d %d, mask %d %d", calls, is_own, sigismember(&old, signal), is_blocked(signal));
    raise(signal);
    printf(", then %d\n", calls);
    handle(signal, leaves, 0);
    for (int i = 0; i < 3; i++)
        if (!sigsetjmp(out, 1)) raise(signal);
    sigaddset(&action.sa_mask, signal);
    sigaction(SIGUSR2, &action, 0);
    sigaction(SIGUSR2, 0, &shown);
    printf("jumps %d, action %d %d, ends", calls, sigismember(&shown.sa_mask, signal), sigismember(&shown.sa_mask, SIGSTKFLT));
    handle(signal, SIG_DFL, 0);
    for (int how = 0; how < 5; how++) printf(" %d", end_of(signal, how));
    printf("\n");
}
/* No signal of the program's needs the alternate stack while it is closed. */
static void test_closed_stack(void)
{
    size_t size = 65536;
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = { .ss_sp = memory, .ss_size = size };
    struct stat found;
    int failed = sigaltstack(&stack, 0);
    handle(SIGUSR1, counts, SA_SIGINFO | SA_ONSTACK);
    raise(SIGUSR1);
    for (int i = 0; i < 100; i++) {
        failed += mprotect(memory, size, i % 2 ? PROT_READ : PROT_NONE) != 0;
        failed += stat("/", &found) + chmod("/tmp", 01777) + (stat((char *)1, &found) != -1);
        failed += mprotect(memory, size, PROT_READ | PROT_WRITE) != 0;
        raise(SIGUSR1);
    }
    printf("closed stack: %d failed, %d signals\n", failed, calls);
}
int main(int count, char **words)
{
    if (count > 2) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, *words[2] == 'S' ? SIGSYS : SIGILL);
        sigprocmask(SIG_UNBLOCK, &set, 0);
        _exit(30);
    }
    test("SIGSYS", SIGSYS);
    test("SIGILL", SIGILL);
    test_closed_stack();
    return 0;
}
