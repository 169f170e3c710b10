/* Calls that name files. */
#include "state.h"
#include <linux/openat2.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/un.h>

static const int FOLLOW[] = {0, 0, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, 0x8000};
#define FLAGS FOLLOW[pick(8)]
#define SKIP(dir, name, follow) do { if (!ours(dir, name, follow)) { record("elsewhere"); return; } } while (0)

static unsigned mode(void) {
    static const unsigned MODES[] = {0644, 0600, 0755, 0700, 0, 0444, 0111, 0555, 0777, 04755, 02755, 01777, 06711, 0666, 0200, 0400};
    return MODES[pick(16)];
}

static int open_flags(void) {
    static const int ACCESS[] = {O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR}, MORE[] = {O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_APPEND, O_CREAT | O_EXCL, O_TMPFILE, O_CLOEXEC, O_NOATIME};
    int flags = ACCESS[pick(4)] | O_NONBLOCK | O_NOCTTY;
    while (pick(5) < 2) flags |= MORE[pick(12)];
    return flags;
}

static const char *flags_text(int flags) {
    static char text[200];
    static const struct { int flag; const char *name; } ALL[] = {{O_CREAT, "CREAT"}, {O_EXCL, "EXCL"}, {O_TRUNC, "TRUNC"}, {O_NOFOLLOW, "NOFOLLOW"}, {O_PATH, "PATH"}, {O_APPEND, "APPEND"}, {O_CLOEXEC, "CLOEXEC"}, {O_NOATIME, "NOATIME"}};
    strcpy(text, (flags & 3) == 0 ? "RDONLY" : (flags & 3) == 1 ? "WRONLY" : "RDWR");
    if ((flags & O_TMPFILE) == O_TMPFILE) strcat(text, "|TMPFILE"); else if (flags & O_DIRECTORY) strcat(text, "|DIRECTORY");
    for (unsigned i = 0; i < sizeof ALL / sizeof *ALL; i++) if (flags & ALL[i].flag) { strcat(text, "|"); strcat(text, ALL[i].name); }
    return text;
}

/* True if an open with these flags changes anything. */
static int changes(int flags) { return !(flags & O_PATH) && (flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)); }

static void opens(unsigned which) {
    const char *name = path();
    int dir = which ? directory() : AT_FDCWD, flags = open_flags(), fd;
    unsigned bits = mode();
    if (changes(flags)) SKIP(dir, name, !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL));
    if (which == 0) {
        fd = open(name, flags, bits);
        result(fd, "open(%s, %s, %o)", named(name), flags_text(flags), bits);
    } else if (which == 1) {
        fd = openat(dir, name, flags, bits);
        result(fd, "openat(%d, %s, %s, %o)", dir, named(name), flags_text(flags), bits);
    } else {
        static const int RESOLVE[] = {0, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH | RESOLVE_IN_ROOT, 0x1000};
        struct open_how how = {flags, flags & (O_CREAT | __O_TMPFILE) ? bits : 0, RESOLVE[pick(8)]};
        unsigned size = seldom(30) ? 8 : sizeof how;
        /* Names are looked up below another root. */
        if (changes(flags) && how.resolve & RESOLVE_IN_ROOT && !ours(dir, ".", 1)) { record("elsewhere"); return; }
        fd = syscall(SYS_openat2, dir, name, &how, (size_t)size);
        result(fd, "openat2(%d, %s, %s, %o, %llx, %u)", dir, named(name), flags_text(flags), bits, how.resolve, size);
    }
    keep(fd);
}

static void makes(unsigned which) {
    const char *name = path();
    int dir = directory();
    unsigned bits = mode();
    SKIP(dir, name, 0);
    if (which == 0) result(mkdirat(dir, name, bits), "mkdirat(%d, %s, %o)", dir, named(name), bits);
    else if (which == 1) { SKIP(AT_FDCWD, name, 0); result(mkdir(name, bits), "mkdir(%s, %o)", named(name), bits); }
    else {
        static const unsigned KIND[] = {S_IFIFO, S_IFREG, 0, S_IFSOCK, S_IFDIR, S_IFCHR, S_IFBLK};
        unsigned kind = KIND[pick(now.ids ? 7 : 5)];
        result(mknodat(dir, name, kind | bits, makedev(1, 3)), "mknodat(%d, %s, %o)", dir, named(name), kind | bits);
    }
}

static void removes(unsigned which) {
    const char *name = path();
    int dir = which == 2 ? directory() : AT_FDCWD;
    SKIP(dir, name, 0);
    if (which == 0) result(unlink(name), "unlink(%s)", named(name));
    else if (which == 1) result(rmdir(name), "rmdir(%s)", named(name));
    else { int flags = pick(3) ? AT_REMOVEDIR : 0; if (seldom(20)) flags = 4; result(unlinkat(dir, name, flags), "unlinkat(%d, %s, %x)", dir, named(name), flags); }
}

static void renames(unsigned which) {
    const char *from = path(), *to = path();
    int dir = directory(), other = directory();
    if (which == 0) dir = other = AT_FDCWD;
    SKIP(dir, from, 0);
    SKIP(other, to, 0);
    if (which == 0) { result(rename(from, to), "rename(%s, %s)", named(from), named(to)); return; }
    static const unsigned FLAG[] = {0, 0, 1, 2, 3, 4, 8};
    unsigned flags = FLAG[pick(now.ids ? 7 : 5)];
    result(syscall(SYS_renameat2, dir, from, other, to, flags), "renameat2(%d, %s, %d, %s, %x)", dir, named(from), other, named(to), flags);
}

