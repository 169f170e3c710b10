/* A 3-D elastic wave by finite differences, with the exchange of messages of Ondes3D.
 *
 * Velocities and stresses on a staggered grid, of 4th order in space and 2nd in time, explicit,
 * after R. Madariaga (1976) and A. Levander, "Fourth-order finite-difference P-SV seismograms",
 * Geophysics 53, 1988. Absorbing layers are a convolutional PML after D. Komatitsch and R. Martin,
 * Geophysics 72, 2007: points in them cost more, so ranks at the edges have more work than those
 * inside.
 *
 * The ranks share the box out in x and y. Twice a step (velocities, then stresses) each rank
 * computes the strips at its four sides, sends two planes of all fields of the group to each
 * neighbour without waiting, computes the rest, and waits. Ondes3D (Dupros et al., 2010) does the
 * same.
 *
 * Words: POINTS STEPS [KIND [COURANT]]. POINTS is the number of grid points in each direction of
 * the whole box, COURANT the time step as a share of the largest stable one (0.8). Kinds:
 *
 *   source  two rock layers, absorbing layers at all faces; a Gaussian pulse of stress spreads
 *   box     the same without absorbing layers: all fields are zero outside
 *   p, s    one rock, periodic: a plane P or S wave in an oblique direction
 *
 * Check: `source` and `box` compare the norms after the last step with known ones where POINTS and
 * STEPS are in the table NORMS and COURANT is 0.8; they must be finite in any case. In `p` and `s`
 * all fields are compared with the plane wave that solves the difference equations exactly:
 * `deviation`. `error` is the relative difference to the plane wave of the differential equations.
 */
#include "box.h"

#ifndef LAB_MPI
#error "it needs MPI: mpicc -DLAB_MPI"
#endif

#define USAGE "wave POINTS STEPS [source|box|p|s [COURANT]]"
#define NEAR 1e-9
#define COURANT 0.8

/* The roots of the sums of all squares, computed with NumPy: lab/tests/apps/lab_wave.py. */
static const struct {
    const char *kind;
    int points, steps;
    double velocity, stress;
} NORMS[] = {
    {"box", 24, 20, 5.360086819958e-01, 8.786440743188e+06},
    {"source", 24, 20, 5.163013986851e-01, 8.492729395052e+06},
    {"source", 48, 100, 3.172079526369e-01, 7.500601313065e+06},
    {"source", 64, 150, 2.790973163169e-01, 7.474814377630e+06},
    {"source", 96, 300, 1.802420516299e-01, 7.349060560589e+06},
    {"source", 128, 100, 4.956304740990e-01, 9.005447128627e+06},
};

static const char *kind = "source";
static int steps;
static double courant = COURANT;

/* --- The scheme */

/* The derivative along an axis, of a row in z. `half` says whether the values lie half a step
 * on. */
static void derive(double *restrict row, const double *restrict of, int axis, int half) {
    const ptrdiff_t next = stride[axis];
    const double *restrict first = half ? of : of - next;
    for (int k = 0; k < points; k++) {
        double near = first[k + next] - first[k], far = first[k + 2 * next] - first[k - next];
        row[k] = (9.0 / 8 * near - 1.0 / 24 * far) / SPACING_M;
    }
}

static void absorb(double *restrict row, double *restrict kept, double keep, double take) {
    for (int k = 0; k < points; k++) row[k] += kept[k] = keep * kept[k] + take * row[k];
}

static void absorb_ends(double *restrict row, double *restrict kept, const double *restrict keep,
                        const double *restrict take) {
    for (int end = 0; end < 2;
         end++, kept += layers, row += points - layers, keep += points - layers, take += points - layers)
        for (int k = 0; k < layers; k++) row[k] += kept[k] = keep[k] * kept[k] + take[k] * row[k];
}

/* The same with what the absorbing layers take from it. `group` is 0 for derivatives of
 * stresses. */
static void derivative(double *row, int which, int group, int line, int axis, int half, int i, int j) {
    derive(row, at(which, i, j), axis, half);
    double *kept = memory[group][line][axis];
    if (axis == Z) {
        if (layers)
            absorb_ends(row, kept + ((ptrdiff_t)i * size[Y] + j) * 2 * layers, keeps[half], takes[half]);
        return;
    }
    int own = axis == X ? i : j, slot = place[axis][own];
    if (slot < 0) return;
    kept += (axis == X ? (ptrdiff_t)slot * size[Y] + j : (ptrdiff_t)slot * size[X] + i) * points;
    absorb(row, kept, keeps[half][from[axis] + own], takes[half][from[axis] + own]);
}

