//! Which engine is chosen where the host forbids something, and how `doctor` explains it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::told;

/// Runs a program without some system calls, which are named before it and end at `--`.
const FENCE: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
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
int main(int argc, char **argv)
{
    op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    for (argv++; strcmp(*argv, "--"); argv++) {
        if (!strcmp(*argv, "namespaces")) refuse(SYS_unshare);
        if (!strcmp(*argv, "tracing")) refuse(SYS_ptrace);
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

/// The compiled fence; none without a compiler.
fn fence(place: &Path) -> Option<PathBuf> {
    let (source, program) = (place.join("fence.c"), place.join("fence"));
    std::fs::write(&source, FENCE).unwrap();
    let done = Command::new("gcc").arg("-o").arg(&program).arg(&source).status();
    done.is_ok_and(|status| status.success()).then_some(program)
}

fn run(fence: &Path, home: &Path, forbidden: &[&str], words: &[&str]) -> Output {
    Command::new(fence)
        .args(forbidden)
        .args(["--", env!("CARGO_BIN_EXE_coracle")])
        .args(words)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(home)
        .output()
        .unwrap()
}

/// What is forbidden; what is chosen; which modes say why not, and by which word.
type Case<'a> = (&'a [&'a str], Option<&'a str>, &'a [(&'a str, &'a str)]);

#[test]
fn the_choice_follows_what_the_host_allows() {
    let place = TempDir::new().unwrap();
    let Some(fence) = fence(place.path()) else {
        println!("SKIP the_choice_follows_what_the_host_allows: no gcc");
        return;
    };
    let cases: [Case<'_>; 4] = [
        (&["namespaces"], Some("I1"), &[("N1", "unshare")]),
        (
            &["namespaces", "tracing"],
            Some("I1"),
            &[("N1", "unshare"), ("P1", "ptrace"), ("P2", "ptrace")],
        ),
        (
            &["namespaces", "filters"],
            Some("P2"),
            &[("N1", "unshare"), ("I1", "seccomp"), ("I2", "seccomp"), ("P1", "seccomp")],
        ),
        (
            &["namespaces", "filters", "tracing"],
            None,
            &[("N1", "unshare"), ("I1", "seccomp"), ("P1", "ptrace"), ("P2", "ptrace")],
        ),
    ];
    for (forbidden, chosen, refused) in cases {
        let home = TempDir::new().unwrap();
        let done = run(&fence, home.path(), forbidden, &["doctor", "--format", "json"]);
        assert_eq!(done.status.code(), Some(i32::from(chosen.is_none())), "{}", told(&done));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["chosen"].as_str(), chosen, "{forbidden:?}: {}", told(&done));
        for (mode, word) in refused {
            let engines = report["engines"].as_array().unwrap();
            let engine = engines.iter().find(|engine| engine["mode"] == *mode).unwrap();
            let why = engine["why"].as_str().unwrap_or_default();
            assert!(engine["state"] == "unusable" && why.contains(word), "{forbidden:?}: {engine}");
        }
        // For people: a line for each engine, with the reason on it.
        let text = told(&run(&fence, home.path(), forbidden, &["doctor"]));
        assert_eq!(text.matches(", chosen").count(), usize::from(chosen.is_some()), "{text}");
        assert_eq!(text.matches(": unusable: ").count(), refused_in(&report), "{text}");
    }
}

fn refused_in(report: &Value) -> usize {
    let engines = report["engines"].as_array().unwrap();
    engines.iter().filter(|engine| engine["state"] == "unusable").count()
}
