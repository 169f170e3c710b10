/* Random choices, names, records. */
#include "state.h"
#include <sys/mman.h>

struct sequence now;
static uint64_t random_state;

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

unsigned pick(unsigned n) {
    random_state += 0x9e3779b97f4a7c15u;
    return (unsigned)(mix(random_state) % n);
}

int seldom(unsigned n) { return pick(n) == 0; }

void begin_step(unsigned step) {
    now.step = step;
    random_state = mix(now.seed + 1) ^ mix(0x5851f42d4c957f2du * (step + 1));
}

int wanted(unsigned step) {
    char text[16];
    if (now.only[0] == '-') return 1;
    snprintf(text, sizeof text, ",%u,", step);
    return strstr(now.only, text) != 0;
}

void record(const char *format, ...) {
    char line[16384];
    int n = snprintf(line, sizeof line, "%llu.%u ", (unsigned long long)now.seed, now.step);
    va_list list;
    va_start(list, format);
    n += vsnprintf(line + n, sizeof line - n - 1, format, list);
    va_end(list);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(1, line, n) != n) _exit(9);
}

void result(long value, const char *format, ...) {
    int error = errno;
    char what[12000];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (value < 0 && value >= -4095) record("%s = %s", what, strerrorname_np(error));
    else record("%s = %ld", what, value);
    errno = error;
}

void facts(const char *what, const struct stat *st) {
    char text[200];
    int n = sprintf(text, "%06o", st->st_mode);
    if (now.ids) n += sprintf(text + n, " %u:%u", st->st_uid, st->st_gid);
    if (!S_ISDIR(st->st_mode)) n += sprintf(text + n, " links %lu size %lld", (unsigned long)st->st_nlink, (long long)st->st_size);
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) n += sprintf(text + n, " device %u:%u", major(st->st_rdev), minor(st->st_rdev));
    /* Times that were set explicitly; the others are the present. */
    if (st->st_mtime < 1000000000) sprintf(text + n, " time %lld.%ld", (long long)st->st_mtime, st->st_mtim.tv_nsec);
    record("%s: %s", what, text);
}

const char *shown(const char *text) {
    static char room[6][600];
    static int next;
    char *into = room[next = (next + 1) % 6];
    unsigned length = strlen(text), n = 0;
    for (unsigned i = 0; i < length && n < 500; i++) {
        unsigned same = 1, digits = strspn(text + i, "0123456789");
        /* Process ids. */
        if (digits && (i >= 6 && !memcmp(text + i - 6, "/proc/", 6) || i >= 6 && !memcmp(text + i - 6, "/task/", 6))) {
            into[n++] = 'N';
            i += digits - 1;
            continue;
        }
        while (i + same < length && text[i + same] == text[i]) same++;
        if (same > 8) { n += sprintf(into + n, "%c{%u}", text[i], same); i += same - 1; continue; }
        into[n++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    }
    into[n] = 0;
    if (n >= 500) sprintf(into + n, "...{%u}", length);
    return into;
}

static const char *const NAME[] = {"a", "b", "c", "d", "e", "f", "l", "m", "x", "p", "a", "b", "d", "l", "d", "f"};

static void component(char *into) {
    switch (pick(48)) {
    case 0: case 1: case 2: strcpy(into, "."); break;
    case 3: case 4: case 5: strcpy(into, ".."); break;
    case 6: *into = 0; break;
    case 7: memset(into, 'n', 255); into[255] = 0; break;
    case 8: seldom(3) ? (memset(into, 'N', 256), into[256] = 0) : (void)strcpy(into, "..."); break;
    case 9: memset(into, 'k', 200); into[200] = 0; break;
    default: strcpy(into, NAME[pick(sizeof NAME / sizeof *NAME)]);
    }
}

static void components(char *into, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (i) strcat(into, "/");
        component(into + strlen(into));
    }
}

