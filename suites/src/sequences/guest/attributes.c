/* Modes, times, owners, extended attributes, lengths. */
#include "state.h"
#include <sys/xattr.h>

#define SKIP(dir, name, follow) do { if (!ours(dir, name, follow)) { record("elsewhere"); return; } } while (0)

static unsigned mode(void) {
    static const unsigned MODES[] = {0644, 0600, 0755, 0700, 0, 0444, 0111, 0555, 0777, 04755, 02755, 01777, 06711, 02644, 0200, 0500};
    return MODES[pick(16)];
}

static void modes(unsigned which) {
    const char *name = path();
    int dir = directory(), fd = descriptor(), flags = (int[]){0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x400}[pick(5)];
    unsigned bits = mode();
    switch (which) {
    case 0: SKIP(AT_FDCWD, name, 1); result(chmod(name, bits), "chmod(%s, %o)", named(name), bits); break;
    case 1: if (!ours_fd(fd)) { record("elsewhere"); return; } result(fchmod(fd, bits), "fchmod(%d, %o)", fd, bits); break;
    case 2: SKIP(dir, name, 1); result(syscall(SYS_fchmodat, dir, name, bits, 0x100), "fchmodat(%d, %s, %o)", dir, named(name), bits); break;
    default: SKIP(dir, name, !(flags & AT_SYMLINK_NOFOLLOW)); result(syscall(SYS_fchmodat2, dir, name, bits, flags), "fchmodat2(%d, %s, %o, %x)", dir, named(name), bits, flags);
    }
}

static void owners(unsigned which) {
    static const unsigned IDS_OF[] = {0, 0, 1234, 1235, 5, 6, 70000, -1u, -1u};
    const char *name = path();
    int dir = directory(), fd = descriptor(), flags = (int[]){0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW}[pick(4)];
    unsigned uid = IDS_OF[pick(9)], gid = IDS_OF[pick(9)];
    switch (which) {
    case 0: SKIP(AT_FDCWD, name, 1); result(chown(name, uid, gid), "chown(%s, %d, %d)", named(name), uid, gid); break;
    case 1: SKIP(AT_FDCWD, name, 0); result(lchown(name, uid, gid), "lchown(%s, %d, %d)", named(name), uid, gid); break;
    case 2: if (!ours_fd(fd)) { record("elsewhere"); return; } result(fchown(fd, uid, gid), "fchown(%d, %d, %d)", fd, uid, gid); break;
    default: SKIP(dir, name, !(flags & AT_SYMLINK_NOFOLLOW)); result(fchownat(dir, name, uid, gid, flags), "fchownat(%d, %s, %d, %d, %x)", dir, named(name), uid, gid, flags);
    }
}

static void times(void) {
    static const long NANO[] = {0, 5, UTIME_NOW, UTIME_OMIT, 999999999, 1000000000, UTIME_OMIT};
    const char *name = path();
    int dir = directory(), flags = (int[]){0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1}[pick(5)], fd = descriptor();
    struct timespec both[2] = {{1000 + pick(9), NANO[pick(7)]}, {2000 + pick(9), NANO[pick(7)]}}, *given = seldom(5) ? 0 : both;
    if (seldom(6)) { if (!ours_fd(fd)) { record("elsewhere"); return; } result(futimens(fd, given), "futimens(%d, %ld %ld)", fd, both[0].tv_nsec, both[1].tv_nsec); return; }
    SKIP(dir, name, !(flags & AT_SYMLINK_NOFOLLOW));
    result(utimensat(dir, name, given, flags), "utimensat(%d, %s, %s%ld %ld, %x)", dir, named(name), given ? "" : "now ", both[0].tv_nsec, both[1].tv_nsec, flags);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void extended(unsigned which) {
    static const char *const ATTRIBUTE[] = {"user.x", "user.x", "user.yy", "user.", "x", "other.x", "", "user.coracle", "trusted.x", "security.capability"};
    /* Revision 2, CAP_NET_RAW. */
    static const char capability[20] = "\0\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const char *name = path(), *which_one = ATTRIBUTE[pick(now.ids ? 10 : 8)];
    int self = pick(2), fd = descriptor();
    char value[300] = {0};
    long n;
    if (which_one[0] == 's' && which == 0) {
        SKIP(AT_FDCWD, name, !self);
        n = (self ? lsetxattr : setxattr)(name, which_one, capability, 20, 0);
        result(n, "setxattr(%s, %s, %d)", named(name), which_one, self);
        return;
    }
    switch (which) {
    case 0: {
        int flags = (int[]){0, 0, XATTR_CREATE, XATTR_REPLACE, 4}[pick(5)], size = pick(12);
        memset(value, 'v', size);
        SKIP(AT_FDCWD, name, !self);
        if (seldom(4)) { if (!ours_fd(fd)) { record("elsewhere"); return; } result(fsetxattr(fd, which_one, value, size, flags), "fsetxattr(%d, %s, %d, %d)", fd, which_one, size, flags); return; }
        result((self ? lsetxattr : setxattr)(name, which_one, value, size, flags), "%ssetxattr(%s, %s, %d, %d)", self ? "l" : "", named(name), which_one, size, flags);
        break;
    }
    case 1: {
        int size = (int[]){200, 200, 0, 3}[pick(4)];
        if (!ours(AT_FDCWD, name, !self)) { record("elsewhere"); return; }
        n = (self ? lgetxattr : getxattr)(name, which_one, value, size);
        result(n, "%sgetxattr(%s, %s, %d) \"%s\"", self ? "l" : "", named(name), which_one, size, which_one[0] == 'u' ? shown(value) : "");
        break;
    }
    case 2: SKIP(AT_FDCWD, name, !self); result((self ? lremovexattr : removexattr)(name, which_one), "%sremovexattr(%s, %s)", self ? "l" : "", named(name), which_one); break;
    default: {
        char *names[20];
        char line[400] = "";
        int count = 0;
        if (!ours(AT_FDCWD, name, !self)) { record("elsewhere"); return; }
        n = (self ? llistxattr : listxattr)(name, value, sizeof value - 1);
        int error = errno;
        for (char *at = value; at < value + n && count < 20; at += strlen(at) + 1)
            if (!strncmp(at, "user.", 5) || now.ids) names[count++] = at;
        qsort(names, count, sizeof *names, by_text);
        for (int i = 0; i < count; i++) strcat(strcat(line, " "), names[i]);
        errno = error;
        result(n < 0 ? -1 : 0, "%slistxattr(%s)%s", self ? "l" : "", named(name), line);
    }
    }
}

void step_attributes(unsigned which) {
    const char *name;
    switch (which) {
    case 0: case 1: case 2: modes(pick(4)); break;
    case 3: times(); break;
    case 4: case 5: case 6: case 7: extended(which - 4); break;
    case 8: { unsigned mask = mode() & 0777; result(umask(mask), "umask(%o)", mask); break; }
    case 9: name = path(); SKIP(AT_FDCWD, name, 1); result(truncate(name, pick(40)), "truncate(%s)", named(name)); break;
    case 10: case 11: if (now.ids) owners(pick(4)); else modes(pick(4)); break;
    }
}
