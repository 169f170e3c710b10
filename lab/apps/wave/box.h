/* The box of wave.c: its fields, its rock, its absorbing layers, and the shares of the ranks. */
#ifndef BOX_H
#define BOX_H

#include "../lab.h"
#include <math.h>
#include <stddef.h>

#define PI 3.14159265358979323846
#define HALO 2
#define MOST_POINTS 4096
#define SPACING_M 100.0
/* At most so many points of a face are absorbing; and at most a sixth of the box. */
#define LAYER_POINTS 10
#define PEAK_HZ 2.0

enum { X, Y, Z, AXES };
enum { VX, VY, VZ, XX, YY, ZZ, XY, XZ, YZ, FIELDS };
enum { WEST, EAST, SOUTH, NORTH, SIDES };
static const int STRESS[AXES][AXES] = {{XX, XY, XZ}, {XY, YY, YZ}, {XZ, YZ, ZZ}};
/* Along which axes a field's points lie half a step further on. */
static const int HALF[FIELDS][AXES] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 0, 0}, {0, 0, 0},
                                       {0, 0, 0}, {1, 1, 0}, {1, 0, 1}, {0, 1, 1}};

static int points, layers, is_periodic, from[2], size[AXES];
static ptrdiff_t stride[AXES], cells;
static double step_s, *field[FIELDS];
/* Per plane in z: 1 / density there and half a step on, the first Lamé constant, the second there
 * and half a step on. */
static double light[2][MOST_POINTS], lambda[MOST_POINTS], rigid[2][MOST_POINTS];
/* The absorbing layers: factors of a derivative's memory at points and half a step on, by depth
 * along an axis; the memories of the derivatives in x, y, z of 3 velocities and 3 rows of stresses;
 * and which local planes in x and y have a place in them (-1: none). */
static double keeps[2][MOST_POINTS], takes[2][MOST_POINTS], *memory[2][AXES][AXES];
static int place[2][MOST_POINTS];
static MPI_Comm grid;
static int neighbour[SIDES];
static double *leaves[SIDES], *comes[SIDES];
static long long messages, sent_bytes;

static void *zeros(size_t count, size_t bytes) {
    void *made = calloc(count ? count : 1, bytes);
    if (made) return made;
    fprintf(stderr, "error: there is no memory for %zu numbers\n  hint: take fewer points or more ranks\n",
            count);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static double *at(int which, int i, int j) {
    return field[which] + (i + HALO) * stride[X] + (j + HALO) * stride[Y] + HALO;
}

static void set_medium(double courant) {
    double fastest = 0;
    for (int k = 0; k < points; k++) {
        double density[2], shear[2];
        for (int next = 0; next < 2; next++) {
            int is_soft = !is_periodic && k + next < points / 3;
            double p = is_soft ? 3000 : 5000, s = p / sqrt(3.0);
            density[next] = is_soft ? 2200 : 2700;
            shear[next] = density[next] * s * s;
            if (next == 0) lambda[k] = density[0] * p * p - 2 * shear[0];
            fastest = fmax(fastest, p);
        }
        light[0][k] = 1 / density[0];
        light[1][k] = 2 / (density[0] + density[1]);
        rigid[0][k] = shear[0];
        rigid[1][k] = 2 / (1 / shear[0] + 1 / shear[1]);
    }
    step_s = courant * SPACING_M / (fastest * sqrt(3.0) * (9.0 / 8 + 1.0 / 24));
    for (int half = 0; half < 2; half++)
        for (int one = 0; one < points && layers; one++) {
            double low = layers - (one + half / 2.0), high = (one + half / 2.0) - (points - layers);
            double depth = fmax(fmax(low, high), 0) / layers;
            double damping = depth * depth * 3 * fastest * log(1e3) / (2 * layers * SPACING_M),
                   shift = PI * PEAK_HZ * (1 - depth);
            keeps[half][one] = exp(-(damping + shift) * step_s);
            takes[half][one] = depth > 0 ? damping / (damping + shift) * (keeps[half][one] - 1) : 0;
        }
}

static int is_absorbing(int one) { return one < layers || one >= points - layers; }

static void set_shares(void) {
    int parts[2] = {0, 0}, periods[2] = {is_periodic, is_periodic}, mine[2], places[2] = {0, 0};
    MPI_Dims_create(lab_ranks, 2, parts);
    MPI_Cart_create(MPI_COMM_WORLD, 2, parts, periods, 0, &grid);
    MPI_Cart_coords(grid, lab_rank, 2, mine);
    if (points < 4 * parts[0])
        lab_usage("there are too many ranks for so few points", "at least 4 points for each rank in x and y");
    for (int axis = X; axis < Z; axis++) {
        from[axis] = (int)((long long)points * mine[axis] / parts[axis]);
        size[axis] = (int)((long long)points * (mine[axis] + 1) / parts[axis]) - from[axis];
        MPI_Cart_shift(grid, axis, 1, &neighbour[2 * axis], &neighbour[2 * axis + 1]);
        for (int one = 0; one < size[axis]; one++)
            place[axis][one] = is_absorbing(from[axis] + one) ? places[axis]++ : -1;
    }
    size[Z] = points;
    stride[Z] = 1;
    stride[Y] = points + 2 * HALO;
    stride[X] = stride[Y] * (size[Y] + 2 * HALO);
    cells = stride[X] * (size[X] + 2 * HALO);
    for (int which = 0; which < FIELDS; which++) field[which] = zeros((size_t)cells, sizeof(double));
    for (int side = 0; side < SIDES; side++) {
        size_t most = (size_t)6 * HALO * (size_t)size[side < SOUTH ? Y : X] * (size_t)points;
        leaves[side] = zeros(most, sizeof(double));
        comes[side] = zeros(most, sizeof(double));
    }
    size_t of[AXES] = {(size_t)places[X] * (size_t)size[Y] * (size_t)points,
                       (size_t)size[X] * (size_t)places[Y] * (size_t)points,
                       (size_t)size[X] * (size_t)size[Y] * 2 * (size_t)layers};
    for (int group = 0; group < 2; group++)
        for (int row = 0; row < AXES; row++)
            for (int axis = 0; axis < AXES; axis++)
                memory[group][row][axis] = zeros(of[axis], sizeof(double));
}

#endif
