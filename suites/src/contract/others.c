/* What a user may do to a process of another user, and to one of its own: error numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char memory[8] = "memory";

static void show(const char *name, long result)
{
    printf(" %s %d", name, result < 0 ? errno : 0);
    if (result > 2 && strchr("/", name[0])) close(result);
}

static int opened(pid_t process, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d%s", process, name);
    return open(path, flags | O_CLOEXEC);
}

static long link_of(pid_t process, const char *name)
{
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/%d%s", process, name);
    return readlink(path, target, sizeof target);
}

static void ask(pid_t process)
{
    char into[8];
    struct iovec here = { into, sizeof into }, there = { memory, sizeof memory };
    struct sched_param none = { 0 };
    struct rlimit limit = { 64, 64 }, told;
    siginfo_t information = { .si_signo = 0, .si_code = SI_QUEUE };
    void *head;
    size_t length;
    cpu_set_t all;
    int handle = syscall(SYS_pidfd_open, process, 0);
    sched_getaffinity(0, sizeof all, &all);
    show("kill", kill(process, 0));
    show("queue", syscall(SYS_rt_sigqueueinfo, process, 0, &information));
    show("pidfd", syscall(SYS_pidfd_send_signal, handle, 0, NULL, 0));
    show("read", process_vm_readv(process, &here, 1, &there, 1, 0));
    show("write", process_vm_writev(process, &there, 1, &there, 1, 0));
    show("take", syscall(SYS_pidfd_getfd, handle, 0, 0));
    show("same", syscall(SYS_kcmp, getpid(), process, 1, 0, 0));
    show("robust", syscall(SYS_get_robust_list, process, &head, &length));
    puts("");
    show("nice", setpriority(PRIO_PROCESS, process, 5));
    show("policy", sched_setscheduler(process, SCHED_BATCH, &none));
    show("parameter", sched_setparam(process, &none));
    show("processors", sched_setaffinity(process, sizeof all, &all));
    show("disk", syscall(SYS_ioprio_set, 1, process, 2 << 13 | 7));
    show("limit", syscall(SYS_prlimit64, process, RLIMIT_NOFILE, &limit, NULL));
    show("limits", syscall(SYS_prlimit64, process, RLIMIT_NOFILE, NULL, &told));
    puts("");
    show("/environ", opened(process, "/environ", O_RDONLY));
    show("/mem", opened(process, "/mem", O_RDWR));
    show("/maps", opened(process, "/maps", O_RDONLY));
    show("/fd", opened(process, "/fd", O_RDONLY));
    show("/fd/0", opened(process, "/fd/0", O_RDONLY));
    show("/cwd", opened(process, "/cwd", O_RDONLY));
    show("/oom", opened(process, "/oom_score_adj", O_WRONLY));
    show("/stat", opened(process, "/stat", O_RDONLY));
    show("/status", opened(process, "/status", O_RDONLY));
    show("link", link_of(process, "/fd/0"));
    show("exe", link_of(process, "/exe"));
    puts("");
    close(handle);
}

/* Of a process that has become this user, and has not executed anything since. */
static void ask_changed(pid_t process)
{
    char into[8];
    struct iovec here = { into, sizeof into }, there = { memory, sizeof memory };
    show("kill", kill(process, 0));
    show("nice", setpriority(PRIO_PROCESS, process, 5));
    show("read", process_vm_readv(process, &here, 1, &there, 1, 0));
    show("/environ", opened(process, "/environ", O_RDONLY));
    show("/fd", opened(process, "/fd", O_RDONLY));
    show("/", opened(process, "/", O_RDONLY));
    show("exe", link_of(process, "/exe"));
    puts("");
}

static int become_user(void)
{
    return setgroups(0, NULL) || setgid(33) || setuid(33);
}

int main(int count, char **words)
{
    char number[16], other[16];
    pid_t process, child, changed;
    signal(SIGALRM, SIG_DFL);
    alarm(60);
    if (count > 1 && !strcmp(words[1], "wait")) {
        dup2(open("/dev/null", O_RDONLY), 0);
        puts("");
        fflush(stdout);
        for (;;) pause();
    }
    if (count > 2) {
        process = atoi(words[2]);
        puts("another's:");
        ask(process);
        show("attach", ptrace(PTRACE_ATTACH, process, 0, 0));
        show("seize", ptrace(PTRACE_SEIZE, process, 0, 0));
        puts("\nchanged:");
        ask_changed(atoi(words[3]));
        puts("own:");
    }
    fflush(stdout);
    int ready[2];
    if (pipe(ready)) return 1;
    if (!(process = fork())) {
        dup2(ready[1], 1);
        return execl("/proc/self/exe", "program", "wait", (char *)0);
    }
    if (read(ready[0], number, 1) != 1) return 1;
    if (count > 2) {
        ask(process);
        fflush(stdout);
        kill(process, SIGKILL);
        return 0;
    }
    if (!(changed = fork())) {
        if (become_user() || write(ready[1], "", 1) != 1) return 1;
        for (;;) pause();
    }
    if (read(ready[0], number, 1) != 1) return 1;
    if (!(child = fork())) {
        snprintf(number, sizeof number, "%d", process);
        snprintf(other, sizeof other, "%d", changed);
        if (become_user()) return 2;
        return execl("/proc/self/exe", "program", "ask", number, other, (char *)0);
    }
    waitpid(child, NULL, 0);
    ask(process);
    ask_changed(changed);
    fflush(stdout);
    kill(changed, SIGKILL);
    kill(process, SIGKILL);
    return 0;
}
