/* The hopping term of Wilson's Dirac operator in lattice QCD, on a lattice of its own for each
 * rank:
 *
 *     (D psi)(x) = 1/8 sum over m of U_m(x) (1 - g_m) psi(x + m) + U_m(x - m)^+ (1 + g_m) psi(x - m)
 *
 * with links U in SU(3), spinors psi of 4 x 3 complex numbers and Dirac matrices g in a chiral
 * basis, after K. Wilson, Phys. Rev. D 10, 1974; it is what openQCD applies most of the time, and
 * what the udocker paper scales weakly (its Fig. 4). Ranks share out t, then z too; all directions
 * are periodic. Each application sends half spinors (6 numbers a site) of the faces to the
 * neighbours.
 *
 * Words: LATTICE SWEEPS [EVERY DIRECTORY]. LATTICE is the even length of a rank's lattice in each
 * of the 4 directions, a sweep applies the term once. With EVERY above 0 each rank writes its
 * spinors to DIRECTORY/hopping.RANK after so many sweeps, as a checkpoint: a new file, fsync,
 * rename.
 *
 * Check, before the sweeps: with unit links, and with a random gauge transformation of them, a
 * plane wave is an eigenvector with the known eigenvalue; with random links g_5 D g_5 is the
 * adjoint of D. After the sweeps, which are made with transformed unit links, each spinor is what
 * the constant and the alternating mode (eigenvalues 1 and -1) must have become; and so is the last
 * checkpoint.
 */
#define _GNU_SOURCE
#include "lattice.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#ifndef LAB_MPI
#error "it needs MPI: mpicc -DLAB_MPI"
#endif

#define USAGE "hopping LATTICE SWEEPS [EVERY DIRECTORY], LATTICE is even"
#define MOST 64
#define FLOPS 1320 /* a site, as it is counted in the field */
#define NEAR 1e-11

/* Row a of Dirac matrix m has one element, i^POWER[m][a], in column COLUMN[m][a]. */
static const int COLUMN[AXES][4] = {{3, 2, 1, 0}, {3, 2, 1, 0}, {2, 3, 0, 1}, {2, 3, 0, 1}};
static const int POWER[AXES][4] = {{1, 1, 3, 3}, {2, 0, 0, 2}, {1, 3, 3, 1}, {0, 0, 0, 0}};

/* --- The term */

/* The upper half of (1 + sign g) psi; sign is -1 for what lies after a site. */
EACH half projected(const spinor *of, int axis, int sign) {
    half made;
    for (int a = 0; a < 2; a++)
        for (int c = 0; c < 3; c++)
            made.of[a][c] =
                plus(of->of[a][c], turned(of->of[COLUMN[axis][a]][c], POWER[axis][a] + (sign < 0 ? 2 : 0)));
    return made;
}

/* Adds the whole of such a half. */
EACH void add(spinor *sum, half one, int axis, int sign) {
    for (int c = 0; c < 3; c++)
        for (int a = 0; a < 2; a++) {
            sum->of[a][c] = plus(sum->of[a][c], one.of[a][c]);
            number lower = turned(one.of[COLUMN[axis][a + 2]][c], POWER[axis][a + 2] + (sign < 0 ? 2 : 0));
            sum->of[a + 2][c] = plus(sum->of[a + 2][c], lower);
        }
}

EACH half linked(const matrix *link, half one, int is_adjoint) {
    half made;
    for (int a = 0; a < 2; a++)
        for (int c = 0; c < 3; c++) {
            number sum = {0, 0};
            for (int d = 0; d < 3; d++)
                sum = plus(sum, times(is_adjoint ? conjugate(link->of[d][c]) : link->of[c][d], one.of[a][d]));
            made.of[a][c] = sum;
        }
    return made;
}

EACH void add_inside(spinor *sum, const spinor *in, int site, int axis) {
    int next = after[site][axis], last = before[site][axis];
    if (next >= 0) add(sum, linked(&links[site][axis], projected(in + next, axis, -1), 0), axis, -1);
    if (last >= 0) add(sum, linked(&links[last][axis], projected(in + last, axis, 1), 1), axis, 1);
}

