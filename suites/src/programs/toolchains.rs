//! Tests of compilers of other languages and their output: Go's own tools inside, and Rust programs
//! with two C libraries.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use testkit::command::{Input, run_with};
use testkit::runtimes::{go_cache, go_command, installed};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, need_program};

use crate::programs::languages::guests;
use crate::programs::stage::{Case, IMAGE, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[("go", go), ("rust", rust), ("rust_musl", rust_musl)];

/// This machine's Go, bound into the container, builds, tests and vets the module. The standard
/// library is compiled natively once, since it takes a minute; the module and its tests are
/// compiled inside.
fn go(w: &World) -> Outcome {
    let compiler = installed("go")?;
    let home = compiler.ancestors().nth(2).expect("it is in `bin`");
    let scratch = Scratch::new("toolchain").expect("a directory");
    let made = w.copy(warm(&compiler), &scratch, "cache");
    let bound =
        [format!("{}:/usr/local/go:ro", home.display()), format!("{}:/cache", made.display())];
    let c = w.container_with(IMAGE, &["-v", &bound[0], "-v", &bound[1]]);
    let mut archive = Command::new("tar");
    archive.args(["c", "-C"]).arg(guests().join("module")).arg(".");
    let module = run_with(&mut archive, Input::Null, LIMIT).ok().stdout.clone();
    c.feed("mkdir /m; tar x --no-same-owner -C /m", module).ok();
    let done = c.sh("\
        export PATH=$PATH:/usr/local/go/bin GOCACHE=/cache GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off CGO_ENABLED=0; cd /m
        go build -o /usr/local/bin/counts .; counts one; go vet ./...; go test -count=1 ./... > log; sed 's/[\t ][0-9.]*s$//' log; gofmt -l .
        echo 'func broken() { return 1 }' >> words/words.go; go build ./... 2>&1 | grep -c 'too many return values'
        go list -deps . | grep -c example");
    let expected = "\
        map[a:2 b:1] 2\n?   \texample.org/module\t[no test files]\nok  \texample.org/module/words\n1\n2\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

/// The standard library, compiled as far as the module needs it.
static LIBRARY: OnceLock<()> = OnceLock::new();

fn warm(compiler: &Path) -> &'static Path {
    LIBRARY.get_or_init(|| {
        for words in [
            &["build", "-o", "/dev/null", "."][..],
            &["vet", "./..."],
            &["test", "-count=1", "-run=none", "./..."],
        ] {
            let mut command = go_command(compiler);
            command.args(words).current_dir(guests().join("module"));
            run_with(&mut command, Input::Null, LIMIT).ok();
        }
    });
    go_cache()
}

/// With Debian's C library, as a program of any distribution uses its own.
fn rust(w: &World) -> Outcome {
    rust_program(w, &["-C", "target-feature=-crt-static"])
}

/// With musl's, linked statically.
fn rust_musl(w: &World) -> Outcome {
    rust_program(w, &["--target", "x86_64-unknown-linux-musl"])
}

fn rust_program(w: &World, options: &[&str]) -> Outcome {
    need_program("rustc")?;
    let scratch = Scratch::new("rust").expect("a directory");
    let program = scratch.path().join("program");
    let mut build = Command::new("rustc");
    build.args(["-O", "--edition", "2024", "-o"]).arg(&program).args(options);
    let done = run_with(build.arg(guests().join("main.rs")), Input::Null, LIMIT);
    if done.err().contains("can't find crate for `std`") {
        testkit::skip!("this machine's Rust cannot compile for {}", options[1]);
    }
    done.ok();
    let c = w.container();
    let script = "cat > /program; chmod 755 /program; /program 2>/dev/null; ls /srv";
    let done = c.feed(script, fs::read(&program).expect("the program"));
    let expected = "\
        /program /srv/rust\nthreads 1000\n{\"files\": 40}\n30 (Some(3), \"again and /srv/rust\")\nNo such file or directory (os error 2)\n\
        ExitStatus(unix_wait_status(9))\nhello Some(\"socket\")\n\"/srv/rust\"\ntrue\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
