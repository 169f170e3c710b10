/* Starts a program many times, one after the other: fork, execve, wait. What a start costs inside
 * an environment is what scripts, builds and workflows pay there.
 *
 * Words: COUNT [PROGRAM [ARGUMENT...]]. PROGRAM is /bin/true unless named; it is looked up in PATH.
 * Prints the time of one start in seconds, from fork to the end of wait.
 *
 * Check: every child ends with status 0; one that cannot be started or fails ends the storm.
 */
#define _GNU_SOURCE
#include "../lab.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#define USAGE "exec-storm COUNT [PROGRAM [ARGUMENT...]]"
#define NOT_STARTED 127

/* Returns the child's status, as shells tell it. */
static int start(char *const *line) {
    int state;
    pid_t child = fork();
    if (child == 0) {
        execvp(line[0], line);
        fprintf(stderr, "error: cannot start %s: %s\n", line[0], strerror(errno));
        _exit(NOT_STARTED);
    }
    if (child < 0) {
        fprintf(stderr, "error: cannot fork: %s\n", strerror(errno));
        return NOT_STARTED;
    }
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return NOT_STARTED;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

int main(int count, char **words) {
    static char *const TRUE[] = {"/bin/true", NULL};
    lab_begin(&count, &words);
    char *end = NULL;
    long starts = count > 1 ? strtol(words[1], &end, 10) : 0;
    if (starts < 1 || *end) lab_usage("how many starts?", USAGE);
    char *const *line = count > 2 ? words + 2 : TRUE;
    int64_t began = lab_now();
    for (long one = 0; one < starts; one++) {
        int status = start(line);
        if (status == 0) continue;
        fprintf(stderr, "error: start %ld of %s ended with status %d\n", one + 1, line[0], status);
        return lab_end(1);
    }
    double took = (double)(lab_now() - began) / 1e9;
    printf("lab {\"storm_start_s\": %.9e}\n", took / (double)starts);
    return lab_end(0);
}
