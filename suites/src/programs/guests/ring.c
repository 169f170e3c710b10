// Ranks of MPI: a token goes round all of them, and two of them send messages of 0 bytes to 1 MB to
// each other. Prints whether each arrived whole and, if a number of rounds is given, how long one
// way took, in microseconds.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST (1 << 20)

static double throw_and_catch(int rank, char *mine, char *theirs, int size, int rounds) {
    double began = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        if (rank == 0) MPI_Send(mine, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(theirs, size, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(mine, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - began) / rounds / 2 * 1e6;
}

// MPICH 4.0.2 ends its connections by UCX's TCP one after the other, and each end waits for an answer
// of the other rank. A rank that has all answers waits in the launcher's barrier, and gives none: if
// one comes to MPI_Finalize a second after the other, it never ends (25 of 25 runs), and on a busy
// machine 5 of 30 runs never end by themselves. So the rank says to the launcher, as MPI_Finalize
// does (PMI-1's "finalize"), that it ends well, and ends. Where the messages go by memory there is
// no such wait.
static void end_connections(void) {
#ifdef ENDS_AT_ONCE
    const char *launcher = getenv("PMI_FD");
    char answer[64];
    fflush(stdout);
    if (launcher && dprintf(atoi(launcher), "cmd=finalize\n") > 0 && read(atoi(launcher), answer, sizeof answer) > 0) _exit(0);
    _exit(1);
#endif
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long token = 1;
    if (rank == 0) MPI_Send(&token, 1, MPI_LONG, 1 % ranks, 7, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_LONG, (rank + ranks - 1) % ranks, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0) {
        token += rank;
        MPI_Send(&token, 1, MPI_LONG, (rank + 1) % ranks, 7, MPI_COMM_WORLD);
    }
    struct stat facts;
    if (rank == 0) printf("token %ld of %d ranks, in the container: %d\n", token, ranks, stat("/in-the-container", &facts) == 0);
    const int sizes[] = {0, 8, 1024, 65536, LARGEST};
    int rounds = count > 1 ? atoi(words[1]) : 0;
    char *mine = malloc(LARGEST), *theirs = malloc(LARGEST);
    memset(mine, 'a' + rank, LARGEST);
    for (int at = 0; at < 5 && ranks == 2; at++) {
        int size = sizes[at], wrong = 0, enough = rounds ? (size > 100000 ? rounds / 20 : rounds) : 3;
        memset(theirs, '-', LARGEST);
        double best = 1e9;
        for (int again = 0; again < (rounds ? 20 : 1); again++) {
            double time = throw_and_catch(rank, mine, theirs, size, enough);
            if (time < best) best = time;
        }
        for (int byte = 0; byte < LARGEST; byte++) wrong += theirs[byte] != (byte < size ? 'b' - rank : '-');
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0 && rounds) printf("%d %.3f\n", size, best);
        else if (rank == 0) printf("%d bytes %s\n", size, wrong ? "WRONG" : "right");
    }
    end_connections();
    MPI_Finalize();
    return 0;
}
