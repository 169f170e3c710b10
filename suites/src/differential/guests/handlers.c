/* Handlers, masks and stacks of signals, and calls that they interrupt; prints unexpected
 * results. */
#include "cases.h"
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t hits, last, code;
static void count(int s) {
    hits++;
    last = s;
}

static void info(int s, siginfo_t *i, void *u) {
    (void)u;
    hits++;
    last = s;
    code = i->si_code;
}

static int try_path(void) {
    struct stat st;
    return stat("/etc/passwd", &st);
}

static void act(int s, void (*h)(int), int flags) {
    struct sigaction a = {0};
    a.sa_handler = h;
    a.sa_flags = flags;
    sigfillset(&a.sa_mask);
    sigaction(s, &a, 0);
}

static void after_ms(int ms) {
    struct itimerval t = {{0, 0}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}

static void masks(void) {
    sigset_t all, old;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &old) == 0);
    CHECK(try_path() == 0);
    sigset_t now;
    CHECK(sigprocmask(0, 0, &now) == 0);
    CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGSEGV));
    CHECK(sigprocmask(SIG_BLOCK, &all, 0) == 0);
    CHECK(try_path() == 0);
    kill(getpid(), SIGUSR1);
    act(SIGUSR1, count, 0);
    CHECK(hits == 0);
    sigset_t pend;
    sigpending(&pend);
    CHECK(sigismember(&pend, SIGUSR1));
    CHECK(sigprocmask(SIG_SETMASK, &old, 0) == 0);
    CHECK(hits == 1);
    errno = 0;
    CHECK(syscall(SYS_rt_sigprocmask, 2, (void *)8, 0, 8) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(syscall(SYS_rt_sigprocmask, 77, &all, 0, 8) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_rt_sigprocmask, 2, &all, 0, 4) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_rt_sigprocmask, 2, &old, (void *)8, 8) == -1 && errno == EFAULT);
}

static void in_handler(int s) {
    (void)s;
    hits++;
    if (try_path()) bad++;
    char b[4096];
    if (!getcwd(b, sizeof b)) bad++;
}

static void full_mask(void) {
    act(SIGUSR1, in_handler, 0);
    struct sigaction o;
    sigaction(SIGUSR1, 0, &o);
    CHECK(o.sa_handler == in_handler);
    CHECK(sigismember(&o.sa_mask, SIGUSR2));
    CHECK(sigismember(&o.sa_mask, SIGSYS));
    CHECK(!(o.sa_flags & SA_SIGINFO));
    for (int i = 0; i < 100; i++) {
        raise(SIGUSR1);
        try_path();
    }
    CHECK(hits == 100);
}

static void suspend(void) {
    act(SIGALRM, in_handler, 0);
    sigset_t m;
    sigfillset(&m);
    sigprocmask(SIG_SETMASK, &m, 0);
    sigdelset(&m, SIGALRM);
    after_ms(20);
    errno = 0;
    CHECK(sigsuspend(&m) == -1 && errno == EINTR);
    CHECK(hits == 1);
    CHECK(try_path() == 0);
}

static void pollers(void) {
    sigset_t m, all;
    sigfillset(&all);
    act(SIGALRM, in_handler, SA_RESTART);
    sigprocmask(SIG_SETMASK, &all, 0);
    sigfillset(&m);
    sigdelset(&m, SIGALRM);
    after_ms(10);
    errno = 0;
    CHECK(ppoll(0, 0, 0, &m) == -1 && errno == EINTR);
    CHECK(hits == 1);
    CHECK(!try_path());
    after_ms(10);
    errno = 0;
    CHECK(pselect(0, 0, 0, 0, 0, &m) == -1 && errno == EINTR);
    CHECK(hits == 2);
    CHECK(!try_path());
    int e = epoll_create1(0);
    struct epoll_event ev;
    after_ms(10);
    errno = 0;
    CHECK(epoll_pwait(e, &ev, 1, -1, &m) == -1 && errno == EINTR);
    CHECK(hits == 3);
    CHECK(!try_path());
    struct timespec ts = {5, 0};
    after_ms(10);
    errno = 0;
    CHECK(syscall(441, e, &ev, 1, &ts, &m, 8) == -1 && errno == EINTR);
    CHECK(hits == 4);
    CHECK(!try_path());
    ts = (struct timespec){0, 1000};
    CHECK(ppoll(0, 0, &ts, &all) == 0);
    CHECK(pselect(0, 0, 0, 0, &ts, &all) == 0);
    CHECK(epoll_pwait(e, &ev, 1, 1, &all) == 0);
    errno = 0;
    CHECK(ppoll(0, 0, &ts, (void *)8) == -1 && errno == EFAULT);
    CHECK(ppoll(0, 0, &ts, 0) == 0);
}

