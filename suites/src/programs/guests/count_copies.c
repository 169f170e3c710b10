// Loaded before a program's libraries: prints at the end if the program has read another process's
// memory.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long copied;

ssize_t process_vm_readv(pid_t pid, const struct iovec *mine, unsigned long count, const struct iovec *theirs, unsigned long others, unsigned long flags) {
    ssize_t done = syscall(SYS_process_vm_readv, pid, mine, count, theirs, others, flags);
    if (done > 0) __atomic_add_fetch(&copied, done, __ATOMIC_RELAXED);
    return done;
}

__attribute__((destructor)) static void tell(void) {
    if (copied >= 1 << 20) write(1, "copied from memory to memory\n", 29);
}
