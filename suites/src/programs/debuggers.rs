//! Tests of debuggers in the container: with an in-process engine the program has no tracer yet, so
//! `gdb` and `strace` can trace it.
//!
//! They see the program where the guest's kernel would have put it, under the guest's names; the
//! only setting that `gdb` needs is to pass the signal by which a call is caught the first time.

use testkit::skip::Outcome;

use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("launches", launches),
    ("attaches", attaches),
    ("calls_are_shown", calls_are_shown),
    ("debuggers_see_the_program", debuggers_see_the_program),
];

/// Makes `/work/prog`, which opens a file in a nested function, three times, and with an argument
/// until it is ended.
const PROGRAM: &str = r#"
mkdir -p /work; cd /work
cat > prog.c <<'END'
#include <stdio.h>
#include <unistd.h>
static int total;
__attribute__((noinline)) int inner(int n)
{
    FILE *f = fopen("/etc/name-of-the-guest", "r");
    if (f) fclose(f);
    return total += n;
}
__attribute__((noinline)) int outer(int n) { return inner(n) + 1; }
int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += outer(i);
    printf("sum %d\n", sum);
    fflush(stdout);
    for (int i = 0; argc > 1 && i < 1200; i++) { outer(1); usleep(50000); }
    return 7;
}
END
gcc -g -O0 -o prog prog.c
"#;

/// `gdb` with its first commands.
const GDB: &str = "gdb -q -nx -batch -ex 'handle SIGSYS nostop noprint pass'";

/// Runs a script after [`PROGRAM`]; returns its output.
#[track_caller]
fn said(w: &World, program: &str, script: &str) -> Result<String, testkit::skip::Skip> {
    let c = w.container();
    if c.sh(&format!("command -v {program}")).code() != 0 {
        testkit::skip!("the tree has no {program}");
    }
    let done = c.sh(&format!("{PROGRAM}\n{script}"));
    Ok(done.ok().out())
}

fn launches(w: &World) -> Outcome {
    let script = format!(
        "timeout 90 {GDB} -ex 'break inner' -ex run -ex bt -ex 'print n' -ex continue -ex 'print n' -ex delete -ex continue ./prog 2>&1"
    );
    let text = said(w, "gdb", &script)?;
    for part in [
        "Breakpoint 1, inner (n=0) at prog.c:6",
        "#1  0x",
        " in outer (n=0) at prog.c:10",
        " in main (argc=1, ",
        "$1 = 0",
        "Breakpoint 1, inner (n=1)",
        "$2 = 1",
        "sum 7",
        "exited with code 07",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    Ok(())
}

fn attaches(w: &World) -> Outcome {
    let script = format!(
        "./prog on >out & pid=$!; until grep -q sum out; do sleep 0.1; done
         timeout 90 {GDB} -p $pid -ex 'break inner' -ex continue -ex bt -ex delete -ex detach 2>&1
         kill -0 $pid && echo still there; kill $pid; wait $pid || echo ended $?"
    );
    let text = said(w, "gdb", &script)?;
    for part in [
        "Breakpoint 1, inner (n=1) at prog.c:6",
        " in outer (n=1) at prog.c:10",
        " in main (argc=2, ",
        "detached",
        "still there",
        "ended 143",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    Ok(())
}

fn calls_are_shown(w: &World) -> Outcome {
    let script = "timeout 90 strace -f -o trace sh -c './prog; exit 3' || echo ended $?
                  grep -c 'openat(AT_FDCWD, \"/etc/name-of-the-guest\", O_RDONLY)' trace
                  grep -o 'exited with [0-9]*' trace";
    let text = said(w, "strace", script)?;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["sum 7", "ended 3"], "{text}");
    let opened: u32 = lines[2].parse().expect("a number");
    assert!(opened >= 3, "{text}");
    assert_eq!(lines[3..], ["exited with 7", "exited with 3"], "{text}");
    Ok(())
}

/// Data that debuggers use: the program's link, its mappings, its auxiliary vector.
fn debuggers_see_the_program(w: &World) -> Outcome {
    let script = "./prog on >out & pid=$!; until grep -q sum out; do sleep 0.1; done
                  readlink /proc/$pid/exe; awk 'NR == 1 { print $6 }' /proc/$pid/maps
                  grep -c stage /proc/$pid/maps || true
                  kill $pid
                  LD_SHOW_AUXV=1 ./prog | awk '/EXECFN/ { print $2 }'
                  set -- $(LD_SHOW_AUXV=1 ./prog | awk '/ENTRY|PHDR/ { print $2 }')
                  far=$(($1 - $2)); test ${far#-} -lt 65536 && echo near";
    let text = said(w, "awk", script)?;
    assert_eq!(text, "/work/prog\n/work/prog\n0\n./prog\nnear\n");
    Ok(())
}