static void links(unsigned which) {
    const char *from = path(), *to = path();
    int dir = directory(), other = directory();
    if (which == 2) {
        SKIP(other, to, 0);
        result(symlinkat(from, other, to), "symlinkat(%s, %d, %s)", named(from), other, named(to));
        return;
    }
    if (which == 0) dir = other = AT_FDCWD;
    int flags = which ? (int[]){0, 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, 0x800}[pick(5)] : 0;
    SKIP(dir, from, flags & AT_SYMLINK_FOLLOW);
    SKIP(other, to, 0);
    if (which == 0) result(link(from, to), "link(%s, %s)", named(from), named(to));
    else result(linkat(dir, from, other, to, flags), "linkat(%d, %s, %d, %s, %x)", dir, named(from), other, named(to), flags);
}

static void reads(unsigned which) {
    char text[PATH_MAX + 1];
    const char *name = path();
    int dir = which ? directory() : AT_FDCWD;
    unsigned room = (int[]){PATH_MAX, PATH_MAX, PATH_MAX, 5, 1, 0}[pick(6)];
    ssize_t n = which ? readlinkat(dir, name, text, room) : readlink(name, text, room);
    int error = errno;
    text[n > 0 ? n : 0] = 0;
    errno = error;
    /* Pipes and the like have numbers; process ids differ. */
    if (n > 0 && (strchr(text, ':') || strspn(text, "0123456789") == strlen(text))) n = 1, strcpy(text, "...");
    /* A file that never had a name is identified by its inode number. */
    if (n > 0 && (strstr(text, "/task/") || strstr(text, "/#"))) n = 1, strcpy(text, "...");
    result(n, "readlinkat(%d, %s, %u) \"%s\"", dir, named(name), room, shown(text));
}

/* Outside of the sequence's directories times, sizes and numbers of links are not recorded. */
static void stats(unsigned which) {
    struct stat st;
    struct statx sx;
    const char *name = path();
    int dir = which < 2 ? AT_FDCWD : directory(), flags = which < 2 ? which * AT_SYMLINK_NOFOLLOW : FLAGS;
    int near = ours(dir, name, !(flags & AT_SYMLINK_NOFOLLOW));
    char what[1500];
    if (which == 3) {
        int r = statx(dir, name, flags, STATX_BASIC_STATS, &sx);
        snprintf(what, sizeof what, "statx(%d, %s, %x)", dir, named(name), flags);
        if (r) { result(r, "%s", what); return; }
        memset(&st, 0, sizeof st);
        st.st_mode = sx.stx_mode; st.st_uid = sx.stx_uid; st.st_gid = sx.stx_gid; st.st_nlink = sx.stx_nlink; st.st_size = sx.stx_size;
        st.st_rdev = makedev(sx.stx_rdev_major, sx.stx_rdev_minor); st.st_mtim.tv_sec = sx.stx_mtime.tv_sec; st.st_mtim.tv_nsec = sx.stx_mtime.tv_nsec;
    } else {
        int r = which == 0 ? stat(name, &st) : which == 1 ? lstat(name, &st) : fstatat(dir, name, &st, flags);
        snprintf(what, sizeof what, "fstatat(%d, %s, %x)", dir, named(name), flags);
        if (r) { result(r, "%s", what); return; }
    }
    if (near) facts(what, &st); else record("%s: kind %o", what, st.st_mode & S_IFMT);
}

static void accesses(unsigned which) {
    const char *name = path();
    int dir = directory(), bits = pick(8), flags = (int[]){0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x10000}[pick(5)];
    if (seldom(30)) bits = 8;
    if (which == 0) result(access(name, bits), "access(%s, %d)", named(name), bits);
    else if (which == 1) result(syscall(SYS_faccessat, dir, name, bits, 0xffff), "faccessat(%d, %s, %d)", dir, named(name), bits);
    else result(syscall(SYS_faccessat2, dir, name, bits, flags), "faccessat2(%d, %s, %d, %x)", dir, named(name), bits, flags);
}

/* A socket's name, as the kernel shows it. */
static void socket_names(void) {
    struct sockaddr_un address = {AF_UNIX}, seen = {0};
    const char *name = good_path();
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + strnlen(name, 108), room = sizeof seen;
    if (strlen(name) > 108) { record("too long for a socket"); return; }
    memcpy(address.sun_path, name, length - 2);
    if (length < sizeof address && seldom(2)) length++;
    /* An empty name is chosen by the kernel, or is an abstract one. */
    if (!*name) { record("a socket without a name"); return; }
    SKIP(AT_FDCWD, name, 0);
    int a = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), b = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = bind(a, (void *)&address, length);
    result(r, "bind(%s)", named(name));
    if (!r) {
        r = getsockname(a, (void *)&seen, &room);
        result(r, "getsockname %u \"%s\"", room, shown(seen.sun_path));
        if (seldom(2)) listen(a, 3);
    }
    memset(&seen, 0, room = sizeof seen);
    result(connect(b, (void *)&address, length), "connect(%s)", named(name));
    r = getpeername(b, (void *)&seen, &room);
    result(r, "getpeername %u \"%s\"", r ? 0 : room, shown(seen.sun_path));
    close(a);
    close(b);
}

void step_names(unsigned which) {
    struct statfs fs;
    const char *name;
    switch (which) {
    case 0: case 1: case 2: opens(which); break;
    case 3: case 4: case 5: makes(which - 3); break;
    case 6: case 7: case 8: removes(which - 6); break;
    case 9: case 10: renames(which - 9); break;
    case 11: case 12: case 13: links(which - 11); break;
    case 14: case 15: stats(which - 14 + pick(2) * 2); break;
    case 16: reads(pick(2)); break;
    case 17: accesses(pick(3)); break;
    case 18: name = path(); result(statfs(name, &fs), "statfs(%s)", named(name)); break;
    case 19: socket_names(); break;
    }
}