static void on_stack(int s) {
    (void)s;
    char here;
    stack_t st;
    sigaltstack(0, &st);
    hits += (st.ss_flags & SS_ONSTACK) && (char *)st.ss_sp <= &here && &here < (char *)st.ss_sp + st.ss_size;
    if (try_path()) bad++;
}

static void altstack(void) {
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
    CHECK(sigaltstack(&st, 0) == 0);
    act(SIGUSR1, on_stack, SA_ONSTACK);
    for (int i = 0; i < 10; i++) raise(SIGUSR1);
    CHECK(hits == 10);
}

static sigjmp_buf jb;
static void *fault_at;
static void segv(int s, siginfo_t *i, void *u) {
    (void)s;
    (void)u;
    fault_at = i->si_addr;
    code = i->si_code;
    char x;
    hits += (uintptr_t)&x != 0;
    siglongjmp(jb, 1);
}

static void recurse(volatile char *p) {
    volatile char b[4096];
    b[0] = p ? p[0] : 0;
    recurse(b);
    b[1] = 1;
}

static void faults(void) {
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&st, 0);
    struct sigaction a = {.sa_sigaction = segv, .sa_flags = SA_SIGINFO | SA_ONSTACK}, o;
    CHECK(sigaction(SIGSEGV, &a, &o) == 0);
    CHECK(o.sa_handler == SIG_DFL);
    sigaction(SIGSEGV, 0, &o);
    CHECK(o.sa_sigaction == segv && o.sa_flags & SA_ONSTACK && o.sa_flags & SA_SIGINFO);
    if (!sigsetjmp(jb, 1)) *(volatile int *)16 = 1;
    CHECK(hits == 1 && fault_at == (void *)16 && code == SEGV_MAPERR);
    char *ro = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(jb, 1)) ro[5] = 1;
    CHECK(hits == 2 && fault_at == ro + 5 && code == SEGV_ACCERR);
    if (!sigsetjmp(jb, 1)) recurse(0);
    CHECK(hits == 3);
    errno = 0;
    CHECK(open((char *)16, 0) == -1 && errno == EFAULT);
    CHECK(hits == 3);
    CHECK(!try_path());
    sigaction(SIGBUS, &a, 0);
    int f = open("fifo", O_RDWR);
    close(f);
    f = open("bus", O_RDWR | O_CREAT, 0600);
    CHECK(ftruncate(f, 4096) == 0);
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (!sigsetjmp(jb, 1)) m[5000] = 1;
    CHECK(hits == 4 && fault_at == m + 5000 && code == BUS_ADRERR);
    errno = 0;
    CHECK(open(m + 5000, 0) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(stat("/", (void *)(m + 5000)) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(stat("/", (void *)8) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(syscall(SYS_getcwd, (char *)8, 100) == -1 && errno == EFAULT);
    char *edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    memcpy(edge + 4096 - 4, "/tmp", 4);
    errno = 0;
    CHECK(access(edge + 4092, 0) == -1 && errno == EFAULT);
    memcpy(edge + 4096 - 5, "/tmp", 5);
    CHECK(access(edge + 4091, 0) == 0);
    // Names of all lengths that end at the end of the memory, without a NUL: often enough that the
    // call site was rewritten.
    for (int i = 0; i < 120; i++) {
        char *name = edge + 4096 - i % 40;
        struct stat facts;
        memset(edge, 'x', 4096);
        if (i >= 40 && i % 40) *name = '/';
        if (i >= 80 && i % 40 > 5) memcpy(name, "/etc/", 5);
        CHECK(syscall(SYS_stat, name, &facts) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_lstat, name, &facts) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_newfstatat, AT_FDCWD, name, &facts, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_access, name, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_open, name, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_readlink, name, edge, 64) == -1 && errno == EFAULT);
    }
    edge[4095] = 0;
    CHECK(access(edge + 4095, 0) == -1 && errno == ENOENT);
}

