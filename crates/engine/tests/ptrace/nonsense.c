/* Every call with invalid arguments, by 64-bit and by 32-bit entries: the tracer must survive
 * all of them. */
#include "check.h"
#include <sys/mman.h>

#define PAGE 4096
#define ROUNDS 24
#define LAST 475

/* Calls that end, stop or signal processes, wait, make children, or affect other processes of
 * the machine: memory, priorities, limits, keys. */
static const int left_out[] = {
    SYS_exit, SYS_exit_group, SYS_fork, SYS_vfork, SYS_clone, SYS_clone3, SYS_rt_sigreturn, SYS_kill, SYS_tkill, SYS_tgkill,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_send_signal, SYS_pause, SYS_wait4, SYS_waitid, SYS_nanosleep,
    SYS_clock_nanosleep, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, 441, SYS_futex, 449, 455,
    SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_semget, SYS_semop, SYS_semctl,
    SYS_semtimedop, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_setpriority, SYS_ioprio_set,
    SYS_keyctl, SYS_prlimit64, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr, SYS_migrate_pages,
    SYS_move_pages, SYS_process_vm_writev};
static const int left_out_32[] = {1, 252, 2, 120, 190, 435, 37, 238, 270, 178, 335, 424, 173, 119, 7, 114, 284, 11, 358,
                                  29, 179, 187, 72, 162, 267, 407, 111, 117, 168, 142, 82, 308, 309, 240, 422, 177, 421,
                                  393, 394, 395, 396, 397, 398, 399, 400, 401, 402, 420,
                                  97, 289, 288, 340, 154, 156, 351, 294, 317, 348};

static const char *const names[] = {"/proc/self/fd/3/../x", "/etc/passwd", "..", "/proc/self/exe", "/proc/thread-self/cwd/",
                                    "a/b/", "", "/proc/self/fd/0", "/dev/null", "x", "/tmp/../proc/self/status",
                                    "/proc/self/maps"};

static char *page;
static unsigned long seed;

static unsigned long number(void) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return seed >> 33;
}

static unsigned long argument(void) {
    switch (number() % 14) {
    case 0: return 0;
    case 1: return -1UL;
    case 2: return -100UL;
    case 3: return number() % 8;
    case 4: return (unsigned long)page + PAGE - number() % 40;
    case 5: return (unsigned long)page + number() % 64 * 8;
    case 6: return -8UL - number() % 64;
    case 7: return 0x7ffffffff000UL - number() % 16;
    case 8: return 1UL << number() % 64;
    case 9: return (1UL << number() % 64) - 1;
    case 10: return (unsigned long)page;
    case 11: return (unsigned long)page + PAGE / 2;
    case 12: return number() % 256;
    default: return number();
    }
}

static void call_32(int call, const unsigned long *with) {
    long result = call;
    register unsigned long first __asm__("rbx") = with[0];
    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "r"(first), "c"(with[1]), "d"(with[2]), "S"(with[3]), "D"(with[4])
                     : "memory", "r8", "r9", "r10", "r11");
}

static void nonsense(int call, int narrow) {
    page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    munmap(page + PAGE, PAGE);
    alarm(2);
    seed = call * 7919 + 1;
    for (int fd = 0; fd < 3; fd++) close(fd);
    open("/etc/passwd", O_RDONLY);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long with[6];
        for (int at = 0; at < PAGE; at += 8) *(unsigned long *)(page + at) = argument();
        strcpy(page, names[number() % 12]);
        strcpy(page + PAGE / 2, names[number() % 12]);
        for (int index = 0; index < 6; index++) with[index] = argument();
        if (narrow) call_32(call, with);
        else syscall(call, with[0], with[1], with[2], with[3], with[4], with[5]);
    }
    _exit(0);
}

static int is_in(const int *list, unsigned long count, int call) {
    for (unsigned long index = 0; index < count; index++)
        if (list[index] == call) return 1;
    return 0;
}

int main(void) {
    for (int narrow = 0; narrow < 2; narrow++)
        for (int call = 0; call < LAST; call++) {
            if (narrow ? is_in(left_out_32, sizeof left_out_32 / sizeof(int), call)
                       : is_in(left_out, sizeof left_out / sizeof(int), call))
                continue;
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) nonsense(call, narrow);
            int status;
            CHECK(waitpid(child, &status, 0) == child);
        }
    return failures != 0;
}
