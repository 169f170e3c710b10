/* Guests with filters of their own, and guests that trace. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

static int install(unsigned number, unsigned action) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void filters(void) {
    struct stat facts;
    pid_t child = fork();
    if (child == 0) {
        CHECK(install(SYS_mkdir, SECCOMP_RET_ERRNO | 77) == 0);
        CHECK(mkdir("/tmp/no", 0700) == -1 && errno == 77);
        CHECK(stat("/etc/passwd", &facts) == 0);
        _exit(failures);
    }
    CHECK(exited_with(child, 0));
    child = fork();
    if (child == 0) {
        CHECK(install(SYS_rmdir, SECCOMP_RET_KILL_PROCESS) == 0);
        rmdir("/tmp/no");
        _exit(1);
    }
    CHECK(WTERMSIG(status_of(child)) == SIGSYS);
    child = fork();
    if (child == 0) {
        signal(SIGSYS, count_alarm);
        CHECK(install(SYS_getppid, SECCOMP_RET_TRAP) == 0);
        getppid();
        _exit(alarms == 1 && failures == 0 ? 0 : 1);
    }
    CHECK(exited_with(child, 0));
}

static void tracing(int refused) {
    pid_t child = fork();
    if (child == 0) {
        long result = ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        _exit(result == -1 && errno == EPERM ? 1 : 0);
    }
    CHECK(exited_with(child, refused));
    child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    long result = ptrace(PTRACE_SEIZE, child, NULL, NULL);
    CHECK((result == -1 && errno == EPERM) == refused);
    kill(child, SIGKILL);
    CHECK(WTERMSIG(status_of(child)) == SIGKILL);
}

int main(int count, char **words) {
    if (count < 2 || strcmp(words[1], "P2") != 0) filters();
    tracing(count == 2);
    return failures != 0;
}
