/* Keeps changes within the sequence's own directories: opens a name by O_PATH and reads the
 * kernel's name of it. */
#include "state.h"

static int below(const char *name, const char *dir) {
    unsigned length = strlen(dir);
    return !strncmp(name, dir, length) && (name[length] == '/' || !name[length] || name[length] == ' ');
}

static int leads(int fd) {
    char link[40], text[PATH_MAX + 1];
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, text, PATH_MAX);
    /* Too deep for a name: only the sequence's own directories are. */
    if (n < 0) return errno == ENAMETOOLONG;
    text[n] = 0;
    return below(text, now.work) || below(text, now.bound) || strchr(text, ':');
}

int ours_fd(int fd) { return now.inside || fcntl(fd, F_GETFD) < 0 || leads(fd); }

static int check(int dir, const char *name, int follow, int depth) {
    char parent[16384], target[PATH_MAX + 1];
    if (depth > 6) return 1;
    strcpy(parent, name);
    unsigned length = strlen(parent);
    while (length && parent[length - 1] == '/') parent[--length] = 0, follow = 1;
    char *last = strrchr(parent, '/');
    const char *end = last ? last + 1 : parent;
    int whole = !*end || !strcmp(end, ".") || !strcmp(end, "..");
    int fd = openat(dir, whole ? name : !last ? "." : (*last = 0, last == parent ? "/" : parent), O_PATH | O_CLOEXEC | (whole ? 0 : O_DIRECTORY));
    if (fd < 0) return 1;
    int good = leads(fd);
    if (!whole && good) {
        int file = openat(fd, end, O_PATH | O_CLOEXEC | O_NOFOLLOW);
        if (file >= 0) {
            struct stat st;
            ssize_t n = -1;
            if (follow && !fstat(file, &st) && S_ISLNK(st.st_mode)) n = readlinkat(fd, end, target, PATH_MAX);
            close(file);
            if (n >= 0) {
                target[n] = 0;
                file = openat(fd, end, O_PATH | O_CLOEXEC);
                if (file >= 0) { good = leads(file); close(file); } else good = check(fd, target, 1, depth + 1);
            }
        }
    }
    /* The magic links of /proc are not in the sequence's directories, but their targets may be. */
    else if (!whole && follow) {
        int file = openat(fd, end, O_PATH | O_CLOEXEC);
        if (file >= 0) { good = leads(file); close(file); }
    }
    close(fd);
    return good;
}

int ours(int dir, const char *name, int follow) {
    /* Unmapped memory, or a string that does not end before it: the call fails. */
    if ((uintptr_t)name < 65536 || (uintptr_t)name >= 0x7fffffff0000) return 1;
    if ((uintptr_t)name % 4096 == 4093 && !memcmp(name, "abc", 3)) return 1;
    if (now.inside) return dir == AT_FDCWD;
    return *name ? check(dir, name, follow, 0) : dir == AT_FDCWD || ours_fd(dir);
}
