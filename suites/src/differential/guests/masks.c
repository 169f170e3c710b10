/* Masks everywhere they can be set, small stacks, long jumps, and nested handlers, which an
 * in-process engine must survive. */
#include "step.h"
#include <execinfo.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <ucontext.h>

static volatile int count, last, failures;
static struct stat st;

/* Calls that are caught, made from the present stack and mask. */
static void calls(void) {
    if (stat("/etc/passwd", &st)) failures++;
    int fd = open("/etc/passwd", O_RDONLY);
    if (fd < 0) failures++; else close(fd);
    if (access("/none", F_OK) == 0 || errno != ENOENT) failures++;
}

static void handler(int s) { int error = errno; count++; last = s; calls(); errno = error; }

static void in_storm(int s) { handler(s); storm_seen(); }

static void on(int s, void (*f)(int), int flags, int full) {
    struct sigaction a = {0};
    a.sa_handler = f;
    a.sa_flags = flags;
    if (full) sigfillset(&a.sa_mask);
    sigaction(s, &a, 0);
}

static void fails(const char *what) { printf("%s: failures %d\n", what, failures); fflush(stdout); failures = 0; }

static sigjmp_buf out;
static void jump(int s) { (void)s; siglongjmp(out, 1); }

static void edits(int s, siginfo_t *i, void *context) {
    (void)s; (void)i;
    sigfillset(&((ucontext_t *)context)->uc_sigmask);
}

/* Checks that unwinding from within a handler finds the interrupted function. */
static int found;
static __attribute__((noinline)) int raises(int s) { raise(s); calls(); return found; }
static void unwind(void) {
    void *frames[64];
    int n = backtrace(frames, 64);
    found = 0;
    for (int i = 0; i < n; i++) if ((char *)frames[i] > (char *)raises && (char *)frames[i] < (char *)raises + 64) found = 1;
}
static void unwinds(int s) { (void)s; unwind(); }
static void unwinds_more(int s, siginfo_t *i, void *c) { (void)s; (void)i; (void)c; unwind(); }

static ucontext_t here, there;
static void coroutine(void) { calls(); swapcontext(&there, &here); calls(); }

static void *small_thread(void *x) { calls(); return x; }

static void deep(int s) { int left = --count; if (left > 0) raise(s); calls(); }

static void own(int s, siginfo_t *i, void *c) { (void)c; last = s; count = i->si_code; }

static void *blocked_thread(void *x) { (void)x; sigset_t all; sigfillset(&all); pthread_sigmask(SIG_SETMASK, &all, 0); calls(); return 0; }

