/* What a new program finds: printed, so that two ways of starting it can be compared. Addresses are shown relative to what they point to. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
static char zeros[20000];
static int initialised = 42;
__thread int of_thread = 7;
__attribute__((constructor)) static void built(void) { initialised++; }

int main(int argc, char **argv) {
    char comm[17] = "";
    prctl(PR_GET_NAME, comm);
    printf("comm %s\n", comm);
    for (int i = 0; i < argc; i++) printf("argv %s\n", argv[i]);
    int variables = 0;
    while (environ[variables]) variables++;
    printf("variables %d %s\n", variables, variables ? environ[0] : "-");
    int nonzero = 0;
    for (size_t i = 0; i < sizeof zeros; i++) nonzero += zeros[i] != 0;
    printf("zeros %d initialised %d thread %d\n", nonzero, initialised, of_thread);

    char **end = environ;
    while (*end) end++;
    ElfW(auxv_t) *vector = (void *)(end + 1);
    int pairs = 0;
    unsigned long shown[128] = {0};
    for (;; pairs++) {
        printf("aux %lu", (unsigned long)vector[pairs].a_type);
        unsigned long value = vector[pairs].a_un.a_val;
        switch (vector[pairs].a_type) {
        case AT_PHNUM: case AT_PHENT: case AT_PAGESZ: case AT_UID: case AT_EUID: case AT_GID: case AT_EGID: case AT_SECURE: case AT_CLKTCK: case AT_FLAGS:
            printf(" %lu", value); break;
        case AT_EXECFN: printf(" %s", (char *)value); break;
        case AT_PLATFORM: printf(" %s", (char *)value); break;
        case AT_BASE: printf(" %d", value != 0); break;
        }
        printf("\n");
        if (!vector[pairs].a_type) break;
    }
    pairs++;
    ElfW(Phdr) *headers = (void *)getauxval(AT_PHDR);
    printf("first header %u entry known %d\n", headers[0].p_type, getauxval(AT_ENTRY) != 0);

    int fd = open("/proc/self/auxv", O_RDONLY);
    long length = read(fd, shown, sizeof shown);
    close(fd);
#ifdef I386
    (void)length; /* The kernel keeps the loader's: it takes this from 64-bit programs alone. */
#else
    printf("kernel's vector %ld same %d\n", length / 16 - pairs, !memcmp(shown, vector, pairs * sizeof *vector));
#endif
    char text[65536] = "";
    fd = open("/proc/self/cmdline", O_RDONLY);
    length = read(fd, text, sizeof text);
    close(fd);
    printf("cmdline %ld:", length);
    for (long i = 0; i < length; i++) putchar(text[i] ? text[i] : '|');
    printf("\n");
    fd = open("/proc/self/environ", O_RDONLY);
    length = read(fd, text, sizeof text);
    close(fd);
    printf("environ %ld\n", length);

    char *heap = sbrk(0);
    char *more = sbrk(64 << 20);
    memset(more, 1, 64 << 20);
    printf("heap %d %d\n", heap == more, (uintptr_t)heap % 4096 == 0);
    extern char end_of_program[] __asm__("end");
#if defined __PIE__ || defined I386
    (void)end_of_program;
#else
    printf("heap is behind the program %d\n", (uintptr_t)heap - (uintptr_t)end_of_program < (1025u << 20));
#endif
    FILE *maps = fopen("/proc/self/maps", "r");
    int own = 0, labelled = 0;
    while (fgets(text, sizeof text, maps)) {
        if (strstr(text, "[heap]")) labelled = 1;
        if (strstr(text, "[stack]")) printf("stack %.4s\n", strchr(text, ' ') + 1);
        char *self = strstr(text, "/report");
        if (self) { own++; printf("map %.4s %s\n", strchr(text, ' ') + 1, strchr(strchr(text, ' ') + 6, ' ') - 8); }
    }
    printf("labelled heap %d\n", labelled);
    for (int i = 0; i < 64; i++) if (fcntl(i, F_GETFD) >= 0 && i > 2) printf("descriptor %d\n", i);
    return 0;
}
