//! A static program that tries the actions of a hostile guest, also with the system calls of the
//! processor's other ABIs.
//!
//! `intruder type`: types on the terminal at its standard input, in every way that the kernel has;
//! prints one line for each with the result, `typed` or an error. `intruder steal SECONDS`: for
//! that time takes the files that other processes have open besides their standard streams; prints
//! `ready` at first, `stolen` with each file and directory that it got, and `done`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::skip::Skip;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static sigjmp_buf gone;
static void missing(int signal) { (void)signal; siglongjmp(gone, 1); }
static void tell(const char *name, long result)
{
    printf("%s: %s\n", name, result >= 0 ? "typed" : strerrorname_np(-result));
}
static long raw(long number, long request, void *byte)
{
    long result;
    register long a1 __asm__("rdi") = 0, a2 __asm__("rsi") = request;
    register void *a3 __asm__("rdx") = byte;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "r"(a1), "r"(a2), "r"(a3)
                     : "rcx", "r11", "memory");
    return result;
}
static long narrow(int request, void *byte)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(54), "b"(0), "c"(request), "d"((int)(long)byte)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}
static int type(void)
{
    char *byte = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    *byte = 'X';
    tell("plain", raw(16, 0x5412, byte));
    tell("high bits", raw(16, 0x100005412, byte));
    tell("x32", raw(0x40000000 | 514, 0x5412, byte));
    tell("x32 as plain", raw(0x40000000 | 16, 0x5412, byte));
    signal(SIGSEGV, missing);
    if (sigsetjmp(gone, 1)) puts("i386: ENOSYS");
    else tell("i386", narrow(0x5412, byte));
    *byte = 3;
    tell("console", raw(16, 0x541c, byte));
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    *byte = 'X';
    if (tty >= 0) tell("by name", ioctl(tty, 0x5412, byte) ? -errno : 0);
    return 0;
}
static int steal(int seconds)
{
    time_t end = time(0) + seconds;
    puts("ready");
    fflush(stdout);
    while (time(0) < end) {
        for (int pid = 2; pid < 400; pid++) {
            int process = syscall(SYS_pidfd_open, pid, 0);
            if (process < 0 || pid == getpid()) { if (process >= 0) close(process); continue; }
            for (int number = 3; number < 24; number++) {
                int taken = syscall(SYS_pidfd_getfd, process, number, 0);
                if (taken < 0) { if (errno == EPERM) break; continue; }
                struct stat found;
                char path[64], name[256] = "";
                snprintf(path, sizeof path, "/proc/self/fd/%d", taken);
                if (readlink(path, name, sizeof name - 1) < 0) name[0] = 0;
                /* Its own: a program looks at its own maps. */
                if (strncmp(name, "/proc/", 6) && !fstat(taken, &found) && (S_ISDIR(found.st_mode) || S_ISREG(found.st_mode)))
                    printf("stolen %d: %s\n", number, name);
                close(taken);
            }
            close(process);
        }
    }
    puts("done");
    return 0;
}
int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "steal")) return steal(atoi(argv[2]));
    return type();
}
"#;

/// Compiles the program as `intruder` into an existing directory.
///
/// # Errors
/// A skip with the reason: no compiler, or one for another processor.
///
/// # Panics
/// If the directory cannot be written to.
pub fn intruder(place: &Path) -> Result<(), Skip> {
    let (source, program) = (place.join("intruder.c"), place.join("intruder"));
    let source_text = format!("#include <sys/ioctl.h>\n{SOURCE}");
    fs::write(&source, source_text).expect("a source file");
    let words = ["-static", "-O1", "-w", "-o"];
    let done = Command::new("gcc").args(words).arg(&program).arg(&source).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            Err(Skip(format!("gcc cannot make a static program: {text}")))
        }
        Err(error) => Err(Skip(format!("no C compiler: {error}"))),
    }
}