static int wait_for(pid_t p) {
    int s = 0;
    if (waitpid(p, &s, 0) < 0) return -1;
    return s;
}

static void deaths(void) {
    struct { int sig; int how; } t[] = {{SIGSEGV, 0}, {SIGSEGV, 1}, {SIGBUS, 1}, {SIGSYS, 1}, {SIGSEGV, 2}, {SIGTERM, 1},
        {SIGABRT, 3}, {SIGSEGV, 4}};
    for (unsigned i = 0; i < sizeof t / sizeof *t; i++) {
        pid_t p = fork();
        if (!p) {
            try_path();
            if (t[i].how == 0) *(volatile int *)16 = 1;
            if (t[i].how == 1) raise(t[i].sig);
            if (t[i].how == 2) {
                signal(SIGSEGV, SIG_IGN);
                *(volatile int *)16 = 1;
            }
            if (t[i].how == 3) abort();
            if (t[i].how == 4) {
                sigset_t m;
                sigfillset(&m);
                sigprocmask(SIG_SETMASK, &m, 0);
                *(volatile int *)16 = 1;
            }
            _exit(3);
        }
        int s = wait_for(p);
        CHECK(WIFSIGNALED(s) && WTERMSIG(s) == t[i].sig);
    }
    pid_t p = fork();
    if (!p) {
        signal(SIGSEGV, SIG_IGN);
        signal(SIGSYS, SIG_IGN);
        raise(SIGSEGV);
        raise(SIGSYS);
        _exit(try_path() ? 1 : 7);
    }
    int s = wait_for(p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 7);
    p = fork();
    if (!p) {
        signal(SIGSEGV, SIG_IGN);
        execl("/bin/handlers", "handlers", "raise", NULL);
        _exit(1);
    }
    s = wait_for(p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 9);
    struct sigaction a = {.sa_handler = count, .sa_flags = SA_RESETHAND}, o;
    hits = 0;
    sigaction(SIGSEGV, &a, 0);
    raise(SIGSEGV);
    CHECK(hits == 1);
    sigaction(SIGSEGV, 0, &o);
    CHECK(o.sa_handler == SIG_DFL);
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    CHECK(hits == 2);
    sigaction(SIGUSR1, 0, &o);
    CHECK(o.sa_handler == SIG_DFL);
}

static void own_sigsys(void) {
    struct sigaction a = {.sa_sigaction = info, .sa_flags = SA_SIGINFO}, o;
    CHECK(sigaction(SIGSYS, &a, &o) == 0);
    CHECK(o.sa_handler == SIG_DFL);
    sigaction(SIGSYS, 0, &o);
    CHECK(o.sa_sigaction == info);
    raise(SIGSYS);
    CHECK(hits == 1 && last == SIGSYS && code == SI_TKILL);
    CHECK(!try_path());
    CHECK(hits == 1);
    kill(getpid(), SIGSYS);
    CHECK(hits == 2 && code == SI_USER);
    signal(SIGSYS, SIG_IGN);
    raise(SIGSYS);
    CHECK(hits == 2);
    CHECK(!try_path());
}

static void nested_b(int s) {
    (void)s;
    hits++;
    try_path();
}

