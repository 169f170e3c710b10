//! Tests of patched code, as the engines without filters keep it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::find_program;
use testkit::skip::{Outcome, Skip};

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("kept_with_the_image", kept_with_the_image),
    ("undecidable_programs_are_refused", undecidable_programs_are_refused),
    ("waiting_threads_do_not_block_calls", waiting_threads_do_not_block_calls),
    ("memory_made_executable", memory_made_executable),
    ("uncaught_calls_are_those_documented", uncaught_calls_are_those_documented),
];

/// Files of patched code below a directory, found by their name's prefix.
pub(crate) fn patched_files(root: &Path) -> Vec<PathBuf> {
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

/// A program whose only system call may be data, as far as an analysis shows: no instruction sets
/// its number or uses its result, and there is no list of functions.
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

/// Threads with adjacent stacks all begin to wait at once; then the first one makes a call.
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

/// Puts a call into memory that becomes executable in one of many ways, opens a file by it that
/// only the host has, and prints the result.
const MADE_EXECUTABLE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { NONE = PROT_NONE, R = PROT_READ, RW = R | PROT_WRITE, RX = R | PROT_EXEC, PAGE = 4096 };
/* mov $2, %eax; xor %esi, %esi; syscall; ret */
static const unsigned char code[] = { 0xb8, 2, 0, 0, 0, 0x31, 0xf6, 0x0f, 0x05, 0xc3 };
static const char *host;
static void tell(const char *name, void *place)
{
    long result = ((long (*)(const char *))place)(host);
    printf("%s %s\n", name, result == -ENOENT ? "inside" : result < 0 ? strerror(-result) : "OUTSIDE");
}
static char *fresh(long length, long at)
{
    char *memory = mmap(0, length, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory + at, code, sizeof code);
    return memory;
}
int main(int count, char **words)
{
    host = words[1];
    char *m = fresh(PAGE, 0);
    mprotect(m, PAGE, RX);
    tell("written", m);
    m = fresh(PAGE, 200);
    mprotect(m, 100, RX);
    tell("rounded", m + 200);
    m = fresh(PAGE, 0);
    mprotect(m, PAGE, NONE);
    mprotect(m, PAGE, RX);
    tell("hidden", m);
    m = fresh(3 * PAGE, 2 * PAGE);
    mprotect(m + PAGE, PAGE, NONE);
    mprotect(m, 3 * PAGE, RX);
    tell("behind", m + 2 * PAGE);
    m = fresh(80L << 20, 70L << 20);
    mprotect(m, 80L << 20, RX);
    tell("far", m + (70L << 20));
    int file = open("/tmp/code", O_RDWR | O_CREAT, 0700);
    if (write(file, code, sizeof code) != sizeof code) return 1;
    m = mmap(0, 2 * PAGE, NONE, MAP_PRIVATE, file, 0);
    mprotect(m, 2 * PAGE, RX);
    tell("file", m);
    personality(READ_IMPLIES_EXEC);
    m = fresh(PAGE, 0);
    mprotect(m, PAGE, RX);
    tell("implied", m);
    printf("personality %x\n", personality(0xffffffff));
    return 0;
}
"#;

/// Calls in memory are caught, however the memory became executable.
fn memory_made_executable(w: &World) -> Outcome {
    let dir = w.dir("made-executable");
    let program = compiled(&w.file(&dir, "made.c", MADE_EXECUTABLE), &["-static"])?;
    let host = w.file(&dir, "only-the-host", "").display().to_string();
    let bound = format!("{}:/made", program.display());
    let ways = ["written", "rounded", "hidden", "behind", "far", "file", "implied"];
    let expected = format!("{} inside\npersonality 0\n", ways.join(" inside\n"));
    for mode in ["F1", "F2"] {
        let mode = format!("--execmode={mode}");
        let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &w.image, "/made", &host]);
        assert_eq!(done.ok().out(), expected, "{mode}: {done:?}");
    }
    Ok(())
}

/// The text of docs/engines.md about each way to make a call that was in no file's code.
const UNSEEN: &str = "\
mapped writable and executable: outside
made so: outside
not writable any more: inside
a file mapped so: outside
a memory file mapped twice: outside
a file mapped shared: outside
made executable: inside
the file then: changed
opened for reading: outside
shared memory made executable: inside
shmat: outside
written into a file without a call: outside
into one with a call: the old text
by /proc/self/mem: outside
int $0x80: outside
inside an instruction: outside
half in each of two pieces: outside
";

