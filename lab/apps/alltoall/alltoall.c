/* MPI_Alltoall: every rank sends a block of its own to every rank, itself included. The all-to-all
 * figure of the BEE paper (Fig. 10) shows the time of one such exchange by the size of a block, as
 * OSU's osu_alltoall measures it.
 *
 * Words: BYTES[,BYTES...] [ROUNDS]. For each size there are ROUNDS exchanges after a tenth as many
 * that do not count. Rank 0 prints the time of one exchange in seconds on the slowest rank.
 *
 * Check: after the last round every byte of every block is compared with what its sender filled in.
 */
#include "../lab.h"

#ifndef LAB_MPI
#error "it needs MPI: mpicc -DLAB_MPI"
#endif

#define USAGE "alltoall BYTES[,BYTES...] [ROUNDS]"
#define MOST (64 << 20)

/* The byte that one rank sends to another. */
static unsigned char byte_of(int sender, int receiver, long at) {
    return (unsigned char)(1 + (at * 7 + sender * 31 + receiver * 101) % 251);
}

static void fill(unsigned char *blocks, long bytes) {
    for (int receiver = 0; receiver < lab_ranks; receiver++)
        for (long at = 0; at < bytes; at++) blocks[receiver * bytes + at] = byte_of(lab_rank, receiver, at);
}

static int differs(const unsigned char *blocks, long bytes) {
    for (int sender = 0; sender < lab_ranks; sender++)
        for (long at = 0; at < bytes; at++)
            if (blocks[sender * bytes + at] != byte_of(sender, lab_rank, at)) return 1;
    return 0;
}

/* Returns the time of one exchange on this rank. */
static double exchange(const unsigned char *mine, unsigned char *theirs, int bytes, int rounds) {
    int64_t began = 0;
    for (int round = -rounds / 10; round < rounds; round++) {
        if (round == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            began = lab_now();
        }
        MPI_Alltoall(mine, bytes, MPI_BYTE, theirs, bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
    return (double)(lab_now() - began) / 1e9 / rounds;
}

/* Measures one size. Returns whether what came is wrong. */
static int measure(long bytes, int given) {
    size_t all = (size_t)bytes * (size_t)lab_ranks;
    unsigned char *mine = malloc(all), *theirs = calloc(all, 1);
    if (!mine || !theirs) {
        fprintf(stderr, "error: there is no memory for two times %zu bytes\n", all);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    fill(mine, bytes);
    lab_communicates();
    double took = exchange(mine, theirs, (int)bytes, given ? given : bytes <= 8192 ? 1000 : 100), slowest;
    lab_computes();
    int wrong = differs(theirs, bytes);
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (lab_rank == 0) printf("lab {\"bytes\": %ld, \"exchange_s\": %.9e}\n", bytes, slowest);
    free(mine);
    free(theirs);
    return wrong;
}

/* Reads the next size of the list, 0 at its end. */
static long next_size(const char **list) {
    if (!**list) return 0;
    char *end;
    long bytes = strtol(*list, &end, 10);
    if (end == *list || (*end && *end != ',') || bytes < 1 || bytes > MOST)
        lab_usage("a size is not from 1 to 67108864", USAGE);
    *list = *end ? end + 1 : end;
    return bytes;
}

int main(int count, char **words) {
    lab_begin(&count, &words);
    if (count < 2 || count > 3 || !*words[1]) lab_usage("which sizes?", USAGE);
    if (lab_ranks < 2) lab_usage("it needs two ranks", "mpirun -n 2 alltoall ...");
    int given = count > 2 ? atoi(words[2]) : 0, wrong = 0, all = 0;
    if (count > 2 && given < 1) lab_usage("the number of rounds is not right", USAGE);
    const char *list = words[1];
    for (long bytes = next_size(&list); bytes > 0; bytes = next_size(&list)) wrong |= measure(bytes, given);
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (lab_rank == 0 && all) fprintf(stderr, "error: what came is not what was sent\n");
    return lab_end(lab_rank == 0 && all);
}