/* What leaves at the two ends in z or t; then what came there. */
EACH void send_ends(const spinor *in, int axis, MPI_Request *all) {
    for (int end = 0; end < 2; end++) {
        MPI_Irecv(comes[axis][end], faces * 12, MPI_DOUBLE, neighbour[axis][end], 2 * axis + !end, grid,
                  all + end);
        for (int one = 0; one < faces; one++) {
            int site = face[axis][end][one];
            if (end == 0) leaves[axis][end][one] = projected(in + site, axis, -1);
            else leaves[axis][end][one] = linked(&links[site][axis], projected(in + site, axis, 1), 1);
        }
        MPI_Isend(leaves[axis][end], faces * 12, MPI_DOUBLE, neighbour[axis][end], 2 * axis + end, grid,
                  all + 2 + end);
    }
}

EACH void add_ends(spinor *out, int axis) {
    for (int one = 0; one < faces; one++) {
        spinor sum[2] = {0};
        int low = face[axis][0][one], high = face[axis][1][one];
        add(&sum[0], comes[axis][0][one], axis, 1);
        add(&sum[1], linked(&links[high][axis], comes[axis][1][one], 0), axis, -1);
        for (int a = 0; a < 4; a++)
            for (int c = 0; c < 3; c++)
                for (int end = 0; end < 2; end++) {
                    number *at = &out[end ? high : low].of[a][c];
                    *at = (number){at->re + sum[end].of[a][c].re / 8, at->im + sum[end].of[a][c].im / 8};
                }
    }
}

static void hop(spinor *restrict out, const spinor *restrict in) {
    MPI_Request all[8];
    MPI_Status states[8];
    int sent = 0;
    lab_communicates();
    if (parts[Z] > 1) send_ends(in, Z, all + 4 * sent++);
    if (parts[T] > 1) send_ends(in, T, all + 4 * sent++);
    lab_computes();
    for (int site = 0; site < sites; site++) {
        spinor sum = {0};
        add_inside(&sum, in, site, X);
        add_inside(&sum, in, site, Y);
        add_inside(&sum, in, site, Z);
        add_inside(&sum, in, site, T);
        for (int a = 0; a < 4; a++)
            for (int c = 0; c < 3; c++)
                out[site].of[a][c] = (number){sum.of[a][c].re / 8, sum.of[a][c].im / 8};
    }
    lab_communicates();
    MPI_Waitall(4 * sent, all, states);
    lab_computes();
    if (parts[Z] > 1) add_ends(out, Z);
    if (parts[T] > 1) add_ends(out, T);
}

/* --- The checks */

/* A transformed colour vector times a spin vector times a factor. */
static spinor product(enum gauge gauge, const int at[AXES], const number spin[4], number factor) {
    static const number COLOUR[3] = {{0.6, 0.1}, {-0.3, 0.5}, {0.2, -0.4}};
    matrix turn = transformation(gauge, at);
    spinor made;
    for (int c = 0; c < 3; c++) {
        number colour = {0, 0};
        for (int d = 0; d < 3; d++) colour = plus(colour, times(turn.of[c][d], COLOUR[d]));
        for (int a = 0; a < 4; a++) made.of[a][c] = times(times(spin[a], colour), factor);
    }
    return made;
}

static double difference(const spinor *one, const spinor *other) {
    double most = 0;
    for (int a = 0; a < 4; a++)
        for (int c = 0; c < 3; c++) {
            double off = hypot(one->of[a][c].re - other->of[a][c].re, one->of[a][c].im - other->of[a][c].im);
            if (!(off <= most)) most = isnan(off) ? INFINITY : off;
        }
    return most;
}

static double over_all(double value, MPI_Op how) {
    double all;
    MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, how, MPI_COMM_WORLD);
    return all;
}

/* How far a plane wave is from an eigenvector. Its spin is an eigenvector of sum g_m sin p_m. */
static double wave_deviation(enum gauge gauge, spinor *in, spinor *out) {
    static const int WAVES[AXES] = {1, 2, 1, 3};
    static const number START[4] = {{1, 0}, {0.3, 0.2}, {0, -0.5}, {0.4, 0}};
    double p[AXES], length_of_sines = 0, cosines = 0, most = 0;
    number spin[4];
    int at[AXES];
    for (int axis = 0; axis < AXES; axis++) {
        p[axis] = 2 * PI * WAVES[axis] / (length * parts[axis]);
        cosines += cos(p[axis]);
        length_of_sines += sin(p[axis]) * sin(p[axis]);
    }
    length_of_sines = sqrt(length_of_sines);
    for (int a = 0; a < 4; a++) {
        spin[a] = START[a];
        for (int axis = 0; axis < AXES; axis++) {
            number other = turned(START[COLUMN[axis][a]], POWER[axis][a]);
            spin[a].re += other.re * sin(p[axis]) / length_of_sines;
            spin[a].im += other.im * sin(p[axis]) / length_of_sines;
        }
    }
    set_links(gauge);
    for (int pass = 0; pass < 2; pass++) {
        number value = {cosines / 4, -length_of_sines / 4};
        for (int site = 0; site < sites; site++) {
            everywhere(site, X, 0, at);
            double phase = p[X] * at[X] + p[Y] * at[Y] + p[Z] * at[Z] + p[T] * at[T];
            number factor = {cos(phase), sin(phase)};
            spinor wanted = product(gauge, at, spin, pass ? times(value, factor) : factor);
            if (pass == 0) in[site] = wanted;
            else most = fmax(most, difference(&wanted, out + site));
        }
        if (pass == 0) hop(out, in);
    }
    return over_all(most, MPI_MAX);
}

