/* Call sites, of all kinds and used often: an engine may change their code without a visible
 * effect. The code comes from files, as that of libraries. */
#include "step.h"

#define PAGE 4096
#define OFTEN 50
#define PLACE ((unsigned char *)0x7e0000000000)

typedef long call(long nr, long a, long b, long c);

/* Functions of the page: each makes the call of its arguments (the first makes access(2), without a number). */
enum { LONG, SHORT, CALL, STACK, BACK, KINDS };
static const char *const names[] = {"long", "short", "call", "stack", "back"};
#define SHUFFLE "\x48\x89\xf8\x48\x89\xf7\x48\x89\xd6\x48\x89\xca"
#define NOP9 "\x66\x0f\x1f\x84\0\0\0\0\0"

static int put(unsigned char *page, int at, const char *code, int length) { memcpy(page + at, code, length); return at + length; }

static void fill(unsigned char *page, int nr) {
    memset(page, 0x90, PAGE);
    /* mov %rsi,%rdi; mov %rdx,%rsi; mov $nr,%eax; syscall; ret */
    int at = put(page, 256, "\x48\x89\xf7\x48\x89\xd6\xb8", 7);
    memcpy(page + at, &nr, 4);
    put(page, at + 4, "\x0f\x05\xc3", 3);
    /* The shuffle ends with an instruction of three bytes. */
    at = put(page, 512, SHUFFLE, 12);
    at = put(page, at, "\x0f\x05\xc3", 3);
    put(page, at, NOP9, 9);
    /* A jump is before the call, traps are behind it. */
    at = put(page, 768, SHUFFLE, 12);
    put(page, at, "\xeb\x00\x0f\x05\xc3\xcc\xcc\xcc\xcc\xcc\xcc\xcc", 12);
    /* An instruction of five bytes that does not affect the number: mov 8(%rsp),%r9. */
    at = put(page, 1024, SHUFFLE, 12);
    put(page, at, "\x4c\x8b\x4c\x24\x08\x0f\x05\xc3", 8);
    /* The padding is before the call, and contains code in use. */
    at = put(page, 1280, NOP9, 9);
    at = put(page, at, SHUFFLE, 12);
    put(page, at, "\xeb\x00\x0f\x05\xc3", 5);
}

static void save(const char *name, int nr) {
    static unsigned char page[PAGE];
    fill(page, nr);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (write(fd, page, PAGE) != PAGE) exit(4);
    close(fd);
}

static unsigned char *load(const char *name, unsigned char *place) {
    int fd = open(name, O_RDONLY);
    unsigned char *at = mmap(place, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | (place ? MAP_FIXED : 0), fd, 0);
    if (at == MAP_FAILED) exit(5);
    close(fd);
    return at;
}

static call *kind(unsigned char *page, int which) { return (call *)(page + 256 + 256 * which); }

/* Counts correct results. */
static int use(unsigned char *page, int which, int times) {
    int right = 0;
    call *f = kind(page, which);
    for (int i = 0; i < times; i++) {
        right += f(SYS_access, (long)"/etc/passwd", F_OK, 0) == 0;
        right += f(SYS_access, (long)"/none", F_OK, 0) == -ENOENT;
        if (which != LONG) right += f(SYS_getpid, 0, 0, 0) == getpid();
        if (which != LONG) right += f(SYS_lseek, -1, 0, 0) == -EBADF;
        if (which != LONG) right += f(100000, 0, 0, 0) == -ENOSYS && f(-1, 0, 0, 0) == -ENOSYS;
    }
    return right;
}

static void all(const char *what, unsigned char *page) {
    for (int i = 0; i < KINDS; i++) printf("%s %s: %d\n", what, names[i], use(page, i, OFTEN));
    fflush(stdout);
}

static unsigned char *shared_page;
static volatile int stop, ticks;
static void tick(int s) { ticks++; }

static void *hammer(void *which) { return (void *)(long)use(shared_page, (long)which % KINDS, 1000); }

static int ends[2];
static void *blocked(void *which) {
    char byte = 0;
    long n = kind(shared_page, (long)which)(SYS_read, ends[0], (long)&byte, 1);
    return (void *)(n == 1 ? (long)byte : n);
}

/* A thread is blocked at a site while other threads use it; then it is interrupted, and
 * continues. */
