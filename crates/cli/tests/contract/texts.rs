//! Changed text, as the engines without filters keep it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::skip::{Outcome, Skip};

use crate::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("kept_with_the_image", kept_with_the_image),
    ("what_cannot_be_told_is_refused", what_cannot_be_told_is_refused),
    ("waiting_threads_stop_nobody", waiting_threads_stop_nobody),
];

/// Files below a directory whose names begin as those of changed text do.
fn texts(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut stack) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                stack.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with("text-") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// A program whose only call may be data, as far as anybody can tell: nothing sets its number, nothing looks at its result, and there is no list of
/// functions.
const RIDDLE: &str = "
    .globl _start
_start:
    jmp 1f
    .fill 64, 1, 0x90
    syscall
    .fill 64, 1, 0x90
1:  mov $60, %eax
    mov $7, %edi
    syscall
";

/// Threads whose stacks lie one behind the other all begin to wait at once; then the first one makes a call.
const WAITING: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static volatile int go, ready;
static int ends[2];
static void *waits(void *unused)
{
    char byte;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!go) ;
    return (void *)(long)read(ends[0], &byte, 1);
}
int main(void)
{
    pthread_t threads[4];
    if (pipe(ends)) return 1;
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, waits, 0);
    while (ready < 4) ;
    go = 1;
    for (volatile long i = 0; i < 300000000; i++) ;
    if (write(ends[1], "four", 4) != 4) return 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 7;
}
"#;

/// A call finds room to be worked on in, however many wait in theirs.
fn waiting_threads_stop_nobody(w: &World) -> Outcome {
    let dir = w.dir("waiting");
    let (source, program) = (w.file(&dir, "waiting.c", WAITING), dir.join("waiting"));
    let done =
        Command::new("gcc").args(["-static", "-pthread", "-o"]).args([&program, &source]).status();
    if !done.is_ok_and(|status| status.success()) {
        testkit::skip!("no C compiler");
    }
    let bound = format!("{}:/waiting", program.display());
    for mode in ["F1", "F2"] {
        let mode = format!("--execmode={mode}");
        let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &w.image, "/waiting"]);
        assert_eq!(done.code(), 7, "{done:?}");
    }
    Ok(())
}

/// Assembles a static program.
fn assembled(dir: &Path, source: &str) -> Result<PathBuf, Skip> {
    let (text, program) = (dir.join("riddle.S"), dir.join("riddle"));
    fs::write(&text, source).expect("a source file");
    let flags = ["-nostdlib", "-static", "-Wl,--build-id=none,-z,noexecstack"];
    let done = Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&text).status();
    match done {
        Ok(status) if status.success() => Ok(program),
        _ => Err(Skip("no C compiler".to_owned())),
    }
}

/// Such a program is not run, and the error names the file and what to do; what executes it goes on.
fn what_cannot_be_told_is_refused(w: &World) -> Outcome {
    let program = assembled(&w.dir("riddle"), RIDDLE)?;
    let flags = ["-v", &format!("{}:/riddle", program.display())];
    let mut words = w.words(&flags, &[]);
    let last = words.len() - 1;
    "/riddle".clone_into(&mut words[last]);
    let first = w.coracle(&words);
    let said = first.err();
    assert_eq!((first.code(), first.out()), (126, String::new()), "{first:?}");
    assert!(said.contains("riddle: the code at 0x") && said.contains("--execmode=I1"), "{said}");
    let spawned = w.guest(&flags, &["spawn", "/riddle"]);
    assert!(spawned.err().contains("--execmode=I1"), "{spawned:?}");
    // Without the riddle, it is an ordinary program.
    let plain = RIDDLE.replacen("    syscall\n", "", 1);
    let program = assembled(&w.dir("plain"), &plain)?;
    let index = words.iter().position(|word| word == "-v").expect("the bind");
    words[index + 1] = format!("{}:/riddle", program.display());
    let done = w.coracle(&words);
    assert_eq!((done.code(), done.err()), (7, String::new()), "{done:?}");
    Ok(())
}

/// What one container has made of the image's files serves all others; what is made of a container's own goes with it.
fn kept_with_the_image(w: &World) -> Outcome {
    let (home, files) = (w.dir("kept"), w.dir("kept-files"));
    let world = w.at(&home);
    world.fetch(Path::new("/nonexistent")).expect("the image in a store of its own");
    let w = &world;
    w.guest(&[], &["exit", "0"]).ok();
    let trees = w.store().join("trees");
    let first = texts(&trees);
    assert!(!first.is_empty(), "nothing is kept in {}", trees.display());
    let written = |paths: &[PathBuf]| -> Vec<_> {
        paths.iter().map(|path| path.metadata().and_then(|found| found.modified()).ok()).collect()
    };
    let times = written(&first);
    let name = w.name("other");
    let _container = Container::named(w, &name);
    let again = |script: &[&str]| w.coracle(&w.words_for(&["run"], &["--name", &name], script));
    again(&["exit", "0"]).ok();
    assert_eq!((texts(&trees), written(&first)), (first.clone(), times));
    let places = w.store().join("containers");
    assert_eq!(texts(&places), Vec::<PathBuf>::new());
    // The same program, as a file of the container's own.
    let copy = files.join("guest");
    w.coracle(&["cp", &format!("{name}:/bin/guest"), &copy.display().to_string()]).ok();
    w.coracle(&["cp", &copy.display().to_string(), &format!("{name}:/own")]).ok();
    let own = w.coracle(&["run", &w.mode(), &name, "/own", "exit", "7"]);
    assert_eq!(own.code(), 7, "{own:?}");
    let own = texts(&places);
    assert!(!own.is_empty() && texts(&trees) == first, "{own:?}");
    w.coracle(&["rm", "-f", &name]).ok();
    assert_eq!(texts(&places), Vec::<PathBuf>::new());
    Ok(())
}