static void velocities(int i, int j) {
    static double rows[AXES][MOST_POINTS];
    for (int of = 0; of < AXES; of++) {
        double *restrict value = at(of, i, j);
        const double *restrict factor = light[of == Z];
        for (int axis = 0; axis < AXES; axis++)
            derivative(rows[axis], STRESS[of][axis], 0, of, axis, axis == of, i, j);
        for (int k = 0; k < points; k++)
            value[k] += step_s * factor[k] * (rows[X][k] + rows[Y][k] + rows[Z][k]);
    }
}

static void stresses(int i, int j) {
    static double rows[AXES][AXES][MOST_POINTS];
    for (int of = 0; of < AXES; of++)
        for (int axis = 0; axis < AXES; axis++) derivative(rows[of][axis], of, 1, of, axis, axis != of, i, j);
    for (int of = 0; of < AXES; of++) {
        double *restrict value = at(STRESS[of][of], i, j);
        for (int k = 0; k < points; k++) {
            double spread = rows[X][X][k] + rows[Y][Y][k] + rows[Z][Z][k];
            value[k] += step_s * (lambda[k] * spread + 2 * rigid[0][k] * rows[of][of][k]);
        }
        for (int other = of + 1; other < AXES; other++) {
            double *restrict shear = at(STRESS[of][other], i, j);
            const double *restrict factor = rigid[other == Z];
            for (int k = 0; k < points; k++)
                shear[k] += step_s * factor[k] * (rows[of][other][k] + rows[other][of][k]);
        }
    }
}

static void part(int group, int west, int east, int south, int north) {
    for (int i = west; i < east; i++)
        for (int j = south; j < north; j++) {
            if (group == 0) velocities(i, j);
            else stresses(i, j);
        }
}

/* --- The exchange */

/* Copies two planes of the group's fields at one side between grid and buffer: those inside, which
 * leave, or those outside, which came. */
static void planes(int group, int side, int is_leaving) {
    int first = group == 0 ? VX : XX, last = group == 0 ? XX : FIELDS, axis = side / 2,
        other = axis == X ? size[Y] : size[X];
    int begin = side % 2 == 0 ? (is_leaving ? 0 : -HALO) : size[axis] - (is_leaving ? HALO : 0);
    double *next = is_leaving ? leaves[side] : comes[side];
    for (int which = first; which < last; which++)
        for (int plane = begin; plane < begin + HALO; plane++)
            for (int one = 0; one < other; one++, next += points) {
                double *row = axis == X ? at(which, plane, one) : at(which, one, plane);
                if (is_leaving) memcpy(next, row, (size_t)points * sizeof *row);
                else memcpy(row, next, (size_t)points * sizeof *row);
            }
}

static void wrap_in_z(int group) {
    for (int which = group == 0 ? VX : XX; which < (group == 0 ? XX : FIELDS); which++)
        for (int i = 0; i < size[X]; i++)
            for (int j = 0; j < size[Y]; j++) {
                double *row = at(which, i, j);
                memcpy(row - HALO, row + points - HALO, HALO * sizeof *row);
                memcpy(row + points, row, HALO * sizeof *row);
            }
}

/* Half a step: the strips at the four sides, messages to the neighbours, the middle, their
 * messages. */
static void half_step(int group) {
    MPI_Request all[2 * SIDES];
    MPI_Status states[2 * SIDES];
    part(group, 0, HALO, 0, size[Y]);
    part(group, size[X] - HALO, size[X], 0, size[Y]);
    part(group, HALO, size[X] - HALO, 0, HALO);
    part(group, HALO, size[X] - HALO, size[Y] - HALO, size[Y]);
    lab_communicates();
    for (int side = 0; side < SIDES; side++) {
        int count = (group == 0 ? 3 : 6) * HALO * size[side < SOUTH ? Y : X] * points;
        MPI_Irecv(comes[side], count, MPI_DOUBLE, neighbour[side], side ^ 1, grid, all + side);
        if (neighbour[side] != MPI_PROC_NULL) {
            planes(group, side, 1);
            messages++;
            sent_bytes += (long long)count * (long long)sizeof(double);
        }
        MPI_Isend(leaves[side], count, MPI_DOUBLE, neighbour[side], side, grid, all + SIDES + side);
    }
    lab_computes();
    part(group, HALO, size[X] - HALO, HALO, size[Y] - HALO);
    if (is_periodic) wrap_in_z(group);
    lab_communicates();
    MPI_Waitall(2 * SIDES, all, states);
    for (int side = 0; side < SIDES; side++)
        if (neighbour[side] != MPI_PROC_NULL) planes(group, side, 0);
    lab_computes();
}

/* --- What the fields begin with, and what they must be */