static void fill(spinor *field, int stream) {
    int at[AXES];
    for (int site = 0; site < sites; site++) {
        everywhere(site, X, 0, at);
        uint64_t state = seed_of(at, stream);
        for (int a = 0; a < 4; a++)
            for (int c = 0; c < 3; c++)
                field[site].of[a][c].re = number_of(&state), field[site].of[a][c].im = number_of(&state);
    }
}

/* With `is_turned` the lower two spin components of `other` count with the other sign: g_5. */
static number product_of(const spinor *one, const spinor *other, int is_turned) {
    number sum = {0, 0};
    for (int site = 0; site < sites; site++)
        for (int a = 0; a < 4; a++)
            sum = plus(sum, turned(inner(one[site].of[a], other[site].of[a]), is_turned && a > 1 ? 2 : 0));
    return (number){over_all(sum.re, MPI_SUM), over_all(sum.im, MPI_SUM)};
}

/* How far <D phi, psi> is from <phi, g_5 D g_5 psi>, relative to the norms. */
static double adjoint_deviation(spinor *psi, spinor *out) {
    spinor *phi = zeros((size_t)sites, sizeof *phi);
    set_links(RANDOM);
    fill(psi, 10);
    fill(phi, 11);
    hop(out, phi);
    number one = product_of(out, psi, 0);
    double scale = sqrt(product_of(out, out, 0).re * product_of(psi, psi, 0).re);
    for (int site = 0; site < sites; site++)
        for (int a = 2; a < 4; a++)
            for (int c = 0; c < 3; c++) psi[site].of[a][c] = turned(psi[site].of[a][c], 2);
    hop(out, psi);
    number other = product_of(phi, out, 1);
    free(phi);
    return hypot(one.re - other.re, one.im - other.im) / scale;
}

/* --- The sweeps */

/* What the timed sweeps begin with, and what it is after so many: the constant mode stays, the
 * alternating one changes its sign. */
static spinor mode(int site, int sweeps) {
    static const number SPIN[4] = {{0.5, 0}, {0, 0.4}, {-0.3, 0.1}, {0.2, -0.6}};
    int at[AXES];
    everywhere(site, X, 0, at);
    int is_odd = (at[X] + at[Y] + at[Z] + at[T] + sweeps) & 1;
    return product(TRANSFORMED, at, SPIN, (number){is_odd ? 0.25 : 1.75, 0});
}

static double mode_deviation(const spinor *field, int sweeps) {
    double most = 0;
    for (int site = 0; site < sites; site++) {
        spinor wanted = mode(site, sweeps);
        most = fmax(most, difference(&wanted, field + site));
    }
    return over_all(most, MPI_MAX);
}

static int failed(const char *what, const char *path) {
    fprintf(stderr, "error: cannot %s %s: %s\n", what, path, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    return -1;
}

/* Moves all bytes between a file and memory; ends the ranks if that fails. */
static void transfer(int file, void *memory, size_t bytes, int is_writing, const char *path) {
    char *next = memory;
    for (size_t left = bytes; left > 0;) {
        ssize_t done = is_writing ? write(file, next, left) : read(file, next, left);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) failed(is_writing ? "write" : "read", path);
        next += done;
        left -= (size_t)done;
    }
}

/* Writes the spinors, and after how many sweeps they are so. */
static void write_checkpoint(spinor *field, int sweeps, const char *path, const char *fresh) {
    int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) failed("create", fresh);
    transfer(file, field, (size_t)sites * sizeof *field, 1, fresh);
    transfer(file, &sweeps, sizeof sweeps, 1, fresh);
    if (fsync(file) < 0 || close(file) < 0) failed("write", fresh);
    if (rename(fresh, path) < 0) failed("rename", fresh);
}

