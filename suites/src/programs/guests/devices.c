// Devices, memory that processes share and numbers for ioctl, which only the kernel may handle. The
// same output natively and inside.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long result) {
    if (result < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, result);
}

static int device(const char *path, int flags) {
    struct stat facts;
    int file = open(path, flags | O_CLOEXEC);
    printf("%s: %s", path, file < 0 ? strerror(errno) : "open");
    if (file >= 0 && fstat(file, &facts) == 0) printf(" %o %u:%u", facts.st_mode & S_IFMT, major(facts.st_rdev), minor(facts.st_rdev));
    puts("");
    return file;
}

static void memory_of(const char *what, int file) {
    unsigned char *here = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (here == MAP_FAILED) { say(what, -1); return; }
    here[5] = 1;
    pid_t child = fork();
    if (child == 0) { here[5] += 41; _exit(0); }
    waitpid(child, 0, 0);
    printf("%s: shared %d\n", what, here[5]);
    munmap(here, 1 << 20);
}

int main(void) {
    int zero = device("/dev/zero", O_RDWR), null = device("/dev/null", O_RDWR), full = device("/dev/full", O_WRONLY);
    memory_of("mapped /dev/zero", zero);
    say("write to full", write(full, "x", 1));
    say("nothing's size in blocks", ioctl(null, BLKGETSIZE64, &(uint64_t){0}));

    // A bound device: the kernel fills the structure behind the pointer.
    int tun = device("/dev/net/tun", O_RDWR);
    unsigned features = 0;
    say("features", ioctl(tun, TUNGETFEATURES, &features));
    printf("features %x\n", features);
    struct ifreq wish = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    say("an interface", ioctl(tun, TUNSETIFF, &wish));
    say("a bad pointer", ioctl(tun, TUNGETFEATURES, (void *)8));
    say("an unknown number", ioctl(tun, _IOWR('C', 0x42, char[4096]), &wish));
    say("mapping it", mmap(0, 4096, PROT_READ, MAP_SHARED, tun, 0) == MAP_FAILED ? -1 : 0);
    int fuse = device("/dev/fuse", O_RDWR);
    uint32_t other = (uint32_t)fuse;
    say("a clone", ioctl(fuse, FUSE_DEV_IOC_CLONE, &other));
    say("reading without a mount", read(fuse, &wish, sizeof wish));

    int anonymous = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    say("memfd", ftruncate(anonymous, 1 << 20));
    memory_of("mapped memfd", anonymous);
    say("seals", fcntl(anonymous, F_ADD_SEALS, F_SEAL_SHRINK));
    say("sealed", ftruncate(anonymous, 0));
    char path[64];
    snprintf(path, sizeof path, "/devices-%d", getpid());
    int shared = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    say("shm", ftruncate(shared, 1 << 20));
    memory_of("mapped shm", shared);
    say("unlink", shm_unlink(path));
    unsigned char *locked = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    say("locked", mlock(locked, 1 << 16));
    // As graphics libraries do: a reservation at a fixed address, pages mapped into it, hints, and
    // no sharing with children.
    void *wish_at = (void *)0x200000000;
    void *reserved = mmap(wish_at, 1UL << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    printf("reserved %d\n", reserved == wish_at);
    void *put = mmap((char *)wish_at + (1 << 21), 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, anonymous, 0);
    printf("put %d %d\n", put == (char *)wish_at + (1 << 21), ((unsigned char *)put)[5]);
    say("not for children", madvise(put, 1 << 20, MADV_DONTFORK));
    int event = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t number = 0;
    say("event", read(event, &number, sizeof number));
    printf("event %lu\n", (unsigned long)number);
    return 0;
}
