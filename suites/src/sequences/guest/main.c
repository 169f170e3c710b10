/* Sequences of system calls, chosen by a seed, in a directory of their own; each call's result is a
 * line of the record.
 *
 *   sequences run SEEDS STEPS MODE HIDDEN ONLY   plays seeds (,N,N,) one after the other, and records
 *                                                the trees that they leave
 *   sequences resume ...                         continues after an execve
 *   sequences echo ...                           prints what a program that a sequence starts gets
 *
 * MODE is `files`, or `ids` if owners and credentials count. Nothing may be recorded that differs
 * between two correct kernels. */
#include "state.h"
#include <dirent.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static void one_step(void) {
    unsigned kind = pick(100);
    if (now.ids && kind >= 94) step_ids(pick(IDS));
    else if (kind < 50) step_names(pick(NAMES));
    else if (kind < 74) step_descriptors(pick(DESCRIPTORS));
    else if (kind < 88) step_attributes(pick(ATTRIBUTES));
    else step_processes(pick(PROCESSES));
}

void run_steps(unsigned end) {
    while (now.step < end) {
        begin_step(now.step);
        if (wanted(now.step)) one_step();
        now.step++;
    }
}

static void place(uint64_t seed) {
    now.seed = seed;
    sprintf(now.work, "/work/s%u", (unsigned)(seed % SLOTS));
    sprintf(now.bound, "/bind/s%u", (unsigned)(seed % SLOTS));
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Records the final state of a tree. The working directory is the one above `name`. */
static void show_tree(const char *shown_as, const char *name, int depth) {
    struct stat st;
    char label[2000], text[600] = "";
    if (lstat(name, &st)) { result(-1, "left %s", shown(shown_as)); return; }
    snprintf(label, sizeof label, "left %s", shown(shown_as));
    facts(label, &st);
    if (S_ISLNK(st.st_mode)) { ssize_t n = readlink(name, text, 500); if (n > 0) { text[n] = 0; record("  -> \"%s\"", shown(text)); } }
    if (S_ISREG(st.st_mode)) {
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        long n = fd < 0 ? -1 : read(fd, text, 100);
        text[n > 0 ? n : 0] = 0;
        if (st.st_size < 100 || fd < 0) result(n, "  holds \"%s\"", shown(text));
        close(fd);
    }
    if ((S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && getxattr(name, "user.x", text, 100) >= 0) record("  has user.x");
    if (!S_ISDIR(st.st_mode) || depth > 40) return;
    int above = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    if (chdir(name)) { result(-1, "  into it"); close(above); return; }
    DIR *dir = opendir(".");
    char *mine[400];
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) && count < 400)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) mine[count++] = strdup(entry->d_name);
    if (dir) closedir(dir);
    qsort(mine, count, sizeof *mine, by_text);
    for (int i = 0; i < count; i++) {
        char longer[1500];
        snprintf(longer, sizeof longer, "%.1200s/%s", shown_as, mine[i]);
        show_tree(longer, mine[i], depth + 1);
        free(mine[i]);
    }
    fchdir(above);
    close(above);
}

static void run_seed(uint64_t seed) {
    place(seed);
    now.step = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        umask(022);
        if (chdir(now.work)) _exit(8);
        /* A third of them run as a user. */
        begin_step(1000000);
        if (now.ids && seldom(3)) { setgid(1235); setuid(1234); record("as a user"); }
        now.step = 0;
        run_steps(now.steps);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    now.step = now.steps;
    if (!WIFEXITED(status) || WEXITSTATUS(status)) record("ended by %s %d", WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    chdir("/");
    show_tree(now.work, now.work, 0);
    show_tree(now.bound, now.bound, 0);
}

static int echo(int count, char **words) {
    char text[2000] = "", cwd[1000] = "", exe[1000] = "";
    now.only = "-";
    for (int i = 0; i < count; i++) snprintf(text + strlen(text), sizeof text - strlen(text), " \"%s\"", shown(words[i]));
    long n = syscall(SYS_getcwd, cwd, sizeof cwd);
    if (n < 0) snprintf(cwd, sizeof cwd, "%s", strerrorname_np(errno));
    n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    unsigned mask = umask(0);
    int open = 0;
    for (int fd = 3; fd < 40; fd++) open += fcntl(fd, F_GETFD) >= 0;
    record("told%s in %s umask %o descriptors %d exe %s secure %lu", text, shown(cwd), mask, open, shown(exe), getauxval(AT_SECURE));
    return getauxval(AT_EUID) == geteuid() && getauxval(AT_GID) == getgid() ? 3 : 4;
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "echo")) return echo(count, words);
    if (count < 7) return 2;
    int resumed = !strcmp(words[1], "resume");
    if (resumed) now.step = atoi(words[3]);
    now.steps = atoi(words[3 + resumed]);
    now.ids = !strcmp(words[4 + resumed], "ids");
    now.hidden = words[5 + resumed];
    now.only = words[6 + resumed];
    if (!resumed) {
        for (char *at = words[2]; at[0] == ',' && at[1]; at = strchr(at + 1, ',')) run_seed(strtoull(at + 1, 0, 10));
        return 0;
    }
    place(strtoull(words[2], 0, 10));
    for (char *at = words[8]; *at; at = strchr(at, ',') + 1) now.open[now.count++] = atoi(at);
    run_steps(now.steps);
    return 0;
}
