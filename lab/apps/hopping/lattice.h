/* The lattice of the ranks for hopping.c: numbers, spinors, matrices, shares, and links. */
#ifndef LATTICE_H
#define LATTICE_H

#include "../lab.h"
#include <math.h>

#define PI 3.14159265358979323846
#define EACH static inline __attribute__((always_inline))

enum { X, Y, Z, T, AXES };
enum gauge { UNIT, TRANSFORMED, RANDOM };
typedef struct {
    double re, im;
} number;
typedef struct {
    number of[4][3];
} spinor;
typedef struct {
    number of[2][3];
} half;
typedef struct {
    number of[3][3];
} matrix;

static int length, sites, faces, parts[AXES] = {1, 1, 1, 1}, mine[AXES];
static matrix (*links)[AXES];
/* The site after and before in each direction; -1: another rank has it. */
static int (*after)[AXES], (*before)[AXES];
static MPI_Comm grid;
/* By axis and end (low, high): neighbours, the face's sites, half spinors that leave and come. */
static int neighbour[AXES][2], *face[AXES][2];
static half *leaves[AXES][2], *comes[AXES][2];

static void *zeros(size_t count, size_t bytes) {
    void *made = calloc(count, bytes);
    if (made) return made;
    fprintf(stderr, "error: there is no memory for a lattice of %d in each direction\n", length);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* --- Complex numbers */

EACH number plus(number one, number other) { return (number){one.re + other.re, one.im + other.im}; }

EACH number times(number one, number other) {
    return (number){one.re * other.re - one.im * other.im, one.re * other.im + one.im * other.re};
}

EACH number conjugate(number one) { return (number){one.re, -one.im}; }

/* Times i^power. */
EACH number turned(number one, int power) {
    switch (power & 3) {
    case 0: return one;
    case 1: return (number){-one.im, one.re};
    case 2: return (number){-one.re, -one.im};
    default: return (number){one.im, -one.re};
    }
}

/* --- Shares */

static void coordinates(int site, int at[AXES]) {
    for (int axis = 0; axis < AXES; axis++, site /= length) at[axis] = site % length;
}

static int site_at(const int at[AXES]) {
    return ((at[T] * length + at[Z]) * length + at[Y]) * length + at[X];
}

static int moved(int site, int axis, int by) {
    int at[AXES];
    coordinates(site, at);
    at[axis] += by;
    if (parts[axis] > 1 && (at[axis] < 0 || at[axis] >= length)) return -1;
    at[axis] = (at[axis] + length) % length;
    return site_at(at);
}

static void set_lattice(void) {
    int shares[2] = {0, 0}, periods[2] = {1, 1}, own[2];
    MPI_Dims_create(lab_ranks, 2, shares);
    MPI_Cart_create(MPI_COMM_WORLD, 2, shares, periods, 0, &grid);
    MPI_Cart_coords(grid, lab_rank, 2, own);
    parts[T] = shares[0], parts[Z] = shares[1], mine[T] = own[0], mine[Z] = own[1];
    MPI_Cart_shift(grid, 0, 1, &neighbour[T][0], &neighbour[T][1]);
    MPI_Cart_shift(grid, 1, 1, &neighbour[Z][0], &neighbour[Z][1]);
    faces = length * length * length;
    sites = faces * length;
    links = zeros((size_t)sites, sizeof *links);
    after = zeros((size_t)sites, sizeof *after);
    before = zeros((size_t)sites, sizeof *before);
    for (int axis = 0; axis < AXES; axis++) {
        int filled[2] = {0, 0}, at[AXES];
        for (int end = 0; end < 2; end++) {
            face[axis][end] = zeros((size_t)faces, sizeof(int));
            leaves[axis][end] = zeros((size_t)faces, sizeof(half));
            comes[axis][end] = zeros((size_t)faces, sizeof(half));
        }
        for (int site = 0; site < sites; site++) {
            coordinates(site, at);
            after[site][axis] = moved(site, axis, 1);
            before[site][axis] = moved(site, axis, -1);
            if (at[axis] == 0) face[axis][0][filled[0]++] = site;
            if (at[axis] == length - 1) face[axis][1][filled[1]++] = site;
        }
    }
}

/* The coordinates of a site, or of the one after it, in the lattice of all ranks. */
static void everywhere(int site, int axis, int by, int at[AXES]) {
    coordinates(site, at);
    for (int one = 0; one < AXES; one++) {
        int whole = parts[one] * length;
        at[one] = (at[one] + mine[one] * length + (one == axis) * by) % whole;
    }
}

/* --- Links */

/* Numbers from -1 to 1 by the splitmix64 generator; the same for a site whoever has it. */
static double number_of(uint64_t *state) {
    uint64_t word = *state += 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return (double)((word ^ (word >> 31)) >> 11) / (double)(1ll << 52) - 1;
}

static uint64_t seed_of(const int at[AXES], int stream) {
    uint64_t seed = (uint64_t)stream + 1;
    for (int axis = 0; axis < AXES; axis++) seed = seed * 65537 + (uint64_t)at[axis];
    return seed * 0xd1342543de82ef95u;
}

static number inner(const number one[3], const number other[3]) {
    number sum = {0, 0};
    for (int c = 0; c < 3; c++) sum = plus(sum, times(conjugate(one[c]), other[c]));
    return sum;
}

/* A random matrix in SU(3): two orthonormal rows, and the conjugate of their cross product. */
static matrix random_matrix(const int at[AXES], int stream) {
    matrix made;
    uint64_t state = seed_of(at, stream);
    for (int row = 0; row < 2; row++) {
        for (int c = 0; c < 3; c++)
            made.of[row][c].re = number_of(&state), made.of[row][c].im = number_of(&state);
        number along = row ? inner(made.of[0], made.of[1]) : (number){0, 0};
        for (int c = 0; c < 3 && row; c++)
            made.of[1][c] = plus(made.of[1][c], turned(times(along, made.of[0][c]), 2));
        double norm = sqrt(inner(made.of[row], made.of[row]).re);
        for (int c = 0; c < 3; c++) made.of[row][c].re /= norm, made.of[row][c].im /= norm;
    }
    for (int c = 0; c < 3; c++) {
        const number *one = made.of[0], *other = made.of[1];
        number first = times(one[(c + 1) % 3], other[(c + 2) % 3]),
               second = times(one[(c + 2) % 3], other[(c + 1) % 3]);
        made.of[2][c] = conjugate(plus(first, turned(second, 2)));
    }
    return made;
}

static matrix unit_matrix(void) {
    matrix made = {0};
    for (int c = 0; c < 3; c++) made.of[c][c].re = 1;
    return made;
}

/* The gauge transformation at a point. */
static matrix transformation(enum gauge gauge, const int at[AXES]) {
    return gauge == UNIT ? unit_matrix() : random_matrix(at, AXES);
}

static void set_links(enum gauge gauge) {
    int here[AXES], next[AXES];
    for (int site = 0; site < sites; site++)
        for (int axis = 0; axis < AXES; axis++) {
            everywhere(site, axis, 0, here);
            everywhere(site, axis, 1, next);
            matrix one = gauge == RANDOM ? random_matrix(here, axis) : transformation(gauge, here),
                   other = gauge == RANDOM ? unit_matrix() : transformation(gauge, next);
            for (int row = 0; row < 3; row++)
                for (int c = 0; c < 3; c++) links[site][axis].of[row][c] = inner(other.of[c], one.of[row]);
        }
}

#endif
