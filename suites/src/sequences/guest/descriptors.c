/* Calls on descriptors, and the working directory. */
#include "state.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/sendfile.h>

#define SKIP(fd) do { if (!ours_fd(fd)) { record("elsewhere"); return; } } while (0)

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Reads a whole directory, in pieces of a size that the seed chooses. */
static void list(void) {
    static char room[4096], *names[400];
    char line[12000];
    int fd = descriptor(), count = 0, n;
    unsigned size = (unsigned[]){4096, 4096, 512, 280, 64, 24, 10}[pick(7)];
    struct stat st;
    if (fcntl(fd, F_GETFD) >= 0 && (!ours_fd(fd) || now.inside)) { record("a directory elsewhere"); return; }
    int fresh = fstat(fd, &st) == 0 && !seldom(3) && lseek(fd, 0, SEEK_SET) == 0;
    while ((n = syscall(SYS_getdents64, fd, room, size)) > 0 && count < 390)
        for (int at = 0; at < n;) {
            struct dirent64 *entry = (void *)(room + at);
            char text[300];
            snprintf(text, sizeof text, "%s/%d", entry->d_name, entry->d_type);
            names[count++] = strdup(text);
            at += entry->d_reclen;
        }
    int error = errno;
    /* How many entries fit before one that does not is not defined; nor is what a directory
     * shows that was read before it was changed. */
    int whole = n == 0 && size >= 280 && fresh;
    qsort(names, count, sizeof *names, by_text);
    int length = 0;
    for (int i = 0; i < count; i++) {
        if (whole && length < 10000) length += sprintf(line + length, " %s", shown(names[i]));
        free(names[i]);
    }
    line[length] = 0;
    errno = error;
    result(n, "getdents64(%d, %u)%s", fd, size, line);
}

static void reads_and_writes(unsigned which) {
    char text[64] = {0};
    int fd = descriptor(), other;
    long length = pick(20), at = pick(30);
    switch (which) {
    case 0: {
        /* Files elsewhere (/proc, /dev) have contents of their own. */
        SKIP(fd);
        long n = pread(fd, text, length, at);
        result(n, "pread(%d, %ld, %ld) \"%s\"", fd, length, at, shown(text));
        break;
    }
    case 1:
        SKIP(fd);
        memset(text, 'A' + pick(26), length);
        result(seldom(2) ? write(fd, text, length) : pwrite(fd, text, length, at), "write(%d, %ld, %ld)", fd, length, at);
        break;
    case 2: SKIP(fd); result(ftruncate(fd, at), "ftruncate(%d, %ld)", fd, at); break;
    case 3: {
        /* Positions in directories depend on the file system. */
        struct stat st;
        SKIP(fd);
        if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) { record("a directory"); break; }
        result(lseek(fd, at, pick(3)) < 0 ? -1 : 0, "lseek(%d, %ld)", fd, at);
        break;
    }
    case 4:
        other = descriptor();
        SKIP(fd); SKIP(other);
        result(seldom(2) ? sendfile(other, fd, 0, length) : copy_file_range(fd, 0, other, 0, length, 0), "copy(%d, %d, %ld)", fd, other, length);
        break;
    case 5: SKIP(fd); result(fallocate(fd, pick(2), at, length + 1), "fallocate(%d, %ld, %ld)", fd, at, length); break;
    }
}

static void duplicates(void) {
    int fd = descriptor(), to = 20 + pick(3), r;
    switch (pick(5)) {
    case 0: keep(r = dup(fd)); result(r, "dup(%d)", fd); break;
    case 1: forget(to); r = dup2(fd, to); if (r < 0) close(to); keep(r); result(r, "dup2(%d, %d)", fd, to); break;
    case 2: keep(r = fcntl(fd, F_DUPFD_CLOEXEC, to)); result(r, "F_DUPFD_CLOEXEC(%d, %d)", fd, to); break;
    case 3: r = syscall(SYS_close_range, 21, 30, 0); for (int i = 21; i <= 30; i++) forget(i); result(r, "close_range"); break;
    default: r = fcntl(fd, F_GETFL); result(r < 0 ? -1 : r & ~0100000, "F_GETFL(%d)", fd);
    }
}

/* Record locks belong to the process, and any close of the file in it releases them. */
static void locks(void) {
    const char *name = good_path();
    struct flock lock = {seldom(2) ? F_RDLCK : F_WRLCK, SEEK_SET, pick(10), 5, 0};
    int fd = descriptor();
    if (seldom(2)) { SKIP(fd); result(fcntl(fd, F_SETLK, &lock), "F_SETLK(%d, %d)", fd, lock.l_type); return; }
    if (!ours(AT_FDCWD, name, 1)) { record("elsewhere"); return; }
    pid_t child = fork();
    if (child == 0) {
        /* Without opening the file in the process that may hold the lock. */
        int own = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        lock.l_type = F_WRLCK; lock.l_start = lock.l_len = 0;
        int r = own < 0 ? -1 : fcntl(own, F_GETLK, &lock);
        result(r, "F_GETLK(%s) type %d from %ld", named(name), lock.l_type, (long)lock.l_start);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

void step_descriptors(unsigned which) {
    char text[PATH_MAX];
    const char *name;
    struct stat st;
    int fd = descriptor();
    switch (which) {
    case 0: case 1: forget(fd); result(close(fd), "close(%d)", fd); break;
    case 2: list(); break;
    case 3: case 4: case 5: case 6: case 7: case 8: reads_and_writes(which - 3); break;
    case 9: duplicates(); break;
    case 10: locks(); break;
    case 11: case 12: name = path(); result(chdir(name), "chdir(%s)", named(name)); break;
    case 13: result(fchdir(fd), "fchdir(%d)", fd); break;
    case 14: case 15: {
        unsigned room = (unsigned[]){PATH_MAX, PATH_MAX, PATH_MAX, 8, 1, 0}[pick(6)];
        long n = syscall(SYS_getcwd, text, (size_t)room);
        if (n > 0 && !strncmp(text, "/proc/", 6)) n = 1;
        /* The host's name of a file outside of the root. */
        if (n > 0 && text[0] == '(') n = 1, strcpy(text, "(unreachable)");
        result(n, "getcwd(%u) \"%s\"", room, n > 0 ? shown(text) : "");
        break;
    }
    case 16: if (fstat(fd, &st)) result(-1, "fstat(%d)", fd); else if (ours_fd(fd)) facts("fstat", &st); else record("fstat(%d): kind %o", fd, st.st_mode & S_IFMT); break;
    case 17: result(chdir(now.inside ? "/" : now.work), "chdir home"); break;
    }
}
