/* Files by MPI-IO, in IOR's pattern: every rank writes a block, and then reads the block of another
 * one. The BEE paper (Fig. 6, 7) measures this with IOR, with 1 GB a rank and one rank a node: what
 * a node reads another one has written, so its own page cache does not answer. On one machine the
 * ranks share the page cache, and reading is from memory.
 *
 * Words: MIB SHIFT DIRECTORY [shared|own [KIB]]. MIB is the size of a rank's block. Rank r reads
 * the block of rank r + SHIFT. `shared`: all blocks are in one file, DIRECTORY/mpiio.data; `own`:
 * each is in one of its own, mpiio.data.RANK. KIB is the size of a transfer (256, as IOR's).
 *
 * The time to write goes from before the file is opened to after fsync and close, the time to read
 * to after the last byte; both on the slowest rank. The files are removed at the end.
 *
 * Check: each 8 bytes tell who wrote them and where; all that is read is compared.
 */
#include "../lab.h"

#ifndef LAB_MPI
#error "it needs MPI: mpicc -DLAB_MPI"
#endif

#define USAGE "mpiio MIB SHIFT DIRECTORY [shared|own [KIB]]"
#define MOST_MIB 65536
#define MOST_KIB (1 << 20)
#define WORD_BYTES ((long)sizeof(uint64_t))

static const char *directory;
static int is_shared, transfer_bytes;
static long block_bytes, shift;
static uint64_t *block;

static uint64_t word_of(int writer, long at) {
    return ((uint64_t)writer + 1) * 0x9e3779b97f4a7c15u + (uint64_t)at * 0xd1342543de82ef95u;
}

/* Ends all ranks with what MPI says about a file. */
static void need(int status, const char *what, const char *path) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (status == MPI_SUCCESS) return;
    MPI_Error_string(status, text, &length);
    fprintf(stderr, "error: cannot %s %s: %s\n", what, path, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void path_of(char *path, size_t most, int owner) {
    int length = is_shared ? snprintf(path, most, "%s/mpiio.data", directory)
                           : snprintf(path, most, "%s/mpiio.data.%d", directory, owner);
    if (length >= (int)most) lab_usage("the directory's name is too long", USAGE);
}

/* Moves a block between memory and the file, a transfer at a time. */
static void transfer(MPI_File file, const char *path, int owner, int is_writing) {
    MPI_Offset begin = is_shared ? (MPI_Offset)owner * block_bytes : 0;
    for (long done = 0; done < block_bytes; done += transfer_bytes) {
        long left = block_bytes - done;
        int bytes = left < transfer_bytes ? (int)left : transfer_bytes, moved = 0;
        char *at = (char *)block + done;
        MPI_Status state;
        if (is_writing)
            need(MPI_File_write_at(file, begin + done, at, bytes, MPI_BYTE, &state), "write", path);
        else need(MPI_File_read_at(file, begin + done, at, bytes, MPI_BYTE, &state), "read", path);
        MPI_Get_count(&state, MPI_BYTE, &moved);
        if (moved == bytes) continue;
        fprintf(stderr, "error: cannot %s %s: only %d of %d bytes were moved\n",
                is_writing ? "write" : "read", path, moved, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Opens, transfers and closes. Returns how many bytes were moved in a second by all ranks. */
static double pass(int owner, int is_writing) {
    char path[4096];
    MPI_File file;
    MPI_Comm who = is_shared ? MPI_COMM_WORLD : MPI_COMM_SELF;
    path_of(path, sizeof path, owner);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t began = lab_now();
    need(MPI_File_open(who, path, is_writing ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY,
                       MPI_INFO_NULL, &file),
         "open", path);
    transfer(file, path, owner, is_writing);
    if (is_writing) need(MPI_File_sync(file), "sync", path);
    need(MPI_File_close(&file), "close", path);
    double took = (double)(lab_now() - began) / 1e9, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (double)block_bytes * lab_ranks / slowest;
}

static void clean(void) {
    char path[4096];
    path_of(path, sizeof path, lab_rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_shared || lab_rank == 0) MPI_File_delete(path, MPI_INFO_NULL);
}

static void take(int count, char **words) {
    const char *kind = count > 4 ? words[4] : "shared";
    long mib = count > 1 ? atol(words[1]) : 0, kib = count > 5 ? atol(words[5]) : 256;
    char *end;
    if (count < 4 || count > 6) lab_usage("how much, which shift, which directory?", USAGE);
    if (mib < 1 || mib > MOST_MIB) lab_usage("MIB is not from 1 to 65536", USAGE);
    shift = strtol(words[2], &end, 10);
    if (end == words[2] || *end || shift < 0) lab_usage("the shift is not a number from 0 on", USAGE);
    is_shared = !strcmp(kind, "shared");
    if (!is_shared && strcmp(kind, "own") != 0) lab_usage("the files are neither shared nor own", USAGE);
    if (kib < 1 || kib > MOST_KIB) lab_usage("KIB is not from 1 to 1048576", USAGE);
    directory = words[3];
    transfer_bytes = (int)(kib << 10);
    block_bytes = mib << 20;
    block = malloc((size_t)block_bytes);
    if (block) return;
    fprintf(stderr, "error: there is no memory for %ld MiB\n", mib);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int count, char **words) {
    lab_begin(&count, &words);
    take(count, words);
    const long many = block_bytes / WORD_BYTES;
    for (long at = 0; at < many; at++) block[at] = word_of(lab_rank, at);
    double written = pass(lab_rank, 1);
    memset(block, 0, (size_t)block_bytes);
    int owner = (int)((lab_rank + shift) % lab_ranks), wrong = 0, all = 0;
    double read = pass(owner, 0);
    for (long at = 0; at < many && !wrong; at++) wrong = block[at] != word_of(owner, at);
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    clean();
    if (lab_rank == 0) {
        printf("lab {\"write_bytes_per_s\": %.9e, \"read_bytes_per_s\": %.9e}\n", written, read);
        if (all) fprintf(stderr, "error: what was read is not what was written\n");
    }
    return lab_end(lab_rank == 0 && all);
}
