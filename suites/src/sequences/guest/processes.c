/* Processes and threads that do a part of the sequence, and other programs. */
#include "state.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void show_end(const char *what, int status) {
    if (WIFEXITED(status)) record("%s: exit %d", what, WEXITSTATUS(status));
    else record("%s: signal %d", what, WTERMSIG(status));
}

static unsigned end_of_part(void) {
    unsigned end = now.step + 1 + 1 + pick(5);
    return end < now.steps ? end : now.steps;
}

/* A child does the next steps; changes of shared state affect the parent too. */
static void child(unsigned long shared, const char *what) {
    unsigned step = now.step, end = end_of_part();
    long pid = syscall(SYS_clone, shared | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        now.step = step + 1;
        now.steps = end;
        run_steps(end);
        _exit(step % 100);
    }
    int status = 0;
    if (pid < 0) { result(pid, "%s", what); return; }
    waitpid(pid, &status, 0);
    now.step = step;
    show_end(what, status);
    now.step = end - 1;
}

static void *part(void *end) {
    now.step++;
    run_steps((unsigned)(uintptr_t)end);
    return 0;
}

static void thread(void) {
    unsigned end = end_of_part();
    pthread_t other;
    record("thread");
    if (pthread_create(&other, 0, part, (void *)(uintptr_t)end)) { record("no thread"); return; }
    pthread_join(other, 0);
    now.step = end - 1;
}

/* Another program: its arguments, and its end. */
static void spawn(unsigned which) {
    const char *name = path();
    char *words[] = {"name", "echo", "with space", "", 0};
    int status = 0, r = 0;
    if (which == 0) {
        pid_t pid = fork();
        if (pid == 0) { execve(name, words, environ); _exit(200 + errno % 50); }
        waitpid(pid, &status, 0);
    } else if (which == 1) {
        pid_t pid;
        int error = posix_spawn(&pid, name, 0, 0, words, environ);
        if (error) { errno = error; r = -1; } else waitpid(pid, &status, 0);
    } else if (which == 2) {
        pid_t pid = vfork();
        if (pid == 0) { syscall(SYS_execve, name, words, environ); _exit(200 + errno % 50); }
        waitpid(pid, &status, 0);
    } else {
        int dir = directory(), flags = (int[]){0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, 0x400}[pick(4)];
        pid_t pid = fork();
        if (pid == 0) { syscall(SYS_execveat, dir, name, words, environ, flags); _exit(200 + errno % 50); }
        waitpid(pid, &status, 0);
        record("execveat(%d, %x)", dir, flags);
    }
    char what[1000];
    snprintf(what, sizeof what, "run(%s)", named(name));
    if (r) result(r, "%s", what); else show_end(what, status);
}

/* Executes this program again; it continues with the next step. */
static void again(void) {
    if (now.inside) { record("no program inside"); return; }
    char seed[24], step[16], steps[16], list[200] = "";
    for (int i = 0; i < now.count; i++)
        if (fcntl(now.open[i], F_GETFD) == 0) sprintf(list + strlen(list), "%d,", now.open[i]);
    sprintf(seed, "%llu", (unsigned long long)now.seed);
    sprintf(step, "%u", now.step + 1);
    sprintf(steps, "%u", now.steps);
    char *words[] = {"sequences", "resume", seed, step, steps, now.ids ? "ids" : "files", (char *)now.hidden, (char *)now.only, list, 0};
    record("again");
    execv(seldom(2) ? "/bin/sequences" : "/proc/self/exe", words);
    result(-1, "again");
}

/* Changes the root for the rest of the sequence. */
static void root(void) {
    const char *name = path();
    if (!now.inside && seldom(4)) {
        /* Descriptors opened elsewhere could not be distinguished from the sequence's own any
         * more. */
        for (int i = 0; i < now.count;) {
            int fd = now.open[i];
            if (ours_fd(fd)) i++; else { forget(fd); close(fd); }
        }
        int r = chroot(now.work);
        result(r, "chroot(own)");
        if (!r) { chdir("/"); now.inside = 1; }
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        char text[200] = "";
        int r = chroot(name);
        result(r, "chroot(%s)", named(name));
        if (r) _exit(0);
        long n = syscall(SYS_getcwd, text, sizeof text);
        /* The directory may be outside; then its name is the host's. */
        if (n > 0 && text[0] == '(') n = 0;
        result(n, "getcwd in it \"%s\"", n > 0 ? shown(text) : "");
        result(access("/f", F_OK), "access(/f)");
        result(access("/../../bin/sequences", F_OK), "access(/../../bin/sequences)");
        result(chdir("/"), "chdir(/)");
        result(chdir(".."), "chdir(..)");
        result(access("d/../../f", F_OK), "access(d/../../f)");
        _exit(0);
    }
    waitpid(pid, 0, 0);
}

void step_processes(unsigned which) {
    switch (which) {
    case 0: child(0, "fork"); break;
    case 1: child(CLONE_FS, "clone(FS)"); break;
    case 2: child(CLONE_FILES, "clone(FILES)"); break;
    case 3: child(CLONE_FS | CLONE_FILES, "clone(FS|FILES)"); break;
    case 4: case 5: thread(); break;
    case 6: case 7: case 8: spawn(pick(4)); break;
    case 9: again(); break;
    case 10: root(); break;
    }
}
