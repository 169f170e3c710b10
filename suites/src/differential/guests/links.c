/* Links, names that come and go, renames. */
#include "step.h"

#define RENAME2(a, b, flags) DO(syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, flags))

int main(void) {
    start("links");
    mkdir("d", 0755); mkdir("e", 0755); make("f", "1"); make("d/x", "2"); symlink("f", "l"); symlink("none", "dangling"); symlink("d", "ld");
    DO(link("f", "f2")); STAT("f"); STAT("f2");
    DO(link("f", "f2"));
    DO(link("none", "n"));
    DO(link("d", "dl"));
    DO(link("l", "l2")); LSTAT("l2");
    DO(linkat(AT_FDCWD, "l", AT_FDCWD, "l3", AT_SYMLINK_FOLLOW)); LSTAT("l3");
    DO(linkat(AT_FDCWD, "l", AT_FDCWD, "l4", 0x10));
    DO(link("f", "d/")); DO(link("f/", "n")); DO(link("f", "n/")); DO(link("dangling", "dl"));
    DO(link("/etc/passwd", "n"));
    DO(symlink("", "empty"));
    DO(symlink("t", "f"));
    DO(symlink("t", "n/"));
    DO(symlink("t", "none/x"));
    DO(symlink("/an/absolute/../target/", "s"));
    show_link("s"); show_link("f"); show_link("none"); show_link("ld/"); show_link("d");
    char text[10];
    DO(readlink("s", text, 3));
    DO(readlink("s", text, -1));
    puts("-- rename");
    DO(rename("f", "f2")); STAT("f");
    DO(rename("f2", "moved")); STAT("moved"); LSTAT("f2");
    DO(rename("moved", "d")); DO(rename("d", "moved")); DO(rename("d", "e")); DO(rename("e", "e/sub")); DO(rename("none", "x"));
    mkdir("full", 0755); make("full/x", "");
    DO(rename("full", "e")); DO(rename("e", "full")); DO(rename("e/.", "y")); DO(rename("e", "..")); DO(rename("moved/", "y"));
    DO(rename("moved", "y/")); DO(rename("ld", "ld2")); LSTAT("ld2"); DO(rename("ld2/", "y")); DO(rename("dangling", "still"));
    show_link("still");
    DO(rename("e", "/proc/x")); DO(rename("moved", "/dev/null/x")); DO(rename("moved", "/proc/self/x"));
    make("one", "1"); make("two", "22");
    RENAME2("one", "two", RENAME_NOREPLACE);
    RENAME2("one", "two", RENAME_EXCHANGE); STAT("one"); STAT("two");
    RENAME2("one", "none", RENAME_EXCHANGE);
    RENAME2("one", "three", RENAME_NOREPLACE);
    RENAME2("three", "two", RENAME_NOREPLACE | RENAME_EXCHANGE);
    RENAME2("three", "two", 0x80);
    DO(renameat(99, "x", AT_FDCWD, "y"));
    puts("-- image");
    DO(link("/shared/one", "/shared/three")); STAT("/shared/one"); STAT("/shared/three");
    OK(make("/shared/three", "changed"));
    STAT("/shared/three");
    DO(rename("/shared/two", "/shared/four")); STAT("/shared/four"); LSTAT("/shared/two");
    DO(unlink("/shared/four"));
    DO(unlink("/shared/none"));
    puts("-- remove");
    DO(unlink("d")); DO(rmdir("moved")); DO(rmdir("full")); DO(rmdir("full/.")); DO(rmdir("full/..")); DO(unlink("moved/")); DO(unlink(""));
    DO(rmdir("")); DO(unlink("still")); DO(rmdir("l")); DO(unlink("l")); DO(unlink("full/x")); DO(rmdir("full/")); DO(rmdir("/work"));
    DO(rmdir("/")); DO(unlink("/")); DO(rmdir("/proc")); DO(unlink("/proc/self/stat")); DO(mkdir("/proc/x", 0755)); DO(mkdir("", 0));
    DO(mkdir("f/x", 0)); DO(mkdir("l3", 0)); DO(mkdir("m", 07777)); STAT("m"); DO(mkdir("n/", 0700)); STAT("n");
    DO(mknod("node", S_IFREG | 0640, 0)); STAT("node");
    DO(mknod("fifo", S_IFIFO | 0640, 0)); STAT("fifo");
    DO(mknod("dir", S_IFDIR | 0640, 0));
    DO(mknod("node", S_IFREG, 0));
    puts("-- many");
    char name[40];
    for (int i = 0; i < 300; i++) { sprintf(name, "many%d", i); if (link("three", name)) break; }
    STAT("three");
    for (int i = 0; i < 300; i++) { sprintf(name, "many%d", i); unlink(name); }
    STAT("three");
    return 0;
}
