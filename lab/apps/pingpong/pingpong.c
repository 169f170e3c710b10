/* Messages between two ranks, in three kinds:
 *
 *   cold    one put of the bytes into the other rank's window, which looks for it, and one back, by
 *           a fresh process each: connection and first touch are in it. So the overhead study
 *           measured (container-overhead-for-hpc, section 4).
 *   warm    many rounds there and back, after a tenth as many that do not count.
 *   stream  64 messages in flight, then a word back; many rounds.
 *
 * Words: KIND BYTES[,BYTES...] [ROUNDS]. What comes is compared with what was sent: after each put
 * in `cold`, after the last round else. Rank 0 prints for each size the time one way in seconds, and
 * in `stream` the bytes in a second. With more than two ranks the others wait.
 */
#include "../lab.h"

#ifndef LAB_MPI
#error "it needs MPI: mpicc -DLAB_MPI"
#endif

#define USAGE "pingpong cold|warm|stream BYTES[,BYTES...] [ROUNDS]"
#define WINDOW 64
#define MOST (64 << 20)

/* What a planted cost adds to a message: see the lab's environment planted:message. */
static int64_t planted_ns;

static void planted(void) {
    if (planted_ns == 0) return;
    int64_t until = lab_now() + planted_ns;
    while (lab_now() < until) {}
}

static void fill(unsigned char *bytes, int count, int seed) {
    for (int at = 0; at < count; at++) bytes[at] = (unsigned char)(1 + (at * 7 + seed * 31) % 255);
}

static int differs(const unsigned char *bytes, int count, int seed) {
    for (int at = 0; at < count; at++)
        if (bytes[at] != (unsigned char)(1 + (at * 7 + seed * 31) % 255)) return 1;
    return 0;
}

/* Waits until the last byte of a window is there, which is never zero. An MPI whose puts are messages
 * of its own takes them only while it is called. */
static void look(volatile unsigned char *last, MPI_Win window) {
    int is_there;
    while (*last == 0) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        MPI_Win_sync(window);
    }
}

static double cold(unsigned char *mine, unsigned char *theirs, int bytes, int *wrong) {
    MPI_Win window;
    int partner = 1 - lab_rank;
    /* Not MPI_Win_allocate: MPICH 4.0.2 puts into the wrong one of two windows in shared memory. */
    MPI_Win_create(theirs, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    fill(mine, bytes, lab_rank);
    MPI_Win_lock_all(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t began = lab_now();
    for (int turn = 0; turn < 2 && lab_rank < 2; turn++) {
        if (turn == lab_rank) {
            planted();
            MPI_Put(mine, bytes, MPI_BYTE, partner, 0, bytes, MPI_BYTE, window);
            MPI_Win_flush(partner, window);
        } else {
            look(theirs + bytes - 1, window);
        }
    }
    int64_t ended = lab_now();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    *wrong |= lab_rank < 2 && differs(theirs, bytes, partner);
    MPI_Win_free(&window);
    return (double)(ended - began) / 2e9;
}

static double warm(unsigned char *mine, unsigned char *theirs, int bytes, int rounds, int *wrong) {
    int partner = 1 - lab_rank;
    int64_t began = 0;
    fill(mine, bytes, lab_rank);
    for (int round = -rounds / 10; round < rounds; round++) {
        if (round == 0) began = lab_now();
        if (lab_rank == 0) {
            planted();
            MPI_Send(mine, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
            MPI_Recv(theirs, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(theirs, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            planted();
            MPI_Send(mine, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
        }
    }
    int64_t ended = lab_now();
    *wrong |= differs(theirs, bytes, partner);
    return (double)(ended - began) / 2e9 / rounds;
}

static double stream(unsigned char *mine, unsigned char *theirs, int bytes, int rounds, int *wrong) {
    MPI_Request all[WINDOW];
    MPI_Status states[WINDOW];
    unsigned char word = 0;
    int64_t began = 0;
    fill(mine, bytes, 0);
    for (int round = -rounds / 10; round < rounds; round++) {
        if (round == 0) began = lab_now();
        for (int one = 0; one < WINDOW; one++) {
            if (lab_rank == 0) {
                planted();
                MPI_Isend(mine, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, all + one);
            } else {
                MPI_Irecv(theirs, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, all + one);
            }
        }
        MPI_Waitall(WINDOW, all, states);
        if (lab_rank == 0) MPI_Recv(&word, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&word, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    int64_t ended = lab_now();
    *wrong |= lab_rank == 1 && differs(theirs, bytes, 0);
    return (double)bytes * WINDOW * rounds / ((double)(ended - began) / 1e9);
}

int main(int count, char **words) {
    lab_begin(&count, &words);
    const char *kind = count > 1 ? words[1] : "", *microseconds = getenv("CORACLE_LAB_PLANTED_MESSAGE_US");
    int is_cold = !strcmp(kind, "cold"), is_warm = !strcmp(kind, "warm");
    if (!is_cold && !is_warm && strcmp(kind, "stream") != 0) lab_usage("no such kind", USAGE);
    if (count < 3 || count > 4) lab_usage("which sizes?", USAGE);
    if (lab_ranks < 2) lab_usage("it needs two ranks", "mpirun -n 2 pingpong ...");
    int given = count > 3 ? atoi(words[3]) : 0, wrong = 0, all = 0;
    if (count > 3 && given < 1) lab_usage("the number of rounds is not right", USAGE);
    if (microseconds) planted_ns = (int64_t)(atof(microseconds) * 1000);
    for (char *next = words[2]; *next;) {
        char *end;
        long bytes = strtol(next, &end, 10);
        if (end == next || (*end && *end != ',') || bytes < 1 || bytes > MOST) lab_usage("a size is not right", USAGE);
        next = *end ? end + 1 : end;
        unsigned char *mine = malloc((size_t)bytes), *theirs = calloc(1, (size_t)bytes);
        if (!mine || !theirs) lab_usage("there is no memory for a message", USAGE);
        int rounds = given ? given : bytes <= 8192 ? 10000 : 1000;
        double value = 0;
        lab_communicates();
        if (is_cold) value = cold(mine, theirs, (int)bytes, &wrong);
        else if (lab_rank < 2 && is_warm) value = warm(mine, theirs, (int)bytes, rounds, &wrong);
        else if (lab_rank < 2) value = stream(mine, theirs, (int)bytes, is_warm || given ? rounds : rounds / 10, &wrong);
        if (lab_rank == 0) printf("lab {\"kind\": \"%s\", \"bytes\": %ld, \"%s\": %.9e}\n", kind, bytes, is_cold || is_warm ? "one_way_s" : "bytes_per_s", value);
        MPI_Barrier(MPI_COMM_WORLD);
        lab_computes();
        free(mine);
        free(theirs);
    }
    lab_communicates();
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    lab_computes();
    if (lab_rank == 0 && all) fprintf(stderr, "error: what came is not what was sent\n");
    return lab_end(lab_rank == 0 && all);
}
