/* Ids, owners and the permissions that follow from them. */
#include "step.h"
#include <grp.h>
#include <linux/capability.h>

static void ids(void) {
    uid_t r, e, s;
    gid_t rg, eg, sg, g[40];
    syscall(SYS_getresuid, &r, &e, &s);
    syscall(SYS_getresgid, &rg, &eg, &sg);
    int n = getgroups(40, g);
    printf("  uid %u %u %u fs %d gid %u %u %u fs %d groups", r, e, s, setfsuid(-1), rg, eg, sg, setfsgid(-1));
    for (int i = 0; i < n; i++) printf(" %u", g[i]);
    printf(" issetugid %d\n", r != e || rg != eg);
    fflush(stdout);
}

static void capabilities(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    if (syscall(SYS_capget, &h, d)) { say("capget", -1, errno); return; }
    printf("  chown %d setuid %d effective %s permitted %s\n", d[0].effective & 1, d[0].effective >> 7 & 1, d[0].effective ? "some" : "none", d[0].permitted ? "some" : "none");
    fflush(stdout);
}

/* Raw calls: the C library's, which change all threads, are another case. */
#define CALL(name, ...) DO(syscall(SYS_##name, __VA_ARGS__))

static void as_root(void) {
    puts("-- owners");
    make("f", "x"); mkdir("d", 0755); symlink("f", "l"); mkfifo("p", 0644);
    DO(chown("f", 5, 6)); STAT("f");
    DO(chown("f", -1, 7)); STAT("f");
    DO(chown("f", 8, -1)); STAT("f");
    DO(chmod("f", 06755)); STAT("f");
    DO(chown("f", 9, 9)); STAT("f");
    DO(chmod("f", 02745)); DO(chown("f", 1, 1)); STAT("f");
    DO(lchown("l", 3, 4)); LSTAT("l"); STAT("f");
    DO(chown("p", 5, 5)); STAT("p");
    DO(chown("d", 1234, 1235)); DO(chmod("d", 02770)); STAT("d");
    make("d/x", ""); STAT("d/x"); mkdir("d/sub", 0755); STAT("d/sub");
    int fd = open("f", O_RDONLY);
    DO(fchown(fd, 70000, 80000)); STAT("f");
    DO(link("f", "f2")); STAT("f2");
    DO(rename("f", "f3")); STAT("f3");
    DO(unlink("f3")); STAT("f2");
    close(fd);
    DO(unlink("f2")); make("f2", ""); STAT("f2");
    puts("-- devices");
    DO(mknod("null", S_IFCHR | 0666, makedev(1, 3))); STAT("null");
    DO(mknod("disk", S_IFBLK | 0660, makedev(8, 0))); STAT("disk");
    DO(chown("null", 1, 2)); DO(chmod("null", 0600)); STAT("null"); DO(rename("null", "moved")); STAT("moved"); DO(unlink("moved"));
    puts("-- a user's rights");
    make("mine", "secret"); chmod("mine", 0600); mkdir("closed", 0700); make("closed/x", ""); mkdir("sticky", 01777); make("sticky/root", "");
    mkdir("open", 0777); make("group", "g"); chmod("group", 0640); chown("group", 0, 77);
    CHILD("as 1234", {
        gid_t groups[] = {77};
        setgroups(1, groups); setgid(1235); setuid(1234);
        ids(); capabilities();
        OPEN(open("mine", O_RDONLY)); OPEN(open("group", O_RDONLY)); OPEN(open("group", O_WRONLY)); OPEN(open("closed", O_RDONLY));
        struct stat st;
        DO(stat("closed/x", &st)); DO(access("mine", R_OK)); DO(access("group", R_OK)); DO(chdir("closed")); DO(chmod("mine", 0777)); DO(chown("mine", 1234, -1));
        DO(unlink("sticky/root")); DO(rename("sticky/root", "sticky/r")); OK(make("sticky/own", "")); DO(unlink("sticky/own"));
        OK(make("open/new", "")); STAT("open/new"); DO(chown("open/new", 1, -1)); DO(chown("open/new", -1, 77)); DO(chown("open/new", -1, 78)); STAT("open/new");
        DO(chmod("open/new", 02755)); STAT("open/new"); DO(unlink("mine")); DO(mkdir("none", 0755)); DO(symlink("x", "none")); DO(link("mine", "open/mine"));
        DO(mknod("open/dev", S_IFCHR, makedev(1, 3))); DO(truncate("mine", 0)); DO(utimensat(AT_FDCWD, "mine", 0, 0)); DO(rename("open/new", "new"));
        DO(chroot("/")); DO(setuid(0)); DO(setgroups(0, 0)); DO(sethostname("x", 1)); DO(setpriority(PRIO_PROCESS, 0, -5));
        OPEN(open("/owned/secret", O_RDONLY)); OPEN(open("/etc/passwd", O_WRONLY)); DO(execl("/owned/program", "x", (char *)0));
    });
    CHILD("effective only", {
        seteuid(1234); ids(); capabilities(); OPEN(open("mine", O_RDONLY)); DO(access("mine", R_OK)); DO(faccessat(AT_FDCWD, "mine", R_OK, AT_EACCESS));
        seteuid(0); ids(); OPEN(open("mine", O_RDONLY));
        CALL(setfsuid, 1234); ids(); OPEN(open("mine", O_RDONLY)); OK(make("open/by-fsuid", "")); STAT("open/by-fsuid");
    });
    CHILD("real", { CALL(setreuid, 1, 2); ids(); CALL(setreuid, 2, 1); ids(); CALL(setuid, 0); });
    CHILD("saved", { CALL(setresuid, 1, 1, 0); ids(); CALL(setuid, 5); });
    CHILD("back", { CALL(setresuid, -1, 5, -1); ids(); CALL(setresuid, -1, 0, -1); ids(); CALL(setresgid, 1, 2, 3); ids(); });
    CHILD("keep", { prctl(PR_SET_KEEPCAPS, 1); CALL(setuid, 1234); capabilities(); });
    CHILD("groups", { gid_t g[] = {5, 3, 5}; CALL(setgroups, 3, g); ids(); CALL(getgroups, 1, g); CALL(getgroups, 0, 0); CALL(setgroups, 70000, g); CALL(setgroups, 1, 8); });
    puts("-- set-id programs");
    CHILD("suid", { setgid(1235); setuid(1234); execl("/suid", "suid", "who", (char *)0); });
    CHILD("suid inherits", { setgid(1235); setuid(1234); setenv("LD_PRELOAD", "x", 1); execl("/suid", "suid", "who", (char *)0); });
    puts("-- allowed to root");
    DO(chroot("/work"));
    DO(access("/identity-0", F_OK)); DO(access("/etc/passwd", F_OK)); DO(access("../../../etc/passwd", F_OK)); DO(chdir("/")); show_cwd(); DO(access("../etc/passwd", F_OK));
    DO(chroot("none"));
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "who")) { ids(); capabilities(); printf("  secure %lu euid %lu\n", getauxval(AT_SECURE), getauxval(AT_EUID)); return 0; }
    start("identity");
    ids(); capabilities();
    if (getuid() == 0) { as_root(); return 0; }
    make("f", "x");
    DO(chown("f", -1, -1)); DO(chown("f", 0, -1)); DO(chown("f", getuid(), getgid())); DO(chown("f", -1, 0)); STAT("f");
    CALL(setuid, 0); CALL(setuid, getuid()); CALL(setreuid, -1, 0); CALL(setresuid, -1, -1, -1); CALL(setgid, 0); CALL(setgroups, 0, 0); ids();
    DO(chroot("/")); DO(mknod("n", S_IFCHR, makedev(1, 3))); DO(mknod("n", S_IFIFO | 0600, 0)); DO(mount("x", "/work", "tmpfs", 0, 0)); DO(umount("/proc"));
    DO(sethostname("x", 1)); DO(setpriority(PRIO_PROCESS, 0, -5)); OPEN(open("/owned/secret", O_RDONLY)); OPEN(open("/owned", O_RDONLY)); OPEN(open("/etc/passwd", O_WRONLY));
    OK(make("/new", "")); DO(unlink("/etc/passwd")); DO(mkdir("/etc/x", 0755)); DO(rename("/etc/passwd", "/work/p")); DO(chmod("/etc/passwd", 0666));
    DO(prctl(PR_GET_DUMPABLE)); DO(prctl(PR_CAPBSET_DROP, 1)); DO(prctl(PR_SET_KEEPCAPS, 1)); DO(prctl(PR_GET_KEEPCAPS));
    CHILD("suid", { execl("/suid", "suid", "who", (char *)0); });
    return 0;
}
