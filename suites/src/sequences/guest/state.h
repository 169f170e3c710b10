/* The state of a sequence of calls: its random numbers, its descriptors, the names it uses. One
 * step is one call, chosen by the seed and the step's number alone, so that a sequence with
 * steps left out does the others as before. */
#ifndef STATE_H
#define STATE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Newer than the C library of some machines. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum { SLOTS = 64, MAXIMUM_OPEN = 10 };

struct sequence {
    uint64_t seed;
    unsigned step, steps;
    /* Ids are changed and shown: the engine provides all ids. */
    int ids;
    /* A file that only the host has. */
    const char *hidden;
    /* Steps to do, comma-separated with a comma at both ends, or "-" for all. */
    const char *only;
    /* The sequence's own directories. */
    char work[32], bound[32];
    int open[MAXIMUM_OPEN], count;
    /* The root is `work`. */
    int inside;
};
extern struct sequence now;

/* A random number below `n`. */
unsigned pick(unsigned n);
/* True once in `n` times. */
int seldom(unsigned n);
void begin_step(unsigned step);
int wanted(unsigned step);

/* Writes one line of the record. */
void record(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Records that `what` returned `result`, with errno. */
void result(long value, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records the fields of stat that are the same everywhere. */
void facts(const char *what, const struct stat *st);
/* Prepares text for the record: long runs are counted. */
const char *shown(const char *text);
/* The same for a path that may be unmapped. */
const char *named(const char *path);

/* A path, from a buffer that lasts until the sixth call from now. May end right before unmapped
 * memory, or be unmapped itself. */
const char *path(void);
/* The same, but always a valid string. */
const char *good_path(void);
int descriptor(void);
int directory(void);
void keep(int fd);
void forget(int fd);
/* True if a change of this file stays within the sequence's own directories, so that other
 * sequences are not disturbed. */
int ours(int dir, const char *name, int follow);
int ours_fd(int fd);

/* Does the steps from `now.step` up to `end`. */
void run_steps(unsigned end);
/* One call of a family; each family has this many. */
void step_names(unsigned which);
void step_descriptors(unsigned which);
void step_attributes(unsigned which);
void step_processes(unsigned which);
void step_ids(unsigned which);
enum { NAMES = 20, DESCRIPTORS = 18, ATTRIBUTES = 12, PROCESSES = 11, IDS = 12 };
#endif
