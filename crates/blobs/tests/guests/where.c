/* Addresses of: program, library, stack, heap, a mapping. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int here;
    printf("%p %p %p %p %p\n", (void *)main, (void *)malloc, (void *)&here, sbrk(0), mmap(0, 4096, 1, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
