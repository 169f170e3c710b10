/* The memory of processes that sleep: starts many, and sums up what the kernel says about them.
 *
 * Words: COUNT. Starts this program COUNT times by fork and execve; the children say when they are
 * ready, and sleep. Then /proc/PID/smaps_rollup of each child and of this process is read. Prints
 * per process, on average over all of these: resident set size, proportional set size (pages that n
 * processes share count 1/n) and private pages, in bytes.
 *
 * Processes outside the tree, such as a tracer that the environment has, are not in these numbers.
 *
 * Check: all children were started and are alive; the sums are above 0, and ordered as they must
 * be.
 */
#define _GNU_SOURCE
#include "../lab.h"
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define USAGE "rss COUNT, COUNT is from 1 to 10000"
#define MOST 10000
#define SLEEPER "--sleeper"

static pid_t children[MOST];

struct memory {
    long long rss, pss, own;
};

/* What a child does: says that it is ready, and sleeps until it is killed, with its parent at
 * last. */
__attribute__((noreturn)) static void sleeper(int ready) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(ready, "r", 1) != 1) exit(1);
    close(ready);
    for (;;) pause();
}

/* Starts a child and waits until it is ready. Returns -1 if that fails. */
static pid_t start(char *program) {
    int ends[2];
    char ready[16], byte;
    if (pipe(ends) < 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        snprintf(ready, sizeof ready, "%d", ends[1]);
        execvp(program, (char *[]){program, SLEEPER, ready, NULL});
        _exit(127);
    }
    close(ends[1]);
    if (child > 0 && read(ends[0], &byte, 1) != 1) {
        waitpid(child, NULL, 0);
        errno = ECHILD;
        child = -1;
    }
    close(ends[0]);
    return child;
}

/* Adds the sizes of a process. Returns 0 if they cannot be read. */
static int add(struct memory *sum, pid_t process) {
    char path[64], line[256], name[64];
    long long kib;
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)process);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63[A-Za-z_]: %lld kB", name, &kib) != 2) continue;
        if (!strcmp(name, "Rss")) sum->rss += kib << 10, found++;
        if (!strcmp(name, "Pss")) sum->pss += kib << 10, found++;
        if (!strcmp(name, "Private_Clean") || !strcmp(name, "Private_Dirty")) sum->own += kib << 10, found++;
    }
    fclose(file);
    return found == 4;
}

/* Returns how many of the children are alive, and ends them. */
static int end_all(int many) {
    int alive = 0;
    for (int one = 0; one < many; one++) {
        alive += waitpid(children[one], NULL, WNOHANG) == 0;
        kill(children[one], SIGKILL);
    }
    for (int one = 0; one < many; one++) waitpid(children[one], NULL, 0);
    return alive;
}

static int failed(const char *what, int many) {
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    end_all(many);
    return lab_end(1);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], SLEEPER)) sleeper(atoi(words[2]));
    lab_begin(&count, &words);
    int many = count == 2 ? atoi(words[1]) : 0;
    if (many < 1 || many > MOST) lab_usage("how many processes?", USAGE);
    struct memory sum = {0, 0, 0};
    for (int one = 0; one < many; one++)
        if ((children[one] = start(words[0])) < 0) return failed("cannot start a process", one);
    int is_read = add(&sum, getpid());
    for (int one = 0; one < many; one++) is_read = add(&sum, children[one]) && is_read;
    if (!is_read) return failed("cannot read /proc/PID/smaps_rollup", many);
    int alive = end_all(many), all = many + 1;
    printf("lab {\"rss_bytes\": %lld, \"pss_bytes\": %lld, \"private_bytes\": %lld}\n", sum.rss / all,
           sum.pss / all, sum.own / all);
    if (alive == many && 0 < sum.own && sum.own <= sum.pss && sum.pss <= sum.rss) return lab_end(0);
    fprintf(stderr, "error: %d of %d processes are alive, and have %lld, %lld, %lld bytes\n", alive, many,
            sum.rss, sum.pss, sum.own);
    return lab_end(1);
}