/* A plane wave: the amplitude of each field, times the cosine of number . x - frequency t. */
struct plane {
    double number[AXES], frequency, amplitude[FIELDS];
};

/* With `is_discrete` the solution of the difference equations: their derivatives of a plane wave
 * are those of the differential equations with other wave numbers, in time as in space. */
static struct plane plane_wave(int is_shear, int is_discrete) {
    static const double ASIDE[AXES] = {1, 0, 1};
    struct plane made = {0};
    const double speed = sqrt((is_shear ? rigid[0][0] : lambda[0] + 2 * rigid[0][0]) * light[0][0]);
    double wave[AXES], along[AXES], length = 0, norm = 0;
    for (int axis = 0; axis < AXES; axis++) {
        double phase = 2 * PI * (axis + 1) / points;
        made.number[axis] = phase / SPACING_M;
        wave[axis] = is_discrete ? 2 / SPACING_M * (9.0 / 8 * sin(phase / 2) - 1.0 / 24 * sin(3 * phase / 2))
                                 : made.number[axis];
        length += wave[axis] * wave[axis];
    }
    const double rate = speed * sqrt(length);
    made.frequency = is_discrete ? 2 / step_s * asin(rate * step_s / 2) : rate;
    for (int axis = 0; axis < AXES; axis++) {
        int next = (axis + 1) % AXES, last = (axis + 2) % AXES;
        along[axis] = is_shear ? wave[next] * ASIDE[last] - wave[last] * ASIDE[next] : wave[axis];
        norm += along[axis] * along[axis];
    }
    double spread = 0;
    for (int axis = 0; axis < AXES; axis++)
        spread += wave[axis] * (made.amplitude[axis] = along[axis] / sqrt(norm));
    for (int one = 0; one < AXES; one++)
        for (int other = one; other < AXES; other++)
            made.amplitude[STRESS[one][other]] =
                -((one == other) * lambda[0] * spread +
                  rigid[0][0] * (wave[one] * made.amplitude[other] + wave[other] * made.amplitude[one])) /
                rate;
    return made;
}

/* The value of a field at a point after so many steps. */
static double value_of(const struct plane *wave, int which, int i, int j, int k, double steps) {
    const double index[AXES] = {from[X] + i, from[Y] + j, k};
    double phase = -wave->frequency * step_s * (which < XX ? steps - 0.5 : steps);
    for (int axis = 0; axis < AXES; axis++)
        phase += wave->number[axis] * SPACING_M * (index[axis] + HALF[which][axis] / 2.0);
    return wave->amplitude[which] * cos(phase);
}

/* A pulse of all six stresses, each with a strength of its own, not in the middle. */
static double pulse(int which, int i, int j, int k) {
    static const double STRENGTH[FIELDS] = {0, 0, 0, 1.0, 0.5, 0.2, 0.7, 0.3, 0.4},
                        CENTRE[AXES] = {0.45, 0.55, 0.5};
    const double index[AXES] = {from[X] + i, from[Y] + j, k};
    double square = 0;
    for (int axis = 0; axis < AXES; axis++)
        square += pow((index[axis] + HALF[which][axis] / 2.0 - CENTRE[axis] * points) / 3, 2);
    return 1e6 * STRENGTH[which] * exp(-square);
}

static void begin(const struct plane *wave) {
    for (int which = wave ? VX : XX; which < FIELDS; which++)
        for (int i = 0; i < size[X]; i++)
            for (int j = 0; j < size[Y]; j++)
                for (int k = 0; k < points; k++)
                    at(which, i, j)[k] = wave ? value_of(wave, which, i, j, k, 0) : pulse(which, i, j, k);
}

/* Before the first step the halo has what the neighbours have. */
static void first_exchange(void) {
    for (int group = 0; group < 2; group++) {
        for (int side = 0; side < SIDES; side++) {
            int count = (group == 0 ? 3 : 6) * HALO * size[side < SOUTH ? Y : X] * points,
                opposite = side ^ 1;
            planes(group, side, 1);
            MPI_Sendrecv(leaves[side], count, MPI_DOUBLE, neighbour[side], side, comes[opposite], count,
                         MPI_DOUBLE, neighbour[opposite], side, grid, MPI_STATUS_IGNORE);
            if (neighbour[opposite] != MPI_PROC_NULL) planes(group, opposite, 0);
        }
        if (is_periodic) wrap_in_z(group);
    }
}

/* Sums over all points and ranks: squares of velocities and stresses, of what the velocities differ
 * from the exact wave, of the exact wave; and the largest deviation from the discrete one. */