static void odd(char *into) {
    switch (pick(18)) {
    case 0: *into = 0; break;
    case 1: strcpy(into, "/"); break;
    case 2: strcpy(into, "."); break;
    case 3: strcpy(into, ".."); break;
    case 4: strcpy(into, "/etc/passwd"); break;
    case 5: strcpy(into, "/dev/null"); break;
    case 6: strcpy(into, "/proc/self/exe"); break;
    case 7: strcpy(into, "/proc/self"); break;
    case 8: sprintf(into, "/work/../work/./%s/a", now.work + 6); break;
    case 9: strcpy(into, now.hidden); break;
    case 10: sprintf(into, "..%s", now.hidden); break;
    case 11: sprintf(into, "/../../../../..%s", now.work); break;
    case 12: strcpy(into, "/bind"); break;
    case 13: for (int i = 0; i < 2040; i++) strcat(into, "./"); strcat(into, "a"); break;
    case 14: for (int i = 0; i < 2050; i++) strcat(into, "./"); strcat(into, "a"); break;
    case 15: for (int i = 0; i < 60; i++) strcat(into, "d/../"); strcat(into, "f"); break;
    case 16: strcpy(into, "//work//"); strcat(into, now.work + 6); strcat(into, "///d//f"); break;
    default: strcpy(into, "/nothing/here"); break;
    }
}

static void compose(char *into) {
    *into = 0;
    switch (pick(20)) {
    case 0: case 1: case 2: sprintf(into, "%s/", now.work); components(into + strlen(into), 1 + pick(3)); break;
    case 3: sprintf(into, "/proc/self/fd/%d", descriptor()); if (!seldom(3)) { strcat(into, "/"); components(into + strlen(into), 1 + pick(2)); } break;
    case 4: strcpy(into, seldom(2) ? "/proc/self/cwd/" : "/proc/thread-self/cwd/"); components(into + strlen(into), 1 + pick(2)); break;
    case 5: sprintf(into, "/proc/self/root%s/", now.work); components(into + strlen(into), 1 + pick(2)); break;
    case 6: sprintf(into, "/dev/fd/%d", descriptor()); break;
    case 7: sprintf(into, "%s/", now.bound); components(into + strlen(into), 1 + pick(2)); break;
    case 8: odd(into); return;
    default: components(into, 1 + pick(4) % 3);
    }
    switch (pick(40)) {
    case 0: case 1: case 2: case 3: strcat(into, "/"); break;
    case 4: case 5: strcat(into, "/."); break;
    case 6: strcat(into, "/.."); break;
    case 7: strcat(into, "//"); break;
    }
}

enum { ROOM = 8192 };

/* Memory that is followed by unmapped memory. */
static char *edge(void) {
    static char *room[6];
    static int next;
    next = (next + 1) % 6;
    if (!room[next]) {
        room[next] = mmap(0, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(room[next] + ROOM, 4096, PROT_NONE);
    }
    return room[next];
}

const char *good_path(void) {
    char text[ROOM];
    compose(text);
    /* Most end at the end of the mapping. */
    unsigned length = strlen(text) + 1;
    char *at = edge() + ROOM - length - (seldom(4) ? 64 : 0);
    return memcpy(at, text, length);
}

const char *path(void) {
    switch (pick(200)) {
    case 0: return (const char *)8;
    case 1: return (const char *)0x7fffffffff00;
    case 2: return (const char *)0xffff800000000000;
    case 3: { char *at = edge() + ROOM - 3; return memcpy(at, "abc", 3); }
    case 4: return 0;
    default: return good_path();
    }
}

const char *named(const char *path) {
    if (!path) return "(null)";
    if ((uintptr_t)path < 65536 || (uintptr_t)path >= 0x7fffffff0000) return "(bad)";
    if ((uintptr_t)path % 4096 == 4093 && !memcmp(path, "abc", 3)) return "(no end)";
    return shown(path);
}

int descriptor(void) {
    if (!now.count || seldom(20)) return seldom(2) ? -1 : 77;
    return now.open[pick(now.count)];
}

int directory(void) { return seldom(2) ? AT_FDCWD : descriptor(); }

void forget(int fd) {
    for (int i = 0; i < now.count; i++)
        if (now.open[i] == fd) now.open[i--] = now.open[--now.count];
}

void keep(int fd) {
    if (fd < 3) return;
    forget(fd);
    if (now.count == MAXIMUM_OPEN) {
        int old = now.open[0];
        memmove(now.open, now.open + 1, sizeof now.open - sizeof *now.open);
        now.count--;
        close(old);
    }
    now.open[now.count++] = fd;
}
