//! Forbids system calls, as a stricter host does.

use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source of a program that runs another one without some system calls, which are named before
/// `--`.
const FENCE: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static struct sock_filter f[64];
static int n;
static void op(unsigned code, unsigned jt, unsigned jf, unsigned k)
{
    struct sock_filter one = {code, jt, jf, k};
    f[n++] = one;
}
static void refuse(int number)
{
    op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number);
    op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
}
static const struct { const char *name; int number; } calls[] = {
    {"statx", SYS_statx}, {"rseq", SYS_rseq}, {"set_robust_list", SYS_set_robust_list},
    {"openat2", SYS_openat2}, {"faccessat2", SYS_faccessat2},
};
static void trap(const char *name)
{
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(name, calls[i].name)) {
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls[i].number);
            op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRAP);
        }
}
int main(int argc, char **argv)
{
    op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    for (argv++; strcmp(*argv, "--"); argv++) {
        if (!strcmp(*argv, "namespaces")) {
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_unshare);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args));
            op(BPF_JMP | BPF_JSET | BPF_K, 0, 1, CLONE_NEWUSER);
            op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
        }
        if (!strncmp(*argv, "trap-", 5)) trap(*argv + 5);
        if (!strcmp(*argv, "openat2")) refuse(SYS_openat2);
        if (!strcmp(*argv, "tracing")) refuse(SYS_ptrace);
        if (!strcmp(*argv, "code")) {
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_mmap);
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_mprotect);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args) + 16);
            op(BPF_JMP | BPF_JSET | BPF_K, 0, 1, PROT_EXEC);
            op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EACCES);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
        }
        if (!strcmp(*argv, "filters")) {
            refuse(SYS_seccomp);
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_prctl);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args));
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PR_SET_SECCOMP);
            op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
        }
    }
    op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 99;
    execv(argv[1], argv + 1);
    return 98;
}
"#;

/// The compiled fence, in an existing directory; `None` without a compiler. Its arguments are the
/// calls to forbid (`namespaces`, `filters`, `tracing`, `openat2`, `code`: executable memory),
/// those to trap (`trap-statx`, ...), `--`, and the program to run.
///
/// # Panics
/// If the directory cannot be written to.
pub fn fence(place: &Path) -> Option<PathBuf> {
    let (source, program) = (place.join("fence.c"), place.join("fence"));
    fs::write(&source, FENCE).expect("a source file");
    let done = Command::new("gcc").arg("-o").arg(&program).arg(&source).status();
    done.is_ok_and(|status| status.success()).then_some(program)
}

/// A program of the same name that runs another one without namespaces, filters and tracing; `None`
/// without a compiler.
///
/// # Panics
/// If the directory cannot be written to.
pub fn fenced(scratch: &Scratch, program: &Path) -> Option<PathBuf> {
    let place = scratch.dir("fenced", None, 0o755).expect("a directory");
    let fence = fence(&place)?;
    let script = place.join(program.file_name()?);
    let words = format!(
        "#!/bin/sh\nexec {} namespaces filters tracing -- {} \"$@\"\n",
        fence.display(),
        program.display()
    );
    fs::write(&script, words).expect("a script");
    for file in [&fence, &script] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("rights");
    }
    Some(script)
}
