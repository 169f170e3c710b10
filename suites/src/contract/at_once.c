/* Two processes of one user make the same directory and the same file at the same time, and use
   what the other one has made. Prints how often each of that succeeded. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 500
static struct { volatile int arrived, made[2], inside[2], files[2], owned[2]; } *shared;

static void meet(int round)
{
    __sync_fetch_and_add(&shared->arrived, 1);
    while (shared->arrived < 2 * (round + 1)) sched_yield();
}
static void rounds(int me)
{
    char name[64];
    struct stat facts;
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "dir%d", round);
        meet(2 * round);
        if (mkdir(name, 0700) == 0 || errno == EEXIST) shared->made[me]++;
        else fprintf(stderr, "%s: %s\n", name, strerror(errno));
        snprintf(name, sizeof name, "dir%d/%d", round, me);
        int file = open(name, O_CREAT | O_RDWR, 0600);
        if (file >= 0) shared->inside[me]++, close(file);
        else fprintf(stderr, "%s: %s\n", name, strerror(errno));
        snprintf(name, sizeof name, "file%d", round);
        meet(2 * round + 1);
        file = open(name, O_CREAT | O_RDWR, 0600);
        if (file >= 0) shared->files[me]++, close(file);
        else fprintf(stderr, "%s: %s\n", name, strerror(errno));
        if (stat(name, &facts) == 0 && facts.st_uid == getuid() && (facts.st_mode & 07777) == 0600)
            shared->owned[me]++;
        else fprintf(stderr, "%s: owner %d, mode %o\n", name, facts.st_uid, facts.st_mode);
    }
}
int main(void)
{
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char at[] = "/tmp/at-once-XXXXXX";
    if (shared == MAP_FAILED || !mkdtemp(at) || chdir(at)) return 1;
    pid_t child = fork();
    rounds(child != 0);
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    for (int i = 0; i < 2; i++)
        printf("%d %d %d %d\n", shared->made[i], shared->inside[i], shared->files[i],
               shared->owned[i]);
    return 0;
}