static void nested_a(int s) {
    (void)s;
    hits++;
    try_path();
    raise(SIGUSR2);
    try_path();
}

static void nested(void) {
    struct sigaction a = {.sa_handler = nested_a, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR1, &a, 0);
    a.sa_handler = nested_b;
    sigaction(SIGUSR2, &a, 0);
    for (int i = 0; i < 50; i++) raise(SIGUSR1);
    CHECK(hits == 100);
}

static void jumper(int s) {
    (void)s;
    hits++;
    siglongjmp(jb, 1);
}

static void longjmps(void) {
    act(SIGALRM, jumper, 0);
    volatile int i;
    for (i = 0; i < 300; i++) if (!sigsetjmp(jb, 1)) {
        struct itimerval t = {{0, 0}, {0, 300}};
        setitimer(ITIMER_REAL, &t, 0);
        for (;;) {
            if (i & 1) {
                int f = open("fifo", O_RDONLY);
                close(f);
            } else try_path();
        }
    }
    CHECK(hits == 300);
    CHECK(!try_path());
}

static void eintr(void) {
    struct sigaction a = {.sa_handler = count};
    sigaction(SIGALRM, &a, 0);
    after_ms(20);
    errno = 0;
    CHECK(open("fifo", O_RDONLY) == -1 && errno == EINTR);
    CHECK(hits == 1);
    pid_t p = fork();
    if (!p) {
        usleep(60000);
        int f = open("fifo", O_WRONLY);
        _exit(f < 0);
    }
    a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    after_ms(20);
    int f = open("fifo", O_RDONLY);
    CHECK(f >= 0);
    CHECK(hits == 2);
    wait_for(p);
    close(f);
}
static volatile int stop;
static volatile long did;

static void *worker(void *a) {
    (void)a;
    while (!stop) {
        if (try_path()) bad++;
        char b[4096];
        if (!getcwd(b, 4096)) bad++;
        int f = open("/etc/passwd", O_RDONLY);
        if (f < 0) bad++;
        close(f);
        did++;
    }
    return 0;
}

static void in_storm(int s) {
    in_handler(s);
    storm_seen();
}

static void storm(void) {
    act(SIGALRM, in_storm, SA_RESTART);
    storm_begin(1500);
    for (int i = 0; i < 30000 && hits < 1500; i++) {
        CHECK(!try_path());
        int f = open("/etc/passwd", O_RDONLY);
        CHECK(f >= 0);
        close(f);
    }
    storm_end();
    CHECK(hits > 10);
}

static void thread_storm(void) {
    act(SIGUSR1, in_handler, SA_RESTART);
    pthread_t t[8];
    for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, worker, 0);
    /* Longer on a busy machine: until the threads have made progress, or seem to stand still. */
    for (int i = 0; i < 800 || ((did <= 8 || !hits) && i < 800000); i++) {
        pthread_kill(t[i % 8], SIGUSR1);
        if (i % 16 == 0) usleep(100);
    }
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    CHECK(hits > 0);
    CHECK(did > 8);
}

static void cleanup(void *a) {
    *(int *)a += 1;
}
static int cleaned;

static void *block_open(void *a) {
    pthread_cleanup_push(cleanup, &cleaned);
    int f = open(a, O_RDONLY);
    (void)f;
    pthread_cleanup_pop(0);
    return 0;
}

static void cancel(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        void *r = 0;
        pthread_create(&t, 0, block_open, "fifo");
        usleep(i == 0 ? 20000 : 3000);
        pthread_cancel(t);
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += 2;
        int e = pthread_timedjoin_np(t, &r, &ts);
        CHECK(e == 0);
        if (e) {
            break;
        }
        CHECK(r == PTHREAD_CANCELED);
    }
    CHECK(cleaned == 20);
    CHECK(!try_path());
}

static void uc_edit(int s, siginfo_t *i, void *v) {
    (void)s;
    (void)i;
    ucontext_t *u = v;
    sigaddset(&u->uc_sigmask, SIGUSR2);
    hits++;
}

