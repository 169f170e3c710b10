/* Extended attributes. */
#include "step.h"

static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static void list(const char *path) {
    char names[2048];
    ssize_t n = listxattr(path, names, sizeof names);
    if (n < 0) { say("listxattr", n, errno); return; }
    char *all[40];
    int count = 0;
    for (ssize_t at = 0; at < n && count < 40; at += strlen(names + at) + 1) if (strncmp(names + at, "security.selinux", 16)) all[count++] = names + at;
    qsort(all, count, sizeof *all, compare);
    printf("%s:", path);
    for (int i = 0; i < count; i++) printf(" %s", all[i]);
    puts("");
    fflush(stdout);
}

int main(void) {
    start("attributes");
    make("f", "1"); mkdir("d", 0755); symlink("f", "l"); symlink("none", "dangling"); mkfifo("p", 0600);
    char v[100];
    list("f");
    DO(setxattr("f", "user.one", "value", 5, 0));
    DO(setxattr("f", "user.one", "value", 5, XATTR_CREATE));
    DO(setxattr("f", "user.two", "v", 1, XATTR_REPLACE));
    DO(setxattr("f", "user.two", "", 0, 0));
    DO(setxattr("l", "user.three", "3", 1, 0));
    DO(setxattr("f", "user.one", "value", 5, 77));
    DO(setxattr("f", "none.such", "v", 1, 0));
    DO(setxattr("f", "", "v", 1, 0));
    DO(setxattr("f", "user.", "v", 1, 0));
    DO(setxattr("none", "user.x", "v", 1, 0));
    DO(setxattr("d", "user.dir", "v", 1, 0));
    DO(setxattr("p", "user.x", "v", 1, 0));
    DO(lsetxattr("l", "user.x", "v", 1, 0));
    DO(lsetxattr("f", "user.l", "v", 1, 0));
    list("f"); list("d"); list("p"); list("dangling");
    DO(getxattr("f", "user.one", v, sizeof v));
    DO(getxattr("f", "user.one", v, 2));
    DO(getxattr("f", "user.one", 0, 0));
    DO(getxattr("f", "user.none", v, sizeof v));
    DO(getxattr("none", "user.none", v, sizeof v));
    DO(lgetxattr("l", "user.one", v, sizeof v));
    DO(getxattr("l", "user.one", v, sizeof v));
    DO(getxattr("f", "user.one", (void *)8, 50));
    DO(getxattr("f", (void *)8, v, 50));
    int fd = open("f", O_RDONLY), p = open("f", O_PATH);
    DO(fgetxattr(fd, "user.one", v, sizeof v));
    DO(fsetxattr(fd, "user.fd", "x", 1, 0));
    DO(fremovexattr(fd, "user.fd"));
    DO(fremovexattr(fd, "user.fd"));
    DO(fgetxattr(p, "user.one", v, sizeof v));
    DO(fgetxattr(99, "user.one", v, sizeof v));
    DO(flistxattr(fd, 0, 0) > 0);
    DO(listxattr("f", v, 1));
    DO(removexattr("f", "user.one"));
    DO(removexattr("f", "user.one"));
    DO(lremovexattr("l", "user.three"));
    DO(removexattr("l", "user.three"));
    list("f");
    puts("-- privileged");
    unsigned char capability[20] = {1, 0, 0, 2, 0, 4};
    DO(setxattr("f", "trusted.x", "t", 1, 0));
    DO(getxattr("f", "trusted.x", v, sizeof v));
    DO(setxattr("f", "security.capability", capability, 20, 0));
    DO(getxattr("f", "security.capability", v, sizeof v));
    list("f");
    DO(removexattr("f", "trusted.x"));
    DO(removexattr("f", "security.capability"));
    list("f");
    DO(getxattr("/shared/two", "user.x", v, sizeof v));
    DO(setxattr("/etc/passwd", "user.x", "1", 1, 0));
    list("/etc/passwd");
    DO(removexattr("/etc/passwd", "user.x"));
    chmod("f", 0400);
    DO(setxattr("f", "user.ro", "1", 1, 0));
    return 0;
}
