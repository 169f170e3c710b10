/* Calls of i386's by a 64-bit program. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int call(int number, const void *one, const void *two, long three) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(one), "c"(two), "d"(three) : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

int main(void) {
    char *low = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    strcpy(low, "/host/none");
    printf("open %d access %d stat64 %d mkdir %d execve %d\n", call(5, low, 0, 0), call(33, low, 0, 0), call(195, low, low + 4096, 0),
        call(39, low, 0, 0), call(11, low, 0, 0));
    strcpy(low, "/inside/file");
    int file = call(5, low, 0, 0);
    printf("open %d access %d stat64 %d", file >= 0, call(33, low, 0, 0), call(195, low, low + 4096, 0));
    printf(" size %d", *(int *)(low + 4096 + 44));
    int got = call(3, (void *)(long)file, low, 4);
    printf(" read %d %.4s\n", got, low);
    printf("getpid %d write %d\n", call(20, 0, 0, 0) == getpid(), call(4, (void *)1, low, 0));
    strcpy(low, "/inside");
    printf("chdir %d\n", call(12, low, 0, 0));
    int length = call(183, low, (void *)4096, 0);
    printf("getcwd %d %s\n", length, low);
    return 0;
}
