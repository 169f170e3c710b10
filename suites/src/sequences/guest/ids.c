/* Ids of the sequence. */
#include "state.h"
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

static unsigned id(void) {
    static const unsigned ALL[] = {0, 0, 0, 1234, 1234, 1235, 5, 6, 70000, -1u};
    return ALL[pick(10)];
}

static void show(void) {
    uid_t r, e, s, groups[20];
    char text[200] = "";
    getresuid(&r, &e, &s);
    int n = sprintf(text, "%d %d %d", r, e, s);
    getresgid(&r, &e, &s);
    n += sprintf(text + n, ", %d %d %d, fs %d %d, groups", r, e, s, setfsuid(-1), setfsgid(-1));
    int count = getgroups(20, groups);
    for (int i = 0; i < count; i++) n += sprintf(text + n, " %d", groups[i]);
    record("ids %s", text);
}

/* By raw calls, which affect the thread alone, or by the C library, which changes all threads. */
void step_ids(unsigned which) {
    unsigned a = id(), b = id(), c = id();
    int raw = pick(2);
    gid_t groups[] = {a, b, c};
    switch (which) {
    case 0: result(raw ? syscall(SYS_setuid, a) : setuid(a), "setuid(%d)", a); break;
    case 1: result(raw ? syscall(SYS_setgid, a) : setgid(a), "setgid(%d)", a); break;
    case 2: case 3: result(raw ? syscall(SYS_setreuid, a, b) : setreuid(a, b), "setreuid(%d, %d)", a, b); break;
    case 4: case 5: result(raw ? syscall(SYS_setresuid, a, b, c) : setresuid(a, b, c), "setresuid(%d, %d, %d)", a, b, c); break;
    case 6: result(raw ? syscall(SYS_setresgid, a, b, c) : setresgid(a, b, c), "setresgid(%d, %d, %d)", a, b, c); break;
    case 7: result(raw ? syscall(SYS_setregid, a, b) : setregid(a, b), "setregid(%d, %d)", a, b); break;
    case 8: result(setfsuid(a), "setfsuid(%d)", a); result(setfsgid(b), "setfsgid(%d)", b); break;
    case 9: result(raw ? syscall(SYS_setgroups, 3, groups) : setgroups(pick(4), groups), "setgroups(%d, %d, %d)", a, b, c); break;
    case 10: result(prctl(PR_SET_KEEPCAPS, pick(3), 0, 0, 0), "PR_SET_KEEPCAPS"); break;
    case 11: break;
    }
    show();
}
