/* Cases that each run in a process of their own, and print only unexpected results. */
#include "step.h"

static int bad;

#define CHECK(c) do { if (!(c)) { \
    printf("  %s: %s (%s)\n", __func__, #c, errno ? strerrorname_np(errno) : "-"); \
    fflush(stdout); \
    bad++; } } while (0)

struct one { const char *name; void (*run)(void); };
#define T(x) {#x, x}

/* Runs them one after the other, each in its own process group, for at most 20 seconds. */
static void run_cases(const struct one *cases, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        pid_t p = fork();
        if (p == 0) {
            setpgid(0, 0);
            cases[i].run();
            _exit(bad ? 1 : 0);
        }
        int s = 0, turns = 0;
        while (waitpid(p, &s, WNOHANG) == 0 && turns++ < 4000) usleep(5000);
        if (turns > 4000) {
            kill(-p, SIGKILL);
            kill(p, SIGKILL);
            waitpid(p, &s, 0);
            printf("%s: hangs\n", cases[i].name);
            continue;
        }
        if (s == 0) printf("%s: right\n", cases[i].name);
        else show_end(cases[i].name, s);
    }
}
