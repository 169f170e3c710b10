// Ranks of MPI: each sends 4 MB to the next one, several times, and checks what it gets. Words:
// `fail RANK STATUS` ends that rank so afterwards (128+n: by signal n), while the others wait;
// `wait` has all ranks wait for a signal and end with 3.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (4 << 20)

static void asked(int number) {
    (void)number;
    _exit(3);
}

static void over(int number) {
    (void)number;
    _exit(0);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *mine = malloc(SIZE), *theirs = malloc(SIZE);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 2; round++) {
        memset(mine, 'a' + rank + round, SIZE);
        memset(theirs, 0, SIZE);
        MPI_Sendrecv(mine, SIZE, MPI_CHAR, next, 0, theirs, SIZE, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int byte = 0; byte < SIZE; byte++) wrong += theirs[byte] != 'a' + before + round;
    }
    int all;
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    struct stat facts;
    int inside = stat("/in-the-container", &facts) == 0;
    char line[256] = "";
    int length = 0;
    if (count > 1 && !strcmp(words[1], "read")) {
        while (rank == 0 && (length = read(0, line, sizeof line - 1)) > 0) printf("read %.*s", length, line);
    }
    if (rank == 0) printf("ring of %d ranks: %s, in the container: %d, %s\n", ranks, all ? "WRONG" : "right", inside, getenv("WORD") ? getenv("WORD") : "-");
    fflush(stdout);
    if (count > 3 && !strcmp(words[1], "fail")) {
        int status = atoi(words[3]);
        if (rank == atoi(words[2])) {
            if (status > 128) kill(getpid(), status - 128);
            _exit(status);
        }
        for (;;) pause();
    }
    if (count > 1 && !strcmp(words[1], "wait")) {
        signal(SIGTERM, asked);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) write(1, "begun\n", 6);
        for (;;) pause();
    }
    // MPICH 4.0.2 sometimes never returns from this by UCX and TCP, without containers too.
    signal(SIGALRM, over);
    alarm(10);
    MPI_Finalize();
    return 0;
}
