/* What the lab's programs share: when a rank's first instruction, MPI_Init, work and MPI_Finalize
 * were over, how long it communicated, and how a result is told.
 *
 * Every rank prints one line to standard output after MPI_Finalize:
 *
 *     lab-rank {"rank": 0, "boot": "0a1b2c3d", "first_ns": N, "init_ns": N, "work_ns": N,
 *               "end_ns": N, "communication_ns": N}
 *
 * (on one line). The times are those of CLOCK_MONOTONIC_RAW in nanoseconds, which all processes of a
 * host share and processes of different hosts do not; "boot" has the first digits of the host's boot
 * id, by which ranks of one host are known. "communication_ns" is the time between calls of
 * lab_communicates() and lab_computes(), which the program puts around its messages; it is 0 without
 * them. A result is a line `lab {"name": value, ...}` with the unit
 * in the name; rank 0 prints it. A program whose result is wrong says so and ends with status 1.
 *
 * Without -DLAB_MPI a program is one rank, without MPI.
 */
#ifndef LAB_H
#define LAB_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef LAB_MPI
#include <mpi.h>
#endif

__attribute__((unused)) static int lab_rank = 0, lab_ranks = 1;
static int64_t lab_first, lab_init, lab_work, lab_communication, lab_since;

static int64_t lab_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((constructor)) static void lab_at_first(void) { lab_first = lab_now(); }

/* Begins: MPI_Init, if there is MPI. */
static void lab_begin(int *count, char ***words) {
#ifdef LAB_MPI
    MPI_Init(count, words);
    MPI_Comm_rank(MPI_COMM_WORLD, &lab_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &lab_ranks);
#else
    (void)count;
    (void)words;
#endif
    lab_init = lab_now();
}

/* From here on the rank communicates, or waits for others. */
static inline void lab_communicates(void) {
    if (lab_since == 0) lab_since = lab_now();
}

/* From here on the rank computes. */
static inline void lab_computes(void) {
    if (lab_since != 0) lab_communication += lab_now() - lab_since;
    lab_since = 0;
}

/* The first eight digits of the boot id; nothing if there is none. */
static const char *lab_boot(void) {
    static char boot[9];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file != NULL) {
        size_t count = fread(boot, 1, sizeof boot - 1, file);
        boot[count] = 0;
        fclose(file);
    }
    return boot;
}

/* Ends with the status. Before it the work is over. */
static int lab_end(int status) {
    lab_computes();
    lab_work = lab_now();
#ifdef LAB_MPI
    MPI_Finalize();
#endif
    int64_t end = lab_now();
    printf("lab-rank {\"rank\": %d, \"boot\": \"%s\", \"first_ns\": %lld, \"init_ns\": %lld, "
           "\"work_ns\": %lld, \"end_ns\": %lld, \"communication_ns\": %lld}\n",
           lab_rank, lab_boot(), (long long)lab_first, (long long)lab_init, (long long)lab_work,
           (long long)end, (long long)lab_communication);
    return fflush(stdout) == 0 ? status : 1;
}

/* Ends all ranks for a wrong word: what is wrong, and how the program is called. */
__attribute__((noreturn)) static void lab_usage(const char *what, const char *usage) {
    if (lab_rank == 0) fprintf(stderr, "error: %s\n  hint: %s\n", what, usage);
#ifdef LAB_MPI
    MPI_Finalize();
#endif
    exit(2);
}

#endif