static void block(int which) {
    pthread_t thread;
    void *result;
    pipe(ends);
    pthread_create(&thread, 0, blocked, (void *)(long)which);
    usleep(20000);
    int right = use(shared_page, which, OFTEN);
    int before = ticks;
    for (int i = 0; i < 3; i++) { pthread_kill(thread, SIGUSR1); usleep(5000); }
    write(ends[1], "x", 1);
    pthread_join(thread, &result);
    printf("blocked in %s: %d, %ld, interrupted %s\n", names[which], right, (long)result, ticks > before ? "yes" : "no");
    fflush(stdout);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    start("sites");
    save("one", SYS_access);
    save("two", SYS_access);
    save("other", SYS_rmdir);
    struct sigaction sa = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, 0);
    sigaction(SIGALRM, &sa, 0);

    puts("-- each kind");
    unsigned char *page = load("one", PLACE);
    all("first", page);
    all("again", page);
    puts("-- registers and flags");
    for (int i = 0; i < 20; i++) {
        long rcx, flags, rbx = 0;
        __asm__ volatile("mov $0x1234,%%rbx\n stc\n call *%4\n pushfq\n pop %1\n mov %%rbx,%2"
            : "=c"(rcx), "=r"(flags), "=r"(rbx) : "D"((long)SYS_access), "r"(kind(page, STACK)), "S"("/none"), "d"(0L), "c"(0L)
            : "rax", "rbx", "r8", "r9", "r10", "r11", "memory");
        if (i % 10 == 9) printf("%d %lx %d\n", (int)flags & 1, rbx, rcx == (long)page + 1024 + 19);
    }
    puts("-- straight to the call");
    for (int i = 0; i < 20; i++) {
        long result = SYS_access;
        __asm__ volatile("call *%1" : "+a"(result) : "r"(page + 256 + 11), "D"("/none"), "S"(0L) : "rcx", "r11", "memory");
        if (i % 10 == 9) printf("%ld\n", result);
    }
    puts("-- a child");
    CHILD("child", all("child", page); page = load("two", 0); all("child's own", page));
    all("parent", page);

    puts("-- other code at the same place");
    page = load("other", PLACE);
    DO(kind(page, LONG)(0, (long)"nothing", 0, 0));
    all("over", load("one", PLACE));
    munmap(PLACE, PAGE);
    page = load("other", PLACE);
    int refused = 0;
    for (int i = 0; i < OFTEN; i++) refused += kind(page, LONG)(0, (long)"nothing", 0, 0) == -ENOENT;
    printf("refused %d\n", refused);
    all("after", load("one", PLACE));

    puts("-- the guest changes its code");
    page = PLACE;
    DO(mprotect(page, PAGE, PROT_READ | PROT_WRITE));
    fill(page, SYS_rmdir);
    DO(mprotect(page, PAGE, PROT_READ | PROT_EXEC));
    DO(kind(page, LONG)(0, (long)"/etc/passwd", 0, 0));
    all("changed", page);
    DO(madvise(page, PAGE, MADV_DONTNEED));
    fflush(stdout);
    page = load("one", PLACE);
    use(page, LONG, OFTEN);
    /* Either only the file's content is left, or the rewritten code: both do the same. */
    DO(madvise(page, PAGE, MADV_DONTNEED));
    all("dropped", page);
    /* The mapping moves. */
    page = load("two", 0);
    printf("before the move %d\n", use(page, STACK, 2));
    unsigned char *moved = mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, PLACE + 16 * PAGE);
    IS(moved == PLACE + 16 * PAGE);
    all("moved", moved);

    puts("-- little room");
    save("three", SYS_access);
    CHILD("no files may be written", {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        _exit(use(load("three", 0), SHORT, OFTEN) == 5 * OFTEN ? 7 : 1);
    });
    CHILD("no descriptors", {
        page = load("three", 0);
        struct rlimit none = {3, 3};
        setrlimit(RLIMIT_NOFILE, &none);
        all("nofile", page);
    });
    CHILD("no memory", {
        page = load("three", 0);
        struct rlimit none = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_AS, &none);
        all("as", page);
    });

    puts("-- threads");
    for (int i = SHORT; i < KINDS; i++) { shared_page = load("two", PLACE + 32 * PAGE); block(i); }
    shared_page = load("three", PLACE + 32 * PAGE);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, 0);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[10];
        long sum = 0;
        int good = 0;
        shared_page = load(round % 2 ? "two" : "three", PLACE + (48 + round) * PAGE);
        for (long i = 0; i < 10; i++) pthread_create(&threads[i], 0, hammer, (void *)i);
        for (int i = 0; i < 5; i++) {
            pid_t pid = fork();
            if (pid == 0) _exit(use(shared_page, SHORT, 20) == 100 ? 7 : 1);
            int status = 0;
            while (waitpid(pid, &status, 0) < 0) {}
            good += status == 7 << 8;
        }
        for (int i = 0; i < 10; i++) { void *result; pthread_join(threads[i], &result); sum += (long)result; }
        printf("round %d: %ld, children %d\n", round, sum, good);
        fflush(stdout);
    }
    return 0;
}
