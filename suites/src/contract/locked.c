/* mlockall(2) with a limit that suffices for the program's own memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static long locked(void)
{
    char line[256];
    long found = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %ld", &found) == 1) break;
    fclose(status);
    return found;
}
static void attempt(const char *name, int flags)
{
    int error = mlockall(flags) ? errno : 0;
    printf("%s: %d, %s\n", name, error, locked() > 0 ? "locked" : "not locked");
}
int main(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    limit.rlim_cur = limit.rlim_max < 6 << 20 ? limit.rlim_max : 6 << 20;
    setrlimit(RLIMIT_MEMLOCK, &limit);
    attempt("current", MCL_CURRENT);
    munlockall();
    attempt("none", 0);
    attempt("both", MCL_CURRENT | MCL_FUTURE);
    munlockall();
    if (mmap(0, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
    attempt("too much", MCL_CURRENT);
    return 0;
}
