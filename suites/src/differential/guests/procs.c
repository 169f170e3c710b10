/* The content of /proc about the process itself: the guest's names and nothing of the host's. */
#include "step.h"

static const char *hidden;

static void grep(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) { printf("%s: %s\n", path, strerrorname_np(errno)); return; }
    static char text[1 << 20];
    ssize_t n, all = 0;
    while (all < (ssize_t)sizeof text - 1 && (n = read(fd, text + all, sizeof text - 1 - all)) > 0) all += n;
    for (ssize_t i = 0; i < all; i++) if (!text[i]) text[i] = ' ';
    text[all] = 0;
    printf("%s: %s%s\n", path, all > 0 ? "text" : "empty", strstr(text, hidden) || strstr(text, ".local/share") ? ", names the host" : "");
    close(fd);
    fflush(stdout);
}

static void field(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    char line[500];
    while (f && fgets(line, sizeof line, f)) if (!strncmp(line, key, strlen(key))) printf("%s", line);
    if (f) fclose(f);
    fflush(stdout);
}

int main(int argc, char **argv) {
    start("procs");
    hidden = argc > 1 ? argv[1] : "/none";
    char path[100], text[PATH_MAX];
    struct stat a, b;
    show_link("/proc/self/exe"); show_link("/proc/self/cwd"); show_link("/proc/self/root"); show_link("/proc/thread-self/exe"); show_link("/proc/self/task/../exe");
    sprintf(path, "/proc/%d/exe", getpid()); readlink(path, text, 1); DO(stat(path, &a)); DO(stat("/bin/procs", &b)); IS(a.st_ino == b.st_ino);
    OPEN(open("/proc/self/exe", O_RDONLY));
    int n = readlink("/proc/self", text, sizeof text);
    text[n < 0 ? 0 : n] = 0;
    IS(atoi(text) == getpid());
    make("f", "1");
    int fd = open("f", O_RDWR), d = open("/etc", O_RDONLY), p[2];
    pipe(p);
    sprintf(path, "/proc/self/fd/%d", fd); show_link(path);
    sprintf(path, "/proc/self/fd/%d", d); show_link(path);
    strcat(path, "/passwd"); DO(access(path, F_OK)); strcpy(strrchr(path, '/'), "/../etc/passwd"); DO(access(path, F_OK));
    sprintf(path, "/proc/self/fd/%d", p[0]); DO(readlink(path, text, sizeof text) > 0); IS(!strncmp(text, "pipe:[", 6)); DO(stat(path, &a)); IS(S_ISFIFO(a.st_mode));
    sprintf(path, "/dev/fd/%d", fd); OPEN(open(path, O_RDONLY));
    sprintf(path, "/proc/self/fd/%d", fd);
    DO(rename("f", "g")); show_link(path); DO(unlink("g")); show_link(path); OPEN(open(path, O_RDONLY)); make("x (deleted)", ""); int x = open("x (deleted)", O_RDONLY);
    sprintf(path, "/proc/self/fd/%d", x); show_link(path);
    mkdir("gone", 0755); chdir("gone"); rmdir("../gone"); show_link("/proc/self/cwd"); chdir("/work");
    DO(access("/proc/self/root/etc/passwd", F_OK)); DO(access("/proc/self/cwd/../etc/passwd", F_OK)); DO(access("/proc/self/root/../../etc/passwd", F_OK));
    DO(chdir("/proc/self/root")); show_cwd(); DO(chdir("/proc/self/cwd")); show_cwd();
    DO(chdir("/proc/self")); show_link("exe"); show_link("fd/../exe"); DO(chdir("/"));
    DO(access(hidden, F_OK));
    sprintf(text, "/proc/self/root%s", hidden); DO(access(text, F_OK));
    grep("/proc/self/maps"); grep("/proc/self/smaps"); grep("/proc/self/mounts"); grep("/proc/self/mountinfo"); grep("/proc/self/mountstats"); grep("/proc/mounts"); grep("/proc/self/environ"); grep("/proc/self/cmdline"); grep("/proc/self/stat");
    grep("/proc/self/numa_maps"); grep("/proc/thread-self/maps"); grep("/proc/self/auxv"); grep("/proc/self/task/none");
    field("/proc/self/status", "Name"); field("/proc/self/status", "Umask"); field("/proc/self/status", "Uid"); field("/proc/self/status", "Gid"); field("/proc/self/status", "Groups"); field("/proc/self/status", "Threads");
    field("/proc/self/status", "TracerPid"); field("/proc/self/status", "NoNewPrivs"); field("/proc/self/status", "Seccomp:"); field("/proc/self/status", "SigBlk");
    DO(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); DO(prctl(PR_GET_SECCOMP)); DO(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); DO(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); field("/proc/self/status", "NoNewPrivs");
    prctl(PR_SET_NAME, "another"); field("/proc/self/status", "Name"); field("/proc/self/comm", ""); show_link("/proc/self/exe");
    int m = open("/proc/self/maps", O_RDONLY), exe = 0, heap = 0, lines = 0;
    FILE *f = fdopen(m, "r");
    char line[5000];
    while (fgets(line, sizeof line, f)) { lines++; exe += strstr(line, " /bin/procs\n") != 0 || strstr(line, "/bin/procs\n") != 0; heap += strstr(line, "[stack]") != 0; }
    IS(exe > 0); IS(heap == 1); IS(lines > 5);
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir)) count++;
    IS(count > 4);
    DO(prctl(PR_SET_DUMPABLE, 0)); DO(prctl(PR_GET_DUMPABLE)); DO(access("/etc/passwd", F_OK)); DO(mkdir("/work/after", 0755)); DO(rmdir("/work/after")); DO(prctl(PR_SET_DUMPABLE, 1));
    struct utsname u;
    DO(uname(&u)); TEXT("machine", u.machine); TEXT("system", u.sysname);
    OPEN(open("/proc/sys/kernel/ostype", O_RDONLY)); OPEN(open("/proc/none", O_RDONLY));
    return 0;
}