static void measure(double sums[4], double *deviation, const struct plane *discrete,
                    const struct plane *exact) {
    double mine[4] = {0}, most = 0;
    for (int which = 0; which < FIELDS; which++)
        for (int i = 0; i < size[X]; i++)
            for (int j = 0; j < size[Y]; j++)
                for (int k = 0; k < points; k++) {
                    double value = at(which, i, j)[k];
                    mine[which >= XX] += value * value;
                    if (!discrete) continue;
                    double wanted = value_of(exact, which, i, j, k, steps),
                           scale = which < XX ? 1 : fabs(exact->amplitude[ZZ]) + fabs(exact->amplitude[XZ]);
                    double off = fabs(value - value_of(discrete, which, i, j, k, steps)) / scale;
                    if (!(off <= most)) most = isnan(off) ? INFINITY : off;
                    if (which < XX)
                        mine[2] += (value - wanted) * (value - wanted), mine[3] += wanted * wanted;
                }
    MPI_Allreduce(mine, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&most, deviation, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static int is_near(double value, double known) { return fabs(value - known) <= NEAR * known; }

/* Tells what is wrong with the norms, if anything. */
static int judge(double velocity, double stress, double deviation) {
    if (is_periodic && !(deviation <= NEAR)) {
        fprintf(stderr, "error: the wave deviates by %.3e from the one of the difference equations\n",
                deviation);
        return 1;
    }
    for (size_t one = 0; one < sizeof NORMS / sizeof *NORMS && courant == COURANT; one++) {
        if (strcmp(NORMS[one].kind, kind) != 0 || NORMS[one].points != points || NORMS[one].steps != steps)
            continue;
        if (is_near(velocity, NORMS[one].velocity) && is_near(stress, NORMS[one].stress)) continue;
        fprintf(stderr, "error: the norms are wrong: they should be %.12e %.12e\n", NORMS[one].velocity,
                NORMS[one].stress);
        return 1;
    }
    return 0;
}

/* Prints the result of all ranks. Returns whether it is wrong. */
static int tell(double took, const struct plane *discrete, const struct plane *exact) {
    double run_s, sums[4], deviation;
    long long mine[2] = {messages, sent_bytes}, most[2];
    MPI_Reduce(&took, &run_s, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, most, 2, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    measure(sums, &deviation, discrete, exact);
    if (lab_rank > 0) return 0;
    double velocity = sqrt(sums[0]), stress = sqrt(sums[1]);
    if (!isfinite(velocity) || !isfinite(stress)) {
        fprintf(stderr, "error: the wave is not finite: velocity %g, stress %g\n", velocity, stress);
        return 1;
    }
    printf("lab {\"run_s\": %.9e, \"points_per_s\": %.9e, ", run_s, pow(points, 3) * steps / run_s);
    printf("\"messages\": %lld, \"sent_bytes\": %lld, ", most[0], most[1]);
    printf("\"norms\": \"%.6e %.6e\", ", velocity, stress);
    printf("\"velocity_norm\": %.12e, \"stress_norm\": %.12e", velocity, stress);
    if (discrete) printf(", \"deviation\": %.3e, \"error\": %.9e", deviation, sqrt(sums[2] / sums[3]));
    printf("}\n");
    return judge(velocity, stress, deviation);
}

static void take(int count, char **words) {
    points = count > 1 ? atoi(words[1]) : 0;
    steps = count > 2 ? atoi(words[2]) : 0;
    if (count > 3) kind = words[3];
    if (count > 4) courant = atof(words[4]);
    int is_source = !strcmp(kind, "source");
    is_periodic = !strcmp(kind, "p") || !strcmp(kind, "s");
    if (count < 3 || count > 5) lab_usage("how many points and steps?", USAGE);
    if (!is_periodic && !is_source && strcmp(kind, "box") != 0) lab_usage("no such kind", USAGE);
    if (points < 12 || points > MOST_POINTS) lab_usage("the number of points is not from 12 to 4096", USAGE);
    if (steps < 1) lab_usage("the number of steps is not right", USAGE);
    if (!(courant > 0 && courant <= 1)) lab_usage("COURANT is not above 0 and at most 1", USAGE);
    layers = !is_source ? 0 : points / 6 < LAYER_POINTS ? points / 6 : LAYER_POINTS;
}

int main(int count, char **words) {
    lab_begin(&count, &words);
    take(count, words);
    set_medium(courant);
    set_shares();
    int is_shear = !strcmp(kind, "s");
    struct plane discrete = plane_wave(is_shear, 1), exact = plane_wave(is_shear, 0),
                 *wave = is_periodic ? &discrete : NULL;
    begin(wave);
    first_exchange();
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t began = lab_now();
    for (int step = 0; step < steps; step++) {
        half_step(0);
        half_step(1);
    }
    return lab_end(tell((double)(lab_now() - began) / 1e9, wave, &exact));
}