static void edited(void) {
    struct sigaction a = {.sa_sigaction = uc_edit, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    sigset_t n;
    sigprocmask(0, 0, &n);
    CHECK(sigismember(&n, SIGUSR2));
    CHECK(!try_path());
}

/* Bad pointers, while signals for bad accesses are blocked. Each time with pages that were not
 * touched before. */
static void bad_pointers(void) {
    struct stat st;
    errno = 0;
    CHECK(open((char *)16, 0) == -1 && errno == EFAULT);
    for (int i = 0; i < 40; i++) {
        char *edge = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(edge + 4096, 4096, PROT_NONE);
        mprotect(edge + 8192, 4096, PROT_READ);
        errno = 0;
        CHECK(open(edge + 4096, 0) == -1 && errno == EFAULT);
        memcpy(edge + 4092, "/tmp", 4);
        errno = 0;
        CHECK(access(edge + 4092, 0) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(rename("/none", edge + 4096) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(syscall(SYS_getcwd, edge + 8192, 64) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(syscall(SYS_getcwd, edge + 4090, 64) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(stat("/", (struct stat *)(edge + 8192)) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(syscall(SYS_rt_sigprocmask, 0, edge + 4096, 0, 8) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_getcwd, edge, 64) > 0 && *edge == '/');
        strcpy(edge + 4096 - 12, "/etc/passwd");
        CHECK(access(edge + 4096 - 12, 0) == 0);
    }
    int f = open("beyond", O_RDWR | O_CREAT, 0600);
    CHECK(ftruncate(f, 4096) == 0);
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    errno = 0;
    CHECK(open(m + 4096, 0) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(syscall(SYS_getcwd, m + 4096, 64) == -1 && errno == EFAULT);
    close(f);
    CHECK(stat("/etc/passwd", &st) == 0 && !try_path());
}

static void *bad_pointers_t(void *v) {
    sigset_t m;
    sigfillset(&m);
    pthread_sigmask(SIG_SETMASK, &m, 0);
    bad_pointers();
    return v;
}

static void in_full_mask(int s) {
    (void)s;
    hits++;
    bad_pointers();
}

static void blocked_efault(void) {
    pthread_t t;
    pthread_create(&t, 0, bad_pointers_t, 0);
    pthread_join(t, 0);
    act(SIGUSR1, in_full_mask, 0);
    raise(SIGUSR1);
    CHECK(hits == 1);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGSEGV);
    sigaddset(&m, SIGBUS);
    sigprocmask(SIG_SETMASK, &m, 0);
    bad_pointers();
    pid_t p = fork();
    if (!p) {
        bad_pointers();
        execl("/bin/handlers", "handlers", "pointers", NULL);
        _exit(1);
    }
    int s = wait_for(p);
    CHECK(WIFEXITED(s) && WEXITSTATUS(s) == 8);
}

/* As in a storm, ends from within. */
static timer_t ticks;
static void tick(int s, siginfo_t *i, void *u) {
    info(s, i, u);
    if (hits == 200) timer_settime(ticks, 0, &(struct itimerspec){{0}}, 0);
}

static void queue_values(void) {
    struct sigaction a = {.sa_sigaction = info, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 3, &a, 0);
    union sigval v = {.sival_int = 42};
    for (int i = 0; i < 10; i++) sigqueue(getpid(), SIGRTMIN + 3, v);
    CHECK(hits == 10 && code == SI_QUEUE);
    a.sa_sigaction = tick;
    sigaction(SIGRTMIN + 3, &a, 0);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    CHECK(timer_create(CLOCK_MONOTONIC, &e, &ticks) == 0);
    struct itimerspec it = {{0, 100000}, {0, 100000}};
    timer_settime(ticks, 0, &it, 0);
    for (int i = 0; i < 20000 && hits < 200; i++) try_path();
    timer_delete(ticks);
    CHECK(hits > 12);
}

static void sigwaits(void) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, 0);
    kill(getpid(), SIGUSR1);
    int s;
    CHECK(sigwait(&m, &s) == 0 && s == SIGUSR1);
}

static ucontext_t ca, cb;
static int co_ok;
static void co(void) {
    for (int i = 0; i < 20; i++) {
        if (!try_path()) co_ok++;
        swapcontext(&cb, &ca);
    }
}

static void coroutines(void) {
    static char *stk[50];
    for (int k = 0; k < 50; k++) {
        stk[k] = malloc(6144);
        getcontext(&cb);
        cb.uc_stack.ss_sp = stk[k];
        cb.uc_stack.ss_size = 6144;
        cb.uc_link = &ca;
        makecontext(&cb, co, 0);
        for (int i = 0; i < 20; i++) swapcontext(&ca, &cb);
    }
    CHECK(co_ok == 1000);
}

static void sigchld(void) {
    act(SIGCHLD, count, SA_RESTART);
    for (int i = 0; i < 50; i++) {
        pid_t p = fork();
        if (!p) _exit(try_path());
        CHECK(wait_for(p) == 0);
    }
    CHECK(hits == 50);
}

static void stopped(void) {
    pid_t p = fork();
    if (!p) {
        for (int i = 0; i < 1000; i++) {
            try_path();
            usleep(1000);
        }
        _exit(0);
    }
    usleep(20000);
    kill(p, SIGSTOP);
    int s;
    CHECK(waitpid(p, &s, WUNTRACED) == p && WIFSTOPPED(s));
    kill(p, SIGCONT);
    CHECK(waitpid(p, &s, WCONTINUED) == p && WIFCONTINUED(s));
    kill(p, SIGKILL);
    s = wait_for(p);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL);
}
static volatile unsigned long regs_bad;
static void registers(void) {
    for (int i = 0; i < 200; i++) {
        unsigned long rbx = 0x1111, rbp, r12 = 0x2222, r13 = 0x3333, r14 = 0x4444, r15 = 0x5555, rax = SYS_access,
            d = (unsigned long)"/etc/passwd", si = 0, dx = 0x77, r8o = 0x88, r9o = 0x99, r10o = 0xaa;
        (void)rbp;
        register unsigned long r10 asm("r10") = r10o, r8 asm("r8") = r8o, r9 asm("r9") = r9o, x12 asm("r12") = r12,
            x13 asm("r13") = r13, x14 asm("r14") = r14, x15 asm("r15") = r15;
        asm volatile("syscall" : "+a"(rax), "+D"(d), "+S"(si), "+d"(dx), "+r"(r10), "+r"(r8), "+r"(r9), "+b"(rbx),
            "+r"(x12), "+r"(x13), "+r"(x14), "+r"(x15) : : "rcx", "r11", "memory");
        CHECK(rax == 0 && si == 0 && dx == 0x77 && r10 == 0xaa && r8 == 0x88 && r9 == 0x99 && rbx == 0x1111 &&
            x12 == 0x2222 && x13 == 0x3333 && x14 == 0x4444 && x15 == 0x5555);
    }
}

static const struct one cases[] = {
    T(masks), T(full_mask), T(suspend), T(pollers), T(altstack), T(faults), T(deaths), T(own_sigsys), T(nested),
    T(longjmps), T(eintr), T(storm), T(thread_storm), T(cancel), T(edited), T(blocked_efault), T(queue_values),
    T(sigwaits), T(coroutines), T(sigchld), T(stopped), T(registers),
};

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "raise")) {
        raise(SIGSEGV);
        return 9;
    }
    setvbuf(stdout, 0, _IONBF, 0);
    if (argc > 1 && !strcmp(argv[1], "pointers")) {
        bad_pointers();
        return bad ? 3 : 8;
    }
    start("handlers");
    mkfifo("fifo", 0600);
    run_cases(cases, sizeof cases / sizeof *cases);
    return 0;
}