/// The calls that these modes do not catch are exactly those in the documentation.
fn uncaught_calls_are_those_documented(w: &World) -> Outcome {
    let dir = w.dir("unseen");
    let program = compiled(&w.file(&dir, "unseen.c", include_str!("unseen.c")), &["-static"])?;
    let host = w.file(&dir, "only-the-host", "").display().to_string();
    let bound = format!("{}:/unseen", program.display());
    for mode in ["F1", "F2"] {
        let flags = [&format!("--execmode={mode}"), "--tmpfs=/tmp", "-v", &bound];
        let done =
            w.coracle(&[&["run", "--rm"], &flags[..], &[&w.image, "/unseen", &host]].concat());
        assert_eq!(done.ok().out(), UNSEEN, "{mode}: {done:?}");
    }
    Ok(())
}

/// A call gets a slot, however many threads wait in theirs.
fn waiting_threads_do_not_block_calls(w: &World) -> Outcome {
    let dir = w.dir("waiting");
    let program = compiled(&w.file(&dir, "waiting.c", WAITING), &["-static", "-pthread"])?;
    let bound = format!("{}:/waiting", program.display());
    for mode in ["F1", "F2"] {
        let mode = format!("--execmode={mode}");
        let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &w.image, "/waiting"]);
        assert_eq!(done.code(), 7, "{done:?}");
    }
    Ok(())
}

/// Compiles a source file.
pub(crate) fn compiled(source: &Path, flags: &[&str]) -> Result<PathBuf, Skip> {
    if find_program("gcc").is_none() {
        return Err(Skip("gcc is not installed".to_owned()));
    }
    let program = source.with_extension("");
    let done = Command::new("gcc").args(flags).arg("-o").args([&program, source]).status();
    assert!(done.is_ok_and(|status| status.success()), "{} is not compiled", source.display());
    Ok(program)
}

/// Assembles a program without a C library.
fn assembled(w: &World, dir: &str, source: &str) -> Result<PathBuf, Skip> {
    let flags = ["-nostdlib", "-static", "-Wl,--build-id=none,-z,noexecstack"];
    compiled(&w.file(&w.dir(dir), "riddle.S", source), &flags)
}

/// Such a program is not run, and the error names the file and a remedy; the process that executes
/// it continues.
fn undecidable_programs_are_refused(w: &World) -> Outcome {
    let program = assembled(w, "riddle", RIDDLE)?;
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
    // Without the undecidable call, it is an ordinary program.
    let plain = RIDDLE.replacen("    syscall\n", "", 1);
    let program = assembled(w, "plain", &plain)?;
    let index = words.iter().position(|word| word == "-v").expect("the bind");
    words[index + 1] = format!("{}:/riddle", program.display());
    let done = w.coracle(&words);
    assert_eq!((done.code(), done.err()), (7, String::new()), "{done:?}");
    Ok(())
}

/// Patched code of the image's files serves all containers; that of a container's own files is
/// removed with it.
fn kept_with_the_image(w: &World) -> Outcome {
    let (home, files) = (w.dir("kept"), w.dir("kept-files"));
    let world = w.at(&home);
    world.fetch(Path::new("/nonexistent")).expect("the image in a store of its own");
    let w = &world;
    w.guest(&[], &["exit", "0"]).ok();
    let trees = w.store().join("trees");
    let first = patched_files(&trees);
    assert!(!first.is_empty(), "nothing is kept in {}", trees.display());
    let written = |paths: &[PathBuf]| -> Vec<_> {
        paths.iter().map(|path| path.metadata().and_then(|found| found.modified()).ok()).collect()
    };
    let times = written(&first);
    let name = w.name("other");
    let _container = Container::named(w, &name);
    let again = |script: &[&str]| w.coracle(&w.words_for(&["run"], &["--name", &name], script));
    again(&["exit", "0"]).ok();
    assert_eq!((patched_files(&trees), written(&first)), (first.clone(), times));
    let places = w.store().join("containers");
    assert_eq!(patched_files(&places), Vec::<PathBuf>::new());
    // The same program, as a file of the container's own.
    let copy = files.join("guest");
    w.coracle(&["cp", &format!("{name}:/bin/guest"), &copy.display().to_string()]).ok();
    w.coracle(&["cp", &copy.display().to_string(), &format!("{name}:/own")]).ok();
    let own = w.coracle(&["run", &w.mode(), &name, "/own", "exit", "7"]);
    assert_eq!(own.code(), 7, "{own:?}");
    let own = patched_files(&places);
    assert!(!own.is_empty() && patched_files(&trees) == first, "{own:?}");
    w.coracle(&["rm", "-f", &name]).ok();
    assert_eq!(patched_files(&places), Vec::<PathBuf>::new());
    Ok(())
}