int main(void) {
    start("masks");
    sigset_t full, none, now;
    sigfillset(&full);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &full, 0); calls(); fails("all blocked");
    sigprocmask(SIG_SETMASK, 0, &now);
    IS(sigismember(&now, SIGSYS));
    sigprocmask(SIG_SETMASK, &none, 0);
    on(SIGUSR1, handler, 0, 1); raise(SIGUSR1); fails("full mask of a handler");
    sigprocmask(SIG_BLOCK, 0, &now);
    IS(!sigismember(&now, SIGSYS));
    struct sigaction a;
    sigaction(SIGUSR1, 0, &a);
    IS(sigismember(&a.sa_mask, SIGSYS));
    struct itimerval t = {{0, 0}, {0, 30000}};
    sigset_t but = full;
    sigdelset(&but, SIGALRM);
    struct timespec two = {2, 0};
    on(SIGALRM, handler, 0, 1);
    setitimer(ITIMER_REAL, &t, 0); DO(sigsuspend(&but)); fails("sigsuspend");
    setitimer(ITIMER_REAL, &t, 0); DO(ppoll(0, 0, &two, &but)); fails("ppoll");
    setitimer(ITIMER_REAL, &t, 0); DO(pselect(0, 0, 0, 0, &two, &but)); fails("pselect");
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    setitimer(ITIMER_REAL, &t, 0); DO(epoll_pwait(ep, &event, 1, 2000, &but)); fails("epoll_pwait");
    setitimer(ITIMER_REAL, &t, 0); DO(syscall(SYS_epoll_pwait2, ep, &event, 1, &two, &but, 8)); fails("epoll_pwait2");
    struct sigaction edit = {0};
    edit.sa_sigaction = edits;
    edit.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR2, &edit, 0);
    CHILD("a mask edited by hand", { raise(SIGUSR2); calls(); fails("in it"); });
    CHILD("edited often", { for (int i = 0; i < 80; i++) { raise(SIGUSR2); calls(); } fails("in them"); });
    sigprocmask(SIG_SETMASK, &none, 0);
    puts("-- unwinding");
    for (int i = 0; i < 40; i++) {
        on(SIGUSR1, unwinds, 0, i & 1);
        if (!raises(SIGUSR1)) failures++;
        edit.sa_sigaction = unwinds_more;
        sigaction(SIGUSR1, &edit, 0);
        if (!raises(SIGUSR1)) failures++;
    }
    fails("unwinding");
    puts("-- own SIGSYS");
    struct sigaction sys = {0};
    sys.sa_sigaction = own;
    sys.sa_flags = SA_SIGINFO;
    DO(sigaction(SIGSYS, &sys, 0));
    calls(); fails("with a handler of one's own");
    last = 0; raise(SIGSYS); IS(last == SIGSYS);
    on(SIGSYS, SIG_IGN, 0, 0); raise(SIGSYS); calls(); fails("ignored");
    sigprocmask(SIG_BLOCK, &full, 0); calls(); sigprocmask(SIG_SETMASK, &none, 0); fails("ignored and blocked");
    on(SIGSYS, SIG_DFL, 0, 0);
    CHILD("dies of it", { struct rlimit no = {0, 0}; setrlimit(RLIMIT_CORE, &no); raise(SIGSYS); });
    puts("-- stacks");
    stack_t alternate = {malloc(16384), 0, 16384};
    DO(sigaltstack(&alternate, 0));
    on(SIGUSR1, handler, SA_ONSTACK, 0); raise(SIGUSR1); fails("alternate stack");
    stack_t seen;
    sigaltstack(0, &seen);
    IS(seen.ss_sp == alternate.ss_sp && seen.ss_flags == 0);
    /* With hardly more space than one frame needs. */
    long least = getauxval(AT_MINSIGSTKSZ);
    stack_t narrow = {malloc(2 * least + 4096), 0, (least ? least : 2048) + 2048};
    struct sigaction plain = {0};
    plain.sa_sigaction = own;
    plain.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR1, &plain, 0);
    DO(sigaltstack(&narrow, 0));
    last = 0; for (int i = 0; i < 30; i++) raise(SIGUSR1);
    IS(last == SIGUSR1);
    sigaltstack(&alternate, 0);
    count = 12; on(SIGUSR1, deep, SA_NODEFER, 0); raise(SIGUSR1); fails("handlers within handlers");
    static char small[8192] __attribute__((aligned(64)));
    getcontext(&there);
    there.uc_stack.ss_sp = small;
    there.uc_stack.ss_size = sizeof small;
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    swapcontext(&here, &there); calls(); swapcontext(&here, &there); fails("a coroutine of 8 KB");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    pthread_t thread;
    for (int i = 0; i < 50; i++) { if (pthread_create(&thread, &attributes, small_thread, 0)) failures++; else pthread_join(thread, 0); }
    fails("threads of 16 KB");
    pthread_create(&thread, 0, blocked_thread, 0); pthread_join(thread, 0); fails("a thread with all blocked");
    puts("-- jumps");
    mkfifo("fifo", 0600);
    on(SIGALRM, jump, 0, 0);
    struct itimerval quick = {{0, 0}, {0, 300}};
    volatile int jumps = 0;
    for (volatile int i = 0; i < 300; i++) {
        if (sigsetjmp(out, 1)) { jumps++; continue; }
        setitimer(ITIMER_REAL, &quick, 0);
        open("fifo", O_RDONLY);
    }
    printf("jumps %d\n", jumps);
    calls(); fails("after jumps");
    puts("-- bad pointers");
    char *end = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(end + 4096, 4096, PROT_NONE);
    char *bad[] = {0, (char *)1, (char *)0xffffffffffffff00, (char *)0x800000000000, end + 4096, end + 4090};
    memcpy(end + 4090, "/etc/x", 6);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        printf("pointer %u\n", i);
        DO(open(bad[i], O_RDONLY)); DO(stat(bad[i], &st)); DO(rename("x", bad[i])); DO(readlink(bad[i], end, 9)); DO(chdir(bad[i]));
        DO(execve(bad[i], 0, 0)); DO(syscall(SYS_stat, "/etc/passwd", bad[i] ? bad[i] : end + 4096)); DO(syscall(SYS_getcwd, bad[i], 100L));
        DO(syscall(SYS_rt_sigprocmask, 0, bad[i] ? bad[i] : end + 4096, 0, 8L)); DO(syscall(SYS_rt_sigaction, SIGUSR2, bad[i] ? bad[i] : end + 4096, 0, 8L));
    }
    int full_of_holes = open("/etc/passwd", O_RDONLY);
    char *beyond = mmap(0, 8192, PROT_READ, MAP_SHARED, full_of_holes, 0);
    DO(open(beyond + 4096, O_RDONLY));
    puts("-- storm");
    on(SIGALRM, in_storm, SA_RESTART | SA_ONSTACK, 1);
    storm_begin(1500);
    for (int i = 0; i < 3000; i++) calls();
    storm_end();
    fails("storm");
    return 0;
}
