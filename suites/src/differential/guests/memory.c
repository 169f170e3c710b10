/* Memory: mappings, heap, protections, registers around calls. */
#include "step.h"

static volatile int depth;
static int recurse(int n) { char room[4096]; memset(room, n, sizeof room); depth = n; return n ? recurse(n - 1) + room[5] : room[7]; }

int main(void) {
    start("memory");
    make("f", "0123456789");
    void *heap = sbrk(0);
    IS(sbrk(1 << 20) == heap);
    IS((char *)sbrk(0) == (char *)heap + (1 << 20));
    int grows = 0;
    IS(sbrk(512 << 20) != (void *)-1 && (grows = 1));
    if (grows) sbrk(-(512 << 20));
    void *more = sbrk(12288);
    /* If the heap cannot grow, which the lines above show. */
    if (more == (void *)-1) more = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *page = (char *)(((uintptr_t)more + 4095) & ~4095ul);
    *page = 1;
    DO(mprotect(page, 4096, PROT_READ));
    DO(mprotect(page, 4096, PROT_READ | PROT_WRITE));
    DO(madvise(page, 4096, MADV_DONTNEED));
    IS(*page == 0);
    DO(munmap(page, 4096));
    IS(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    int fd = open("f", O_RDONLY);
    char *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    TEXT("mapped", m);
    IS(m[10] == 0);
    DO(mprotect(m, 4096, PROT_READ | PROT_EXEC));
    munmap(m, 4096);
    IS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    DO(errno);
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    IS(code != MAP_FAILED);
    /* mov $21, %eax; syscall; ret: access(2) from code made at run time. */
    memcpy(code, "\xb8\x15\0\0\0\x0f\x05\xc3", 8);
    DO(((long (*)(const char *, long))code)("/etc/passwd", F_OK));
    DO(((long (*)(const char *, long))code)("/none", F_OK));
    DO(((long (*)(const char *, long))code)("/etc/passwd", F_OK));
    munmap(code, 4096);
    puts("-- registers");
    long r[6];
    __asm__ volatile("mov $0x1111,%%r8\n mov $0x2222,%%r9\n mov $0x3333,%%r10\n mov $0x4444,%%r12\n mov $0x5555,%%rdx\n syscall\n"
        "mov %%r8,0(%1)\n mov %%r9,8(%1)\n mov %%r10,16(%1)\n mov %%r12,24(%1)\n mov %%rdx,32(%1)\n mov %%rsi,40(%1)\n"
        : : "a"(SYS_access), "b"(r), "D"("/etc/passwd"), "S"(0L) : "rcx", "r8", "r9", "r10", "r11", "r12", "rdx", "memory");
    for (int i = 0; i < 6; i++) printf("%lx ", r[i]);
    puts("");
    __asm__ volatile("mov $0x6666,%%r8\n mov $0x7777,%%r10\n syscall\n mov %%r8,0(%1)\n mov %%rdi,8(%1)\n mov %%r10,16(%1)\n mov %%rax,24(%1)\n"
        : : "a"(SYS_open), "b"(r), "D"("/etc/passwd"), "S"(0L), "d"(0L) : "rcx", "r8", "r10", "r11", "memory");
    IS(!strcmp((char *)r[1], "/etc/passwd"));
    printf("%lx %lx %ld\n", r[0], r[2], r[3]);
    /* The red zone. */
    long before, after;
    __asm__ volatile("movq $0x1234567,-120(%%rsp)\n movq $0x89abcde,-8(%%rsp)\n syscall\n mov -120(%%rsp),%0\n mov -8(%%rsp),%1\n"
        : "=&r"(before), "=&r"(after) : "a"(SYS_access), "D"("/etc/passwd"), "S"(0L) : "rcx", "r11", "memory");
    printf("%lx %lx\n", before, after);
    double x[8] __attribute__((aligned(64))) = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] __attribute__((aligned(64)));
    __asm__ volatile("movupd (%1),%%xmm0\n movupd 16(%1),%%xmm7\n movupd 32(%1),%%xmm15\n syscall\n movupd %%xmm0,(%2)\n movupd %%xmm7,16(%2)\n movupd %%xmm15,32(%2)\n"
        : : "a"(SYS_access), "b"(x), "d"(y), "D"("/etc/passwd"), "S"(0L) : "rcx", "r11", "xmm0", "xmm7", "xmm15", "memory");
    IS(!memcmp(x, y, 48));
    puts("-- stack");
    recurse(1500);
    printf("depth %d\n", depth);
    struct rlimit l;
    getrlimit(RLIMIT_AS, &l);
    CHILD("little memory", {
        struct rlimit small = {256 << 20, 256 << 20};
        setrlimit(RLIMIT_AS, &small);
        IS(malloc(512 << 20) == 0);
        DO(access("/etc/passwd", F_OK));
        DO(mkdir("in-little", 0755));
    });
    CHILD("small stack", {
        struct rlimit small = {64 << 10, 64 << 10};
        setrlimit(RLIMIT_STACK, &small);
        char *v[] = {"x", 0};
        execv("/none", v);
        DO(access("/etc/passwd", F_OK));
    });
    /* Beyond the start of a randomised heap: at most 1 GiB above the program. */
    void *fixed = mmap((void *)0x700000000, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    IS(fixed == (void *)0x700000000);
    IS(mmap((void *)0x7fff8000, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == (void *)0x7fff8000);
    m = mmap(0, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    IS(m != MAP_FAILED);
    int mem = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    DO(ftruncate(mem, 100));
    DO(fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK));
    DO(ftruncate(mem, 10));
    show_link("/proc/self/fd/5");
    struct timespec ts;
    DO(clock_gettime(CLOCK_MONOTONIC, &ts));
    DO(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts));
    IS(time(0) > 1500000000);
    unsigned cpu;
    DO(syscall(SYS_getcpu, &cpu, 0, 0));
    char from[5] = "peek", to[5] = "";
    struct iovec lo = {to, 4}, re = {from, 4};
    DO(process_vm_readv(getpid(), &lo, 1, &re, 1, 0));
    TEXT("peeked", to);
    return 0;
}
