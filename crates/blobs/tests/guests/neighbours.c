/* What a program can do to the memory that it does not know of, which starts at its first argument; and around it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

static int bad;
static void alive(int line) {
    struct stat stat_of;
    if (stat("/etc/passwd", &stat_of) != 0) { bad = 1; printf("line %d: not well\n", line); }
}
#define IS(what) do { errno = 0; if (!(what)) { bad = 1; printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); } alive(__LINE__); } while (0)
#define FAILS(what, error) IS((long)(what) == -1 && errno == (error))
enum { KEPT = MAP_PRIVATE | MAP_ANONYMOUS };

int main(int argc, char **argv) {
    char *at = (char *)strtoul(argv[1], 0, 0), *end = at + 0x80000000ul;
    if (argc > 2) printf("heap %p\n", sbrk(0));
    IS(munmap(at, end - at) == 0);
    IS(munmap(at + 0x20000000, 4096) == 0);
    IS(munmap(at - 0x100000, 0x200000) == 0);
    FAILS(munmap(at + 1, 4096), EINVAL);
    FAILS(munmap(at, 0), EINVAL);
    FAILS(mmap(at, 4096, PROT_READ, KEPT | MAP_FIXED, -1, 0), ENOMEM);
    FAILS(mmap(at, 4096, PROT_READ, KEPT | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    char *wished = mmap(at + 0x100000, 4096, PROT_READ | PROT_WRITE, KEPT, -1, 0);
    IS(wished != MAP_FAILED && (wished < at || wished >= end));
    FAILS(mprotect(at, 4096, PROT_NONE), ENOMEM);
    FAILS(mprotect(at + 0x20000000, 1 << 20, PROT_READ), ENOMEM);
    FAILS(madvise(at + 0x20000000, 1 << 20, MADV_DONTNEED), ENOMEM);
    FAILS(mremap(at, 4096, 8192, MREMAP_MAYMOVE), EFAULT);
    FAILS(mremap(wished, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, at), EINVAL);
    /* What is next to it is the program's. */
    IS(mmap(at - 0x2000, 0x2000, PROT_READ | PROT_WRITE, KEPT | MAP_FIXED, -1, 0) == at - 0x2000);
    IS(mmap(end, 0x2000, PROT_READ | PROT_WRITE, KEPT | MAP_FIXED, -1, 0) == end);
    at[-1] = end[0] = 7;
    IS(munmap(at - 0x2000, end - at + 0x4000) == 0);
    unsigned char there;
    FAILS(mincore(at - 0x1000, 4096, &there), ENOMEM);
    FAILS(mincore(end, 4096, &there), ENOMEM);
    int segment = shmget(IPC_PRIVATE, 4096, 0600);
    if (segment >= 0) {
        FAILS(shmat(segment, at, 0), EINVAL);
        shmctl(segment, IPC_RMID, 0);
    }
    char *large = mmap(0, 1ul << 40, PROT_NONE, KEPT | MAP_NORESERVE, -1, 0);
    if (large != MAP_FAILED) IS(munmap(large, 1ul << 40) == 0);
    char *heap = sbrk(0);
    IS(sbrk(1 << 20) == heap);
    heap[1 << 19] = 1;
    IS(sbrk(-(1 << 20)) == heap + (1 << 20));
    puts(bad ? "bad" : "good");
    return bad;
}
