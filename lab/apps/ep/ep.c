/* NAS EP, "embarrassingly parallel": pairs of Gaussian deviates by the polar method, their sums and
 * how many lie in each square ring. After the specification, section 2.1 of "The NAS Parallel
 * Benchmarks", RNR-94-007, NASA Ames, 1994; classes W, B, C and all sums are those of NPB 3.
 *
 * Words: CLASS [THREADS]. CLASS is S, W, A, B or C: 2^24, 2^25, 2^28, 2^30, 2^32 pairs, shared out
 * evenly over ranks and threads.
 */
#include "../lab.h"
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define USAGE "ep CLASS [THREADS], CLASS is one of S W A B C"
#define RINGS 10
#define MODULUS (((uint64_t)1 << 46) - 1)
#define FACTOR 1220703125u /* 5^13 */
#define SEED 271828183u
/* So many pairs are made from one seed that is computed; a share is a number of these. */
#define PIECE ((int64_t)1 << 16)

static const struct {
    char name;
    int power;
    double x, y;
} CLASSES[] = {
    {'S', 24, -3.247834652034740e+3, -6.958407078382297e+3},
    {'W', 25, -2.863319731645753e+3, -6.320053679109499e+3},
    {'A', 28, -4.295875165629892e+3, -1.580732573678431e+4},
    {'B', 30, 4.033815542441498e+4, -2.660669192809235e+4},
    {'C', 32, 4.764367927995374e+4, -8.084072988043731e+4},
};

/* The product modulo 2^46. Its lower 64 bits are exact, and decide. */
static uint64_t times(uint64_t one, uint64_t other) { return (one * other) & MODULUS; }

/* The seed after so many numbers. */
static uint64_t skipped(uint64_t numbers) {
    uint64_t seed = SEED, factor = FACTOR;
    for (; numbers > 0; numbers >>= 1) {
        if (numbers & 1) seed = times(seed, factor);
        factor = times(factor, factor);
    }
    return seed;
}

/* Adds what one piece has to the sums and the rings. */
static void piece(int64_t number, double *x_sum, double *y_sum, int64_t *rings) {
    const double unit = 1.0 / (double)(MODULUS + 1);
    uint64_t seed = skipped(2 * (uint64_t)(number * PIECE));
    for (int64_t pair = 0; pair < PIECE; pair++) {
        seed = times(seed, FACTOR);
        double x = 2 * (double)seed * unit - 1;
        seed = times(seed, FACTOR);
        double y = 2 * (double)seed * unit - 1;
        double square = x * x + y * y;
        if (square > 1) continue;
        double scale = sqrt(-2 * log(square) / square);
        x *= scale;
        y *= scale;
        rings[(int)fmax(fabs(x), fabs(y))]++;
        *x_sum += x;
        *y_sum += y;
    }
}

static int is_near(double value, double published) { return fabs((value - published) / published) <= 1e-8; }

int main(int count, char **words) {
    lab_begin(&count, &words);
    int class = -1, threads = 1;
    for (int one = 0; one < (int)(sizeof CLASSES / sizeof *CLASSES); one++)
        if (count > 1 && strlen(words[1]) == 1 && words[1][0] == CLASSES[one].name) class = one;
    if (class < 0) lab_usage("no such class", USAGE);
    if (count > 2) threads = atoi(words[2]);
    if (threads < 1 || count > 3) lab_usage("the number of threads is not right", USAGE);
#ifndef _OPENMP
    if (threads > 1) lab_usage("compiled without threads (-fopenmp)", USAGE);
#endif
    int64_t pieces = ((int64_t)1 << CLASSES[class].power) / PIECE;
    int64_t from = pieces * lab_rank / lab_ranks, to = pieces * (lab_rank + 1) / lab_ranks;
    double sums[2] = {0, 0};
    int64_t rings[RINGS] = {0}, accepted = 0, told = 0;
    double x = 0, y = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : x, y, rings[:RINGS])
    for (int64_t one = from; one < to; one++) piece(one, &x, &y, rings);
    sums[0] = x;
    sums[1] = y;
    for (int ring = 0; ring < RINGS; ring++) told += rings[ring];
    accepted = told;
#ifdef LAB_MPI
    double all[2];
    lab_communicates();
    MPI_Reduce(sums, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    memcpy(sums, all, sizeof all);
    MPI_Reduce(&told, &accepted, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    lab_computes();
#endif
    int wrong = 0;
    if (lab_rank == 0) {
        wrong = !is_near(sums[0], CLASSES[class].x) || !is_near(sums[1], CLASSES[class].y);
        printf("lab {\"x_sum\": %.15e, \"y_sum\": %.15e, \"pairs\": %lld}\n", sums[0], sums[1], (long long)accepted);
        if (wrong) fprintf(stderr, "error: the sums are wrong: class %c has %.15e %.15e\n", CLASSES[class].name, CLASSES[class].x, CLASSES[class].y);
    }
    return lab_end(wrong);
}
