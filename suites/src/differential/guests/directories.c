/* Reading directories. */
#include "step.h"

static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static void list(const char *path, int show) {
    DIR *dir = opendir(path);
    if (!dir) { printf("%s: %s\n", path, strerrorname_np(errno)); return; }
    static char *names[30000];
    int n = 0, wrong = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) wrong++;
        else if (strcmp(e->d_name, "..") && (st.st_ino != e->d_ino || (e->d_type != DT_UNKNOWN && e->d_type != IFTODT(st.st_mode)))) wrong++;
        names[n++] = strdup(e->d_name);
    }
    qsort(names, n, sizeof *names, compare);
    int twice = 0;
    for (int i = 1; i < n; i++) if (!strcmp(names[i - 1], names[i])) twice++;
    printf("%s: %d entries, %d wrong, %d twice\n", path, n, show ? wrong : 0, twice);
    if (show) for (int i = 0; i < n; i++) printf("  %s\n", names[i]);
    rewinddir(dir);
    int again = 0;
    while (readdir(dir)) again++;
    printf("again: %s\n", again == n ? "same" : "different");
    for (int i = 0; i < n; i++) free(names[i]);
    closedir(dir);
    fflush(stdout);
}

int main(void) {
    start("directories");
    mkdir("d", 0755); make("d/a", ""); symlink("a", "d/b"); mkfifo("d/c", 0600); mkdir("d/e", 0700);
    list("d", 1); list("/shared", 1); list("/", 0); list("none", 0); list("d/a", 0); list("/bind", 1); list("/bind/..", 0);
    static char buffer[8192];
    int fd = open("d", O_RDONLY);
    DO(syscall(SYS_getdents64, fd, buffer, 8));
    DO(syscall(SYS_getdents64, fd, buffer, 24) > 0);
    DO(syscall(SYS_getdents64, fd, (void *)8, 4096));
    DO(syscall(SYS_getdents64, 99, buffer, 4096));
    lseek(fd, 0, SEEK_SET);
    int total = 0, n;
    while ((n = syscall(SYS_getdents64, fd, buffer, 32)) > 0) total++;
    printf("one by one: %d\n", total);
    lseek(fd, 0, SEEK_SET);
    n = syscall(SYS_getdents, fd, buffer, sizeof buffer);
    int old = 0;
    for (int at = 0; at < n; at += *(unsigned short *)(buffer + at + 16)) old++;
    printf("old: %d\n", old);
    DO(syscall(SYS_getdents, fd, buffer, 8));
    int f = open("d/a", O_RDONLY);
    DO(syscall(SYS_getdents64, f, buffer, sizeof buffer));
    close(fd); close(f);
    DIR *dir = opendir("d");
    long place = 0;
    char name[300] = "";
    for (int i = 0; i < 3; i++) { place = telldir(dir); struct dirent *e = readdir(dir); strcpy(name, e ? e->d_name : ""); }
    seekdir(dir, place);
    struct dirent *e = readdir(dir);
    IS(e && !strcmp(e->d_name, name));
    closedir(dir);
    mkdir("big", 0755);
    char path[64];
    for (int i = 0; i < 3000; i++) { sprintf(path, "big/file-with-a-name-%d", i); make(path, ""); }
    list("big", 0);
    dir = opendir("big");
    int gone = 0;
    while ((e = readdir(dir))) if (e->d_name[0] != '.' && !unlinkat(dirfd(dir), e->d_name, 0)) gone++;
    closedir(dir);
    printf("gone: %d\n", gone);
    DO(rmdir("big"));
    mkdir("empty", 0755);
    fd = open("empty", O_RDONLY);
    DO(rmdir("empty"));
    DO(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
    return 0;
}