/* Reads the spinors. Returns after how many sweeps they were written. */
static int read_checkpoint(spinor *field, const char *path) {
    int sweeps;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) failed("open", path);
    transfer(file, field, (size_t)sites * sizeof *field, 0, path);
    transfer(file, &sweeps, sizeof sweeps, 0, path);
    close(file);
    return sweeps;
}

/* Makes the sweeps, and checks what they lead to. */
static double sweep(spinor *in, spinor *out, int sweeps, int every, const char *directory) {
    char path[4096], fresh[4096 + 8];
    snprintf(path, sizeof path, "%s/hopping.%d", directory, lab_rank);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    set_links(TRANSFORMED);
    for (int site = 0; site < sites; site++) in[site] = mode(site, 0);
    double writing_s = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t began = lab_now();
    for (int one = 1; one <= sweeps; one++) {
        hop(out, in);
        spinor *swapped = in;
        in = out;
        out = swapped;
        if (every == 0 || one % every != 0) continue;
        int64_t before_writing = lab_now();
        write_checkpoint(in, one, path, fresh);
        writing_s += (double)(lab_now() - before_writing) / 1e9;
    }
    double run_s = over_all((double)(lab_now() - began) / 1e9, MPI_MAX),
           deviation = mode_deviation(in, sweeps);
    writing_s = over_all(writing_s, MPI_MAX);
    int written = every ? sweeps / every : 0;
    if (written) {
        memset(out, 0, (size_t)sites * sizeof *out);
        int found = read_checkpoint(out, path);
        deviation = fmax(deviation, mode_deviation(out, written * every));
        if (over_all(found, MPI_MIN) < written * every) deviation = INFINITY;
    }
    /* JSON has no infinity. */
    if (lab_rank > 0 || !isfinite(deviation)) return deviation;
    double flop = (double)FLOPS * sites * lab_ranks * sweeps;
    printf("lab {\"run_s\": %.9e, \"sweep_s\": %.9e, ", run_s, (run_s - writing_s) / sweeps);
    long long messages = 2ll * sweeps * ((parts[Z] > 1) + (parts[T] > 1));
    printf("\"messages\": %lld, \"sent_bytes\": %lld, ", messages,
           messages * faces * (long long)sizeof(half));
    printf("\"gflops\": %.9e, \"deviation\": %.3e", flop / (run_s - writing_s) / 1e9, deviation);
    if (written) {
        long long bytes = (long long)sites * (long long)sizeof *in + (long long)sizeof sweeps;
        printf(", \"checkpoint_bytes\": %lld, \"checkpoint_s\": %.9e", bytes, writing_s / written);
    }
    printf("}\n");
    return deviation;
}

static int judge(const char *what, double deviation) {
    if (deviation <= NEAR) return 0;
    if (lab_rank == 0) fprintf(stderr, "error: %s by %.3e\n", what, deviation);
    return 1;
}

int main(int count, char **words) {
    lab_begin(&count, &words);
    length = count > 1 ? atoi(words[1]) : 0;
    int sweeps = count > 2 ? atoi(words[2]) : 0, every = count > 3 ? atoi(words[3]) : 0;
    if (count < 3 || count > 5) lab_usage("which lattice, how many sweeps?", USAGE);
    if (length < 4 || length > MOST || length % 2)
        lab_usage("the lattice is not an even number from 4 to 64", USAGE);
    if (sweeps < 1) lab_usage("the number of sweeps is not right", USAGE);
    if (every < 0 || (count > 3 && every == 0 && strcmp(words[3], "0") != 0))
        lab_usage("how many sweeps a checkpoint?", USAGE);
    if (every > 0 && count < 5) lab_usage("in which directory are checkpoints written?", USAGE);
    if (every > 0 && over_all(access(words[4], W_OK), MPI_MIN) < 0)
        lab_usage("checkpoints cannot be written to that directory", USAGE);
    set_lattice();
    spinor *in = zeros((size_t)sites, sizeof *in), *out = zeros((size_t)sites, sizeof *out);
    int wrong = judge("a plane wave with unit links is off", wave_deviation(UNIT, in, out));
    wrong |= judge("a transformed plane wave is off", wave_deviation(TRANSFORMED, in, out));
    wrong |= judge("the term is not g_5-hermitian: off", adjoint_deviation(in, out));
    wrong |= judge("the spinors after the sweeps are off",
                   sweep(in, out, sweeps, every, count > 4 ? words[4] : ""));
    return lab_end(lab_rank == 0 && wrong);
}
